"""What workers tell of their work, put together: nothing twice, nobody waited for in vain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.model_stage import QUEUED_TOKENS
from claimscore.pipeline.ray.board import (
    QUIET_S,
    SILENT_S,
    Board,
    Counts,
    Report,
    Step,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board(model_workers=2, clock=clock)


def report(worker: str = "w1", actor: str = "a1", **fields: object) -> Report:
    return Report(worker, actor, "LLM", **fields)


def test_steps_and_notices_are_given_out_once(board: Board) -> None:
    """What the driver has seen is not shown to it again."""
    step = Step(3, "decompose-a", {"claims": 2})
    board.hear(report(steps=[step], notices=[("store", {"notice": "mended"})]), None)
    assert board.look().steps == [step]
    again = board.look()
    assert (again.steps, again.notices) == ([], [])


def test_counts_of_the_dead_stay(board: Board) -> None:
    """A worker that was started again counts from nothing; what it did before was done."""
    board.hear(report("w1", counts=Counts(10, 0.5, {"nli": (4, 2.0)}, (1, 2))), None)
    board.hear(report("w2", counts=Counts(5, 0.25, {"nli": (1, 1.0)}, (0, 5))), None)
    assert board.lost() == ["w1"]
    assert board.lost() == []
    assert board.look().counts == Counts(15, 0.25, {"nli": (5, 3.0)}, (1, 7))


def test_the_next_chunk_is_held_while_too_much_waits(board: Board) -> None:
    """Until a model takes it: by tokens, for each worker that computes."""
    assert not board.hear(report(waiting={1: 2 * QUEUED_TOKENS}), None).hold
    assert board.hear(report(waiting={2: 1}), None).hold
    assert not board.hear(report("m1", "a2", taken=[1]), None).hold


def test_a_chunk_that_was_taken_does_not_wait_again(board: Board) -> None:
    """Reports overtake each other."""
    board.hear(report("m1", "a2", taken=[1]), None)
    assert not board.hear(report(waiting={1: 5 * QUEUED_TOKENS}), None).hold


def test_everybody_hears_of_the_first_error(board: Board) -> None:
    """Who reports it and who does not."""
    board.hear(report(error=("ConfigError", "wrong")), None)
    board.hear(report("w2", "a2", error=("ConfigError", "later")), None)
    assert board.hear(report("w3", "a3"), None).stop == ("ConfigError", "wrong")
    assert board.look().stop == ("ConfigError", "wrong")


def test_idle_is_when_all_who_live_are(board: Board, clock: Clock) -> None:
    """The silent are not waited for; soon after the start some may not have been heard of."""
    board.hear(report("w1", is_idle=True), None)
    assert not board.look().is_idle
    clock.now = QUIET_S + 0.1
    board.hear(report("w2", "a2", open=("chunk 7",)), None)
    assert not board.look().is_idle
    assert board.look().open == ["chunk 7 (LLM)"]
    clock.now += SILENT_S + 0.1
    board.hear(report("w1", is_idle=True), None)
    assert board.look().is_idle


def test_the_end_is_told_with_the_next_report(board: Board) -> None:
    """Workers then fail what waits."""
    assert not board.hear(report(), None).end
    board.is_over = True
    assert board.hear(report(), None).end


passes = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 9), st.just(0.5)))
counts = st.builds(
    Counts,
    st.integers(0, 9),
    st.just(0.25),
    passes,
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)


@given(counts, counts, counts)
def test_counts_add_in_any_order(one: Counts, two: Counts, three: Counts) -> None:
    """Sums do not depend on who reported first."""
    assert one.plus(two) == two.plus(one)
    assert one.plus(two).plus(three) == one.plus(two.plus(three))
    assert one.plus(Counts()) == one._replace(passes=dict(one.passes))
