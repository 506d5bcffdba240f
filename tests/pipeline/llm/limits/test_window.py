"""Slow start."""

from __future__ import annotations

import pytest

from claimscore.pipeline.llm.limits.window import FIRST_WINDOW, PATIENCE_S, Window


def test_the_window_doubles_with_every_round_trip():
    """8, 16, 32, 64, and then concurrency alone bounds it."""
    window = Window(128, closed=True)
    for size in (8, 16, 32, 64):
        assert window.size == size
        for _ in range(size):
            window.answered(int(window.size), 0.05, 1.0)
    assert window.is_open


def test_slow_answers_do_not_hold_it_up():
    """It doubles every half second where nothing was refused: refusals are faster."""
    window = Window(128, closed=True)
    in_flight = int(FIRST_WINDOW)
    assert window.wait_s(in_flight, 10.0) == PATIENCE_S
    assert window.wait_s(in_flight, 10.0 + PATIENCE_S) == 0.0
    assert window.size == 2 * FIRST_WINDOW


@pytest.mark.parametrize("event", ["refused", "stalled"])
def test_refusals_and_failures_stop_the_growth(event: str):
    """Half a second from then on."""
    window = Window(128, closed=True)
    window.wait_s(8, 10.0)
    getattr(window, event)(10.4)
    assert window.wait_s(8, 10.6) == pytest.approx(0.3)


def test_a_window_that_is_not_used_does_not_grow():
    """One at a time says nothing of a hundred."""
    window = Window(128, closed=True)
    for i in range(500):
        window.answered(1, 0.05, float(i))
    assert window.size == FIRST_WINDOW


def test_a_round_trip_is_spread():
    """Refusals are heard before everything is on its way."""
    window = Window(128, closed=True)
    window.answered(8, 0.08, 1.0)
    for _ in range(4):
        window.sent(1.0)
    assert window.wait_s(4, 1.0) == pytest.approx(4 * 0.08 / 9 - 0.08 / 4)


def test_a_busy_machine_that_wakes_late_is_not_slowed_down():
    """With a large window what is due comes in groups; a group is sent at once."""
    window = Window(1000, closed=True)
    window.restart(500)
    window.answered(400, 0.1, 1.0)
    sent, now = 0, 1.0
    while now < 2.0:
        now += 0.02  # as long as it takes until it has its turn again
        while window.wait_s(0, now) == 0.0:
            window.sent(now)
            sent += 1
    assert sent == pytest.approx(5000, rel=0.05)


def test_after_a_pause_it_begins_with_few():
    """Two, not a herd."""
    window = Window(128, closed=False)
    assert window.is_open
    window.restart()
    assert window.wait_s(1, 1.0) == 0.0
    assert window.wait_s(2, 1.0) > 0.0
