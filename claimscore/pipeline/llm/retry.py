"""When to ask again after a transient error. The only home of tenacity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from claimscore.errors import RateLimitError, TransientError

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

#: Full jitter: attempt n waits a random time up to 2 ** (n - 1) seconds, at most this.
LONGEST_BACKOFF_S = 60.0
_backoff = wait_random_exponential(multiplier=1.0, max=LONGEST_BACKOFF_S)


class Retry:
    """Repeats a call while it raises `TransientError`, at most `max_attempts` times in all.

    The last error is raised as it is. Everything else passes at once, cancellation too.
    """

    def __init__(self, max_attempts: int, sleep: Sleep) -> None:
        self._template = AsyncRetrying(
            sleep=sleep,
            stop=stop_after_attempt(max_attempts),
            wait=wait_s,
            retry=retry_if_exception_type(TransientError),
            reraise=True,
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
    if isinstance(error, RateLimitError) and error.retry_after_s is not None:
        return error.retry_after_s + min(backoff, 1.0)
    return backoff
