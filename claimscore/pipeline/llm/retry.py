"""How long to wait before asking again. The LLM stage's home of tenacity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_random_exponential,
)

from claimscore.errors import TransientError

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

#: Full jitter: after attempt n, a random time up to 0.25 * 2 ** (n - 1) seconds, at most a minute.
FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 60.0
_backoff = wait_random_exponential(multiplier=FIRST_BACKOFF_S, max=LONGEST_BACKOFF_S)


class GaveUp(Exception):
    """Ends the repetition; the transient error is the cause."""


class Retry:
    """Repeats a call while it raises `TransientError`.

    How often is the caller's to say, by raising `GaveUp` instead: patience depends on what
    went wrong. Everything else passes at once, cancellation too.
    """

    def __init__(self, sleep: Sleep) -> None:
        self._template = AsyncRetrying(
            sleep=sleep, wait=wait_s, retry=retry_if_exception_type(TransientError), reraise=True
        )

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """One copy a call: an `AsyncRetrying` keeps its state on itself, shared by tasks.

        It is told of the first error only afterwards: calls that succeed need none of it.
        """
        try:
            return await call()
        except TransientError as exc:
            first: TransientError | None = exc

        async def again() -> T:
            nonlocal first
            if first is None:
                return await call()
            error, first = first, None
            raise error

        result: T = await self._template.copy()(again)
        return result


def wait_s(state: RetryCallState) -> float:
    """The server's own figure where it gave one; never less, and never all at the same time."""
    backoff = _backoff(state)
    error = state.outcome.exception() if state.outcome is not None else None
    told = error.retry_after_s if isinstance(error, TransientError) else None
    if told is not None:
        return told + min(backoff, 0.1 + told / 4)
    return backoff
