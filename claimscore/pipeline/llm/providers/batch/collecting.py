"""The requests that come together for the next batch."""

from __future__ import annotations

from claimscore.errors import TransientError
from claimscore.pipeline.llm.providers.batch.course import Sleep
from claimscore.pipeline.llm.providers.batch.waiting import Job, Waiter

#: Batches that a request may be in without an answer.
MAX_TRIES = 3


class Collection(Job):
    """They wait until nobody has joined for `linger_s`, or there are `max_requests`.

    Once it is closed (`why_closed`), nothing more is sent.
    """

    def __init__(self, max_requests: int, linger_s: float, sleep: Sleep) -> None:
        super().__init__()
        self.why_closed: Exception | None = None
        self._max_requests = max_requests
        self._linger_s = linger_s
        self._sleep = sleep

    async def linger(self) -> None:
        """Until nobody has joined for a while, or there is enough for a batch."""
        n_seen = -1
        while n_seen < len(self.waiters) < self._max_requests:
            n_seen = len(self.waiters)
            await self._sleep(self._linger_s)

    def join(self, waiter: Waiter) -> None:
        """Collect a request again that was in a batch."""
        if self.why_closed is not None:
            waiter.settle(self.why_closed)
            return
        waiter.move(self)
        self.call_for_leader()

    def try_again(self, waiter: Waiter, error: TransientError) -> None:
        """The same, unless it was in too many batches."""
        waiter.n_tries += 1
        if waiter.n_tries < MAX_TRIES:
            self.join(waiter)
        else:
            waiter.settle(error)

    def close(self, error: Exception) -> None:
        """Send nothing more; what is under way may still be collected."""
        self.why_closed = self.why_closed or error
        for waiter in list(self.waiters.values()):
            waiter.settle(error)
