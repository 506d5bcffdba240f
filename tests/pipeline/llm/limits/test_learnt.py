"""The rate that nobody told."""

from __future__ import annotations

import pytest

from claimscore.pipeline.llm.limits.evidence import Run
from claimscore.pipeline.llm.limits.learnt import LearntRate


def run(first: tuple[int, float], last: tuple[int, float], refused: int) -> Run:
    found = Run(*first)
    found.last_seq, found.last_at = last
    found.refused = refused
    return found


def limited(learnt: LearntRate, found: Run, admitted_per_s: float = 100.0) -> bool:
    return learnt.limited(found, learnt.rate, admitted_per_s=admitted_per_s, feedback_s=0.02)


def send_for(learnt: LearntRate, begin: float, seconds: float) -> list[float]:
    """When it lets requests go that always wait."""
    now, times = begin, []
    while now < begin + seconds:
        wait_s = learnt.wait_s(now)
        if wait_s > 0:
            now += wait_s
        else:
            learnt.take()
            times.append(now)
    return times


def test_nothing_is_bounded_before_there_is_evidence():
    """No rate, no waiting."""
    learnt = LearntRate()
    assert learnt.rate is None
    assert learnt.wait_s(0.0) == 0.0


def test_what_got_through_between_refusals_is_the_limit():
    """20 refused of 120 in two seconds: 50 a second, and a little less at first."""
    learnt = LearntRate()
    assert limited(learnt, run((1, 0.0), (121, 2.0), 21))
    assert learnt.good == pytest.approx(50, rel=0.11)
    assert learnt.rate == pytest.approx(0.95 * learnt.good)


def test_without_a_measure_it_searches_upwards():
    """All refused: from far below what was let through, doubling."""
    learnt = LearntRate()
    assert not limited(learnt, run((50, 0.1), (58, 0.1), 9), admitted_per_s=400)
    assert learnt.rate == 50
    send_for(learnt, 1.0, 1.0)
    assert learnt.rate == pytest.approx(50 * 2**4, rel=0.2)


def test_the_search_ends_with_what_got_through_meanwhile():
    """From one empty bucket to the next: 150 admitted in 3 seconds."""
    learnt = LearntRate()
    limited(learnt, run((50, 0.0), (58, 0.0), 9))
    for _ in range(3):
        learnt.refused()
    limited(learnt, run((200, 2.9), (211, 3.0), 3))
    assert learnt.good == pytest.approx(50)


def test_the_rate_stays_near_what_was_measured_then_grows_faster_and_faster():
    """Below 1.02 times it for two periods, beyond twice it after less than five."""
    learnt = LearntRate(50.0)
    send_for(learnt, 0.0, 10.0)
    assert 0.97 * 50 <= learnt.rate <= 1.02 * 50
    send_for(learnt, 10.0, 12.0)
    assert learnt.rate >= 2 * 50
    assert learnt.probed(learnt.rate)


def test_what_was_saved_up_is_not_sent_after_lowering():
    """The bucket is empty at that moment."""
    learnt = LearntRate(50.0)
    learnt.wait_s(0.0)
    learnt.wait_s(10.0)
    limited(learnt, run((1, 8.0), (121, 10.0), 21))
    assert len(send_for(learnt, 10.0, 0.05)) <= 3


def test_idle_time_does_not_raise_the_rate():
    """What nobody wanted was not tried."""
    learnt = LearntRate(50.0)
    for i in range(1000):
        learnt.wait_s(float(i))
        learnt.take()
    assert learnt.rate <= 50


def test_lowering_in_vain_is_undone():
    """Several at once, if none of them was known to be right."""
    learnt = LearntRate()
    limited(learnt, run((1, 0.0), (121, 2.0), 21))
    limited(learnt, run((130, 2.2), (200, 4.0), 20))
    learnt.undo()
    assert learnt.rate is None


def test_a_door_that_closes_once_does_not_cost_the_rate():
    """All refused after a good rate was known: the same rate again, and only then a search."""
    learnt = LearntRate(50.0)
    assert not limited(learnt, run((100, 2.0), (105, 2.1), 6))
    assert learnt.good == 50
    assert not limited(learnt, run((110, 3.0), (115, 3.1), 6))
    assert learnt.good is None
    assert learnt.rate == pytest.approx(0.95 * 50 / 4)
