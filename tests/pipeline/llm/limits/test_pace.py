"""A rate with a little credit."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.llm.limits.pace import BURST_S, Pace


def send_times(pace: Pace, n: int, units: float = 1, start: float = 0.0) -> list[float]:
    now, times = start, []
    for _ in range(n):
        while (wait_s := pace.wait_s(units, now)) > 0:
            now += wait_s
        pace.take(units)
        times.append(now)
    return times


def test_the_first_goes_at_once_and_the_others_evenly():
    """No burst at the start: one, then one every tenth of a second."""
    assert send_times(Pace(10), 5) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_idle_time_is_caught_up_for_a_quarter_second_at_most():
    """Whether the task slept late or the machine did for a day."""
    pace = Pace(100)
    send_times(pace, 1)
    times = send_times(pace, 60, start=86_400.0)
    assert sum(t == 86_400.0 for t in times) == BURST_S * 100 + 1


def test_a_clock_that_stands_still_or_goes_back_earns_nothing():
    """And does not hold up what is due already."""
    pace = Pace(10)
    send_times(pace, 1, start=100.0)
    assert pace.wait_s(1, 100.0) == pytest.approx(0.1)
    assert pace.wait_s(1, 50.0) == pytest.approx(0.1)
    assert pace.wait_s(1, 100.1) == 0.0


def test_a_request_larger_than_the_burst_is_paid_off_afterwards():
    """1,000 units at 10 a second: the next goes 100 seconds later."""
    pace = Pace(10)
    assert send_times(pace, 1, units=1000) == [0.0]
    assert pace.wait_s(1, 0.0) == pytest.approx(100)


def test_credit_is_spent_only_where_it_is_there():
    """A bucket of 20: twenty at once, one that is larger when it is full."""
    pace = Pace(10)
    pace.ahead, pace.cap, pace.level = True, 20.0, 20.0
    assert send_times(pace, 21)[-1] == pytest.approx(0.1)
    assert pace.wait_s(500, 0.1) == pytest.approx(2.0)


def test_a_pause_is_not_caught_up():
    """After a rest the rate goes on evenly, whatever was saved up before."""
    pace = Pace(10)
    send_times(pace, 1)
    pace.wait_s(1, 5.0)
    assert pace.level > 0
    pace.rest_until(30.0)
    assert send_times(pace, 3, start=30.0) == pytest.approx([30.0, 30.1, 30.2])


def test_what_was_reserved_for_nothing_comes_back_slowly():
    """Servers do not save up for more than a second: at most half of one, at a tenth faster."""
    pace = Pace(100)
    for _ in range(10):
        pace.take(100)
        pace.correct(-90)
    pace.level = 0.0
    times = send_times(pace, 1300)
    assert sum(t < 1 for t in times) <= 111
    assert times[-1] == pytest.approx((1300 - 50) / 100, abs=0.1)


def test_what_took_more_than_was_reserved_is_paid_at_once():
    """Nothing goes before the debt is paid off."""
    pace = Pace(100)
    pace.take(1)
    pace.correct(200)
    assert pace.wait_s(1, 0.0) == pytest.approx(2.01)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 5)), min_size=1, max_size=60),
    st.floats(0.5, 1000),
)
def test_no_window_holds_more_than_its_rate_and_the_burst(
    sends: list[tuple[int, float]], rate: float
):
    """However requests come; up to the one that was let through with the last unit."""
    pace, now, times, sums = Pace(rate), 0.0, [], [0.0]
    for units, idle_s in sends:
        now += idle_s
        while (wait_s := pace.wait_s(units, now)) > 0:
            now += wait_s
        pace.take(units)
        times.append(now)
        sums.append(sums[-1] + units)
    for begin, start in enumerate(times):
        for window_s in (0.1, 1.0, 60.0):
            last = bisect.bisect_left(times, start + window_s) - 1
            assert sums[last] - sums[begin] <= rate * (window_s + BURST_S) + 1e-3
