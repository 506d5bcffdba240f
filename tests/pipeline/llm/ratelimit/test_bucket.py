"""A token bucket, and a limit declared by an option, by headers, or by both."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.ratelimit.bucket import (
    BURST_S,
    DeclaredLimit,
    HeaderLimit,
    TokenBucket,
    read_header,
)
from claimscore.types import LimitState
from tests.pipeline.llm.ratelimit.simulation import SimulatedServer, simulate


def make_bucket(rate: float) -> TokenBucket:
    return TokenBucket(rate, BURST_S * rate)


def send_times(bucket: TokenBucket, n: int, units: float = 1, start: float = 0.0) -> list[float]:
    now, times = start, []
    for _ in range(n):
        while (wait_s := bucket.wait_s(now)) > 0:
            now += wait_s
        bucket.level -= units
        times.append(now)
    return times


def test_the_first_goes_at_once_and_the_others_evenly():
    """No burst at the start: one, then one every tenth of a second."""
    assert send_times(make_bucket(10), 5) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_idle_time_is_caught_up_for_the_capacity_at_most():
    """Whether the task slept late or the machine did for a day."""
    bucket = make_bucket(100)
    send_times(bucket, 1)
    times = send_times(bucket, 60, start=86_400.0)
    assert sum(t == 86_400.0 for t in times) == BURST_S * 100 + 1


def test_a_clock_that_stands_still_or_goes_back_earns_nothing():
    """And does not hold up what is due already."""
    bucket = make_bucket(10)
    send_times(bucket, 1, start=100.0)
    assert bucket.wait_s(100.0) == pytest.approx(0.1)
    assert bucket.wait_s(50.0) == pytest.approx(0.1)
    assert bucket.wait_s(100.1) == 0.0


def test_a_request_larger_than_the_capacity_is_paid_off_afterwards():
    """1,000 units at 10 a second: the next goes 100 seconds later."""
    bucket = make_bucket(10)
    assert send_times(bucket, 1, units=1000) == [0.0]
    assert bucket.wait_s(0.0) == pytest.approx(100)


def test_a_pause_is_not_caught_up():
    """After a rest the rate goes on evenly, whatever was saved up before."""
    bucket = make_bucket(10)
    send_times(bucket, 1)
    assert bucket.wait_s(5.0) == 0
    bucket.rest_until(30.0)
    assert bucket.wait_s(20.0) == 0
    assert send_times(bucket, 3, start=30.0) == pytest.approx([30.0, 30.1, 30.2])


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 5)), min_size=1, max_size=60),
    st.floats(0.5, 1000),
)
def test_no_window_holds_more_than_its_rate_and_the_capacity(
    sends: list[tuple[int, float]], rate: float
):
    """However requests come; up to the one that was let through with the last unit."""
    bucket, now, times, sums = make_bucket(rate), 0.0, [], [0.0]
    for units, idle_s in sends:
        times += send_times(bucket, 1, units, now + idle_s)
        now = times[-1]
        sums.append(sums[-1] + units)
    for begin, start in enumerate(times):
        for window_s in (0.1, 1.0, 60.0):
            last = bisect.bisect_left(times, start + window_s) - 1
            assert sums[last] - sums[begin] <= rate * (window_s + BURST_S) + 1e-3


# -- what headers declare


@pytest.mark.parametrize(
    ("state", "told"),
    [
        pytest.param(LimitState(), None, id="nothing"),
        pytest.param(LimitState(None, 5, 1), None, id="no limit"),
        pytest.param(LimitState(0, 0, 1), None, id="a limit of nothing"),
        pytest.param(LimitState(3000), HeaderLimit(3000, None, 0), id="only the limit"),
        pytest.param(LimitState(3000, 2990, 0.2), HeaderLimit(3000, 2990, 3000), id="a minute"),
        pytest.param(LimitState(3000, 49, 0.02), HeaderLimit(3000, 49, 50), id="a second"),
        pytest.param(LimitState(3000, 10, 59.8), HeaderLimit(3000, 10, 3000), id="nearly empty"),
        pytest.param(LimitState(3000, 100, None), HeaderLimit(3000, 100, 100), id="no reset"),
        pytest.param(LimitState(3000, 5000, 1), HeaderLimit(3000, 3000, 3000), id="too much left"),
        pytest.param(LimitState(200, 190, 4320), HeaderLimit(10 * 60 / 4320, 190, 200), id="a day"),
    ],
)
def test_headers_are_read_as_a_bucket(state: LimitState, told: HeaderLimit | None):
    """Limit, what is left, and how much there can be; resets of over a minute are a day's."""
    found = read_header(state)
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert found.per_minute == pytest.approx(told.per_minute)
        assert found.remaining == told.remaining
        assert found.depth == pytest.approx(told.depth)


def heard(declared: DeclaredLimit, remaining: float, *, limit: float = 3000, **more: float) -> None:
    reset_s = (limit - remaining) / (limit / 60)
    where = {"elapsed_s": 0.1, "sent_since": 0.0, "now": 1.0, **more}
    declared.hear(LimitState(limit, remaining, reset_s), **where)  # type: ignore[arg-type]


def test_what_is_left_is_used_but_for_a_margin():
    """2,000 left of a minute's 3,000: a quarter second of the rate stays there."""
    declared = DeclaredLimit(None)
    heard(declared, 2000)
    assert declared.wait_s(2000 - 12.5, 1.0) == 0.0
    assert declared.wait_s(2000, 1.0) > 0.2


def test_what_was_sent_since_is_subtracted():
    """It may have arrived after the header was made, or before."""
    declared = DeclaredLimit(None)
    heard(declared, 2000, sent_since=500.0)
    assert declared.wait_s(1500, 1.0) > 0
    assert declared.wait_s(1490, 1.0) == 0.0


def test_a_header_that_fits_changes_nothing():
    """Between its earliest and its latest meaning our own account holds: no drift by noise."""
    declared = DeclaredLimit(None)
    heard(declared, 2000)
    declared.take(300)
    wait_s = declared.wait_s(2000, 1.0)
    heard(declared, 1900, sent_since=250.0, elapsed_s=0.0)
    assert declared.wait_s(2000, 1.0) == wait_s


def test_what_others_used_is_obeyed():
    """The server has less left than we thought."""
    declared = DeclaredLimit(None)
    heard(declared, 2000)
    heard(declared, 100)
    assert declared.wait_s(100, 1.0) > 0


@pytest.mark.parametrize(
    ("option", "kept", "at_once"), [(600, 600, False), (6000, 3000, True)], ids=["lower", "higher"]
)
def test_the_lower_of_option_and_header_wins(option: float, kept: float, at_once: bool):
    """An option that is lower is kept evenly, whatever credit there is."""
    declared = DeclaredLimit(option)
    heard(declared, 3000)
    assert declared.per_minute == kept
    assert declared.from_headers is (kept == 3000)
    declared.take(100)
    assert (declared.wait_s(100, 1.0) == 0.0) is at_once


def test_a_header_that_falls_below_the_option_wins_from_then_on():
    """The server lowered its limit."""
    declared = DeclaredLimit(600)
    heard(declared, 100, limit=300)
    assert declared.per_minute == 300


def test_credit_is_not_trusted_after_refusals():
    """Only where more than a second of it was in use."""
    declared = DeclaredLimit(None)
    heard(declared, 2000)
    assert declared.distrust_credit()
    heard(declared, 2000)
    declared.take(100)
    assert declared.wait_s(1, 1.0) == pytest.approx(2, rel=0.05)
    assert not declared.distrust_credit()


def test_a_limit_of_an_earlier_run_is_kept_until_headers_come():
    """Evenly: what is left is not known."""
    declared = DeclaredLimit(None)
    declared.assume(600)
    assert declared.per_minute == 600
    declared.take(10)
    assert declared.wait_s(1, 1.0) == pytest.approx(1, rel=0.02)
    heard(declared, 3000)
    assert declared.per_minute == 3000


def test_a_correction_costs_at_once_and_comes_back_slowly():
    """At most half a second of the rate comes back, at a tenth of it: servers save up no more."""
    declared = DeclaredLimit(6000)
    rate = 6000 / 60.26
    declared.wait_s(1, 0.0)
    declared.take(1)
    declared.correct(199, 0.0)
    assert declared.wait_s(1, 0.0) == pytest.approx(200 / rate, rel=0.01)
    for _ in range(10):
        declared.take(10)
        declared.correct(-90, 0.0)
    assert declared.wait_s(1, 0.0) == pytest.approx(300 / rate, rel=0.01)
    assert declared.wait_s(1, 1.0) == pytest.approx(300 / rate - 1.1, rel=0.02)
    assert declared.wait_s(1, 10.0) == 0.0


@given(
    st.integers(20, 5000),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.integers(1, 40),
    st.integers(0, 10),
)
@settings(max_examples=25, deadline=None)
def test_no_minute_exceeds_an_option(rpm: int, latency_s: float, concurrency: int, seed: int):
    """Whatever the server says, refuses, or takes its time for."""
    server = SimulatedServer(
        rpm=rpm * 2,
        latency_s=latency_s,
        headers="at admission",
        depth_s=60,
        isolated=0.1,
        seed=seed,
    )
    client = simulate(server, min(2 * rpm, 3000), rpm=rpm, concurrency=concurrency, seed=seed)
    assert client.most_in_a_minute() <= rpm
    assert len(client.done) == min(2 * rpm, 3000)


@given(st.integers(1000, 100_000), st.integers(1, 400), st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_no_minute_exceeds_an_option_for_tokens(tpm: int, largest: int, seed: int):
    """Sizes up to a twentieth of the limit have their room; of larger ones, one may go over."""
    server = SimulatedServer(latency_s=1)
    client = simulate(
        server, 300, tpm=tpm, tokens=lambda r: r.randint(1, largest), concurrency=50, seed=seed
    )
    over = max(0.0, largest - tpm / 20)
    assert client.most_in_a_minute() <= tpm + over + 1e-6
    assert len(client.done) == 300
