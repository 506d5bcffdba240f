"""One queue for all requests of a run: who may send, and when.

One task at a time, the head of the queue, waits for its turn; the others wait for the head.
So a pause, a correction of the token count or a cancellation needs no undoing: no turn is
promised before it is taken.
"""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable

import anyio

from claimscore.pipeline.llm.limits.flow import Flow, LimiterState, OnEvent, Permit
from claimscore.pipeline.llm.limits.leases import Shared
from claimscore.types import RateLimits

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Tokens = int | Callable[[], int]

#: The head of the queue is not woken to gain less than this.
_WORTH_WAKING_S = 0.002


class Limiter:
    """Gives leave to send, in the order of asking; see `flow` for when.

    Every permit must be ended exactly once: by `answered`, `refused` (a 429) or `failed`.
    `tokens` may be a function, which is asked when it is time: estimates get better while
    one waits. `on_event` hears of what happens seldom: "limits learnt", "rate lowered",
    "paused".
    """

    def __init__(
        self,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int = 64,
        clock: Clock = anyio.current_time,
        sleep: Sleep = anyio.sleep,
        shared: Shared | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self._flow = Flow(
            rpm=rpm, tpm=tpm, max_concurrency=max_concurrency, shared=shared, on_event=on_event
        )
        self._clock = clock
        self._sleep = sleep
        self._queue: collections.deque[anyio.Event] = collections.deque()
        self._head_tokens: Tokens = 0
        self._wakes_at = 0.0
        self._nap: anyio.CancelScope | None = None

    def try_reserve(self, tokens: Tokens) -> Permit | None:
        """A permit, if one may be had at once and nobody waits."""
        if self._queue:
            return None
        units, now = _number(tokens), self._clock()
        return None if self._flow.wait_s(units, now) > 0 else self._flow.take(units, now)

    def wait_s(self, tokens: Tokens) -> float:
        """How long until `try_reserve` may succeed, as far as is known before the next outcome."""
        return self._flow.wait_s(_number(tokens), self._clock())

    async def reserve(self, tokens: Tokens) -> Permit:
        """A permit, when it is time. Where this is cancelled, nothing was taken."""
        permit = self.try_reserve(tokens)
        if permit is not None:
            return permit
        turn = anyio.Event()
        self._queue.append(turn)
        try:
            if self._queue[0] is not turn:
                await turn.wait()
            while (wait_s := self._flow.wait_s(_number(tokens), self._clock())) > 0:
                await self._rest(tokens, wait_s)
            return self._flow.take(_number(tokens), self._clock())
        finally:
            self._leave(turn)

    def answered(self, permit: Permit, used_tokens: int, limits: RateLimits | None) -> None:
        """There is an answer, which took so many tokens."""
        self._flow.answered(permit, used_tokens, limits, self._clock())
        self._stir()

    def refused(
        self, permit: Permit, retry_after_s: float | None, limits: RateLimits | None
    ) -> None:
        """The server said that this was too fast (429)."""
        self._flow.refused(permit, retry_after_s, limits, self._clock())
        self._stir()

    def failed(self, permit: Permit, *, counted: bool, limits: RateLimits | None = None) -> None:
        """It came to nothing, or was not sent; `counted` where its tokens are spent."""
        self._flow.failed(permit, counted, limits, self._clock())
        self._stir()

    def resume_gently(self) -> None:
        """Begin anew with few requests in flight, after an outage."""
        self._flow.resume_gently()

    def state(self) -> LimiterState:
        """What holds requests back now."""
        return self._flow.state()

    def close(self) -> None:
        """Give back to other processes what was not used."""
        self._flow.close()

    async def _rest(self, tokens: Tokens, wait_s: float) -> None:
        """Sleep until it should be time, or `_stir` finds that it is time earlier."""
        self._head_tokens, self._wakes_at = tokens, self._clock() + wait_s
        with anyio.CancelScope() as self._nap:
            await self._sleep(wait_s)
        self._nap = None

    def _stir(self) -> None:
        """Wake the head of the queue if it has slept long enough after all."""
        if self._nap is None:
            return
        now = self._clock()
        wait_s = self._flow.wait_s(_number(self._head_tokens), now)
        if now + wait_s < self._wakes_at - _WORTH_WAKING_S:
            self._nap.cancel()

    def _leave(self, turn: anyio.Event) -> None:
        """Out of the queue, wherever in it; whoever is at its head now goes on."""
        self._queue.remove(turn)
        if self._queue:
            self._queue[0].set()


def _number(tokens: Tokens) -> int:
    return tokens if isinstance(tokens, int) else tokens()
