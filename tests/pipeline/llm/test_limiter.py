"""Pacing of requests and tokens, on a virtual clock."""

from __future__ import annotations

import bisect

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.limiter import Limiter, TokenEstimate, text_tokens
from claimscore.types import Completion, Message, Request, Usage
from tests.pipeline.llm.fakes import VirtualClock

pytestmark = pytest.mark.anyio


def make(rpm: float | None = None, tpm: float | None = None) -> tuple[Limiter, VirtualClock]:
    clock = VirtualClock()
    return Limiter(rpm=rpm, tpm=tpm, clock=clock, sleep=clock.sleep), clock


async def send_times(limiter: Limiter, clock: VirtualClock, n: int, tokens: int = 0) -> list[float]:
    times = []
    for _ in range(n):
        await limiter.reserve(tokens)
        times.append(clock.now)
    return times


def most_in_a_minute(times: list[float]) -> int:
    ends = [bisect.bisect_left(times, start + 60) for start in times]
    return max(end - begin for begin, end in enumerate(ends))


async def test_without_limits_nothing_waits():
    """No limit, no pause: no sleep and no lock."""
    limiter, clock = make()
    assert limiter.free
    await send_times(limiter, clock, 100)
    assert clock.slept == []


@pytest.mark.parametrize("rpm", [30, 500, 3000])
async def test_requests_a_minute_are_kept_and_used(rpm: int):
    """No minute holds more than the limit, and at least 98 % of it is used."""
    limiter, clock = make(rpm=rpm)
    times = await send_times(limiter, clock, 2 * rpm + 1)
    assert most_in_a_minute(times) <= rpm
    assert times[-1] <= 120 / 0.98


async def test_idle_time_gives_no_burst():
    """After a long silence, at most a quarter second of the rate is caught up at once."""
    limiter, clock = make(rpm=600)
    clock.now = 1000.0
    times = await send_times(limiter, clock, 700)
    assert sum(t == 1000.0 for t in times) <= 4
    assert most_in_a_minute(times) <= 600


async def test_tokens_a_minute_are_kept():
    """Requests of 100 tokens at 6,000 a minute go out one a second."""
    limiter, clock = make(tpm=6000)
    times = await send_times(limiter, clock, 61, tokens=100)
    assert most_in_a_minute(times) <= 61
    assert times[-1] == pytest.approx(60, abs=1)


async def test_settling_gives_back_what_was_not_used():
    """An estimate ten times too large does not slow down what follows."""
    limiter, clock = make(tpm=6000)
    for _ in range(61):
        await limiter.reserve(1000)
        limiter.settle(1000, 100)
    assert clock.now == pytest.approx(60, abs=1)


async def test_a_request_larger_than_a_minute_goes_through():
    """It is paid off afterwards instead of waiting for ever."""
    limiter, clock = make(tpm=100)
    await limiter.reserve(1000)
    assert clock.now == 0
    await limiter.reserve(1)
    assert clock.now == pytest.approx(600, rel=0.01)


async def test_a_pause_is_heard_by_all():
    """One refusal's retry-after holds back everybody, and shorter pauses do not shorten it."""
    limiter, clock = make()
    limiter.pause(20)
    limiter.pause(5)
    assert not limiter.free
    assert await send_times(limiter, clock, 3) == [20, 20, 20]
    assert limiter.free


async def test_after_a_pause_there_is_no_stampede():
    """The rate goes on as before the pause; the pause is not caught up."""
    limiter, clock = make(rpm=60)
    limiter.pause(30)
    times = await send_times(limiter, clock, 4)
    assert times == pytest.approx([30, 30.75, 31.76, 32.76], abs=0.02)


async def test_cancel_while_waiting_costs_no_turn():
    """A cancelled wait takes nothing from the limit and lets the next one on."""
    limiter = Limiter(rpm=60)
    await limiter.reserve(0)
    with anyio.move_on_after(0.01) as scope:
        await limiter.reserve(0)
    assert scope.cancelled_caught
    clock = VirtualClock()
    limiter._clock, limiter._sleep = clock, clock.sleep
    clock.now = anyio.current_time() + 1.01
    await limiter.reserve(0)
    assert clock.slept == []


@given(st.lists(st.integers(1, 500), min_size=1, max_size=50), st.integers(60, 5000))
@settings(deadline=None)
def test_no_minute_holds_more_tokens_than_the_limit(sizes: list[int], tpm: int):
    """Up to the one request that was let through with the last token."""

    async def run() -> list[float]:
        limiter, clock = make(tpm=tpm)
        times = []
        for size in sizes:
            await limiter.reserve(size)
            times.append(clock.now)
        return times

    times = anyio.run(run)
    for start in times:
        inside = [s for s, t in zip(sizes, times, strict=True) if start <= t < start + 59.9]
        assert sum(inside[:-1]) <= tpm


def test_the_estimate_learns_the_length_of_answers():
    """Answers of 10 tokens are expected to be about 10 long, not max_tokens."""
    request = Request("p", "n", "m", (Message("user", "x" * 400),), max_tokens=4000)
    estimate = TokenEstimate()
    assert estimate.expect(request) == 100 + 1000
    for _ in range(199):
        assert estimate.learn(request, Completion("", "m", usage=Usage(90, 10))) == 100
    assert estimate.expect(request) == pytest.approx(100 + 15, abs=1)


def test_an_unknown_usage_is_estimated_from_the_text():
    """Servers that report nothing are paced all the same."""
    request = Request("p", "n", "m", (Message("user", "x" * 40),))
    assert TokenEstimate().learn(request, Completion("y" * 8, "m")) == 12
    assert text_tokens("abc") == 1
