"""When a call is repeated, and how long it waits."""

from __future__ import annotations

import anyio
import pytest

from claimscore.errors import (
    AuthenticationError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.retry import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, GaveUp, Retry
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
    assert await Retry(clock.sleep)(call) == "done"
    assert (call.calls, clock.slept) == (1, [])


async def test_transient_errors_are_repeated_with_jitter():
    """Each wait is random, between zero and twice the bound of the one before."""
    clock, call = VirtualClock(), Flaky(7, TransientError("x"))
    assert await Retry(clock.sleep)(call) == "done"
    assert call.calls == 8
    bounds = [min(FIRST_BACKOFF_S * 2.0**i, LONGEST_BACKOFF_S) for i in range(7)]
    assert all(0 <= wait <= bound for wait, bound in zip(clock.slept, bounds, strict=True))
    assert len(set(clock.slept)) == 7


async def test_giving_up_ends_the_repetition():
    """Whoever calls decides when it is enough."""
    clock, n_calls = VirtualClock(), 0

    async def call() -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            raise GaveUp from TransientError("no line")
        raise TransientError("no line")

    with pytest.raises(GaveUp) as caught:
        await Retry(clock.sleep)(call)
    assert str(caught.value.__cause__) == "no line"
    assert n_calls == 3


@pytest.mark.parametrize(
    "error", [RejectedError("x"), AuthenticationError("x"), QuotaError("x"), ValueError("x")]
)
async def test_other_errors_are_not_repeated(error: Exception):
    """Asking again cannot help, or it is a bug of ours."""
    clock, call = VirtualClock(), Flaky(1, error)
    with pytest.raises(type(error)):
        await Retry(clock.sleep)(call)
    assert (call.calls, clock.slept) == (1, [])


async def test_a_retry_after_is_obeyed():
    """Never earlier than the server said, and a little later, not all at the same time."""
    clock, call = VirtualClock(), Flaky(1, RateLimitError("x", 17.0))
    await Retry(clock.sleep)(call)
    assert 17.0 <= clock.slept[0] <= 17.0 + 0.1 + 17.0 / 4


async def test_cancellation_is_not_repeated():
    """A cancelled call ends, it does not count as an error."""
    clock = VirtualClock()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Retry(clock.sleep)(anyio.sleep_forever)
    assert clock.slept == []


async def test_calls_at_the_same_time_do_not_share_state():
    """Each gets its own number of attempts (tenacity keeps them on the object)."""
    clock = VirtualClock()
    retry = Retry(clock.sleep)
    calls = [Flaky(n, TransientError(f"error {n}")) for n in range(6)]
    outcomes: dict[int, str] = {}

    async def run(n: int) -> None:
        outcomes[n] = await retry(calls[n])

    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(run, n)
    assert outcomes == dict.fromkeys(range(6), "done")
    assert [call.calls for call in calls] == [1, 2, 3, 4, 5, 6]
