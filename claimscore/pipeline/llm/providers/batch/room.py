"""How much a server lets wait, which nobody tells: found out by being refused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from claimscore.errors import OutageError
from claimscore.pipeline.llm.providers.batch.course import FIRST_POLL_S, LONGEST_POLL_S, Batch


class Room:
    """How large the next batch may be, and when it may be tried.

    A refusal costs nothing but the upload. While other batches of ours are under way, the
    next one waits until one of them has ended; where there are none, a smaller one is tried.
    """

    def __init__(self, max_requests: int, max_outage_s: float, clock: Callable[[], float]) -> None:
        self.limit = max_requests
        self.wait_s = 0.0
        self._max_requests = max_requests
        self._max_outage_s = max_outage_s
        self._clock = clock
        self._careful = False
        self._held = False
        self._since: float | None = None

    def is_taken(self, batches: Iterable[Batch]) -> bool:
        """Whether one of our batches must be judged, or must end, before the next is tried."""
        return self._careful and any(
            batch.waiters and (self._held or not batch.is_accepted) for batch in batches
        )

    def refused(self, batch: Batch, others: Iterable[Batch], words: str) -> None:
        """Be careful from now on; `OutageError` where nothing was taken for too long."""
        self._careful = True
        if any(other.is_accepted and other.waiters for other in others):
            self._held, self._since = True, None
            return
        self.limit = max(1, batch.state.n_requests // 2)
        self.wait_s = min(LONGEST_POLL_S, max(FIRST_POLL_S, 2 * self.wait_s))
        if self._since is None:
            self._since = self._clock()
        elif self._clock() - self._since > self._max_outage_s:
            raise OutageError(f"no batch was taken for {self._max_outage_s:,.0f} s: {words}")

    def landed(self) -> None:
        """A batch has ended: there is room again, perhaps for a larger one."""
        self.wait_s, self._since, self._held = 0.0, None, False
        self.limit = min(self._max_requests, 2 * self.limit)
