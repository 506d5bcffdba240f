"""When a call is repeated, and how long it waits."""

from __future__ import annotations

import anyio
import pytest

from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.retry import LONGEST_BACKOFF_S, Retry
from tests.pipeline.llm.fakes import VirtualClock

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, n_failures: int, error: Exception) -> None:
        self.left, self.error, self.calls = n_failures, error, 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


async def test_success_needs_no_sleep():
    """The usual case costs one call."""
    clock, call = VirtualClock(), Flaky(0, TransientError("x"))
    assert await Retry(3, clock.sleep)(call) == "done"
    assert (call.calls, clock.slept) == (1, [])


async def test_transient_errors_are_repeated_with_jitter():
    """Each wait is random, between zero and twice the bound of the one before."""
    clock, call = VirtualClock(), Flaky(7, TransientError("x"))
    assert await Retry(8, clock.sleep)(call) == "done"
    assert call.calls == 8
    bounds = [min(2.0**i, LONGEST_BACKOFF_S) for i in range(7)]
    assert all(0 <= wait <= bound for wait, bound in zip(clock.slept, bounds, strict=True))
    assert len(set(clock.slept)) == 7


@pytest.mark.parametrize("max_attempts", [1, 2, 8])
async def test_the_last_error_is_raised_as_it_is(max_attempts: int):
    """After so many attempts in all, the caller sees the server's own words."""
    clock, error = VirtualClock(), TransientError("no line")
    call = Flaky(99, error)
    with pytest.raises(TransientError, match="no line"):
        await Retry(max_attempts, clock.sleep)(call)
    assert call.calls == max_attempts


@pytest.mark.parametrize(
    "error", [RejectedError("x"), AuthenticationError("x"), QuotaError("x"), ValueError("x")]
)
async def test_other_errors_are_not_repeated(error: Exception):
    """Asking again cannot help, or it is a bug of ours."""
    clock, call = VirtualClock(), Flaky(1, error)
    with pytest.raises(type(error)):
        await Retry(8, clock.sleep)(call)
    assert (call.calls, clock.slept) == (1, [])


async def test_a_retry_after_is_obeyed():
    """Never earlier than the server said, and at most a second later."""
    clock, call = VirtualClock(), Flaky(1, RateLimitError("x", 17.0))
    await Retry(3, clock.sleep)(call)
    assert 17.0 <= clock.slept[0] <= 18.0


async def test_cancellation_is_not_repeated():
    """A cancelled call ends, it does not count as an error."""
    clock = VirtualClock()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Retry(8, clock.sleep)(anyio.sleep_forever)
    assert clock.slept == []


async def test_calls_at_the_same_time_do_not_share_state():
    """Each gets its own number of attempts and its own error (tenacity keeps both on itself)."""
    clock = VirtualClock()
    retry = Retry(4, clock.sleep)
    calls = [Flaky(n, TransientError(f"error {n}")) for n in range(6)]
    outcomes: dict[int, str] = {}

    async def run(n: int) -> None:
        try:
            outcomes[n] = await retry(calls[n])
        except ClaimscoreError as exc:
            outcomes[n] = str(exc)

    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(run, n)
    assert [outcomes[n] for n in range(6)] == ["done"] * 4 + ["error 4", "error 5"]
    assert [call.calls for call in calls] == [1, 2, 3, 4, 4, 4]
