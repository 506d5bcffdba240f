"""Telling a limit's refusals from isolated ones."""

from __future__ import annotations

import random

import pytest

from claimscore.pipeline.llm.limits.evidence import Evidence, Verdict


def play(evidence: Evidence, outcomes: str, *, start: int = 0, probing: bool = False) -> Verdict | None:
    """The first verdict on requests refused (x) and answered (.), in their order."""
    for seq, outcome in enumerate(outcomes, start + 1):
        if outcome == ".":
            evidence.answered(seq)
        else:
            verdict = evidence.refused(seq, seq / 100, 0.0, probing=probing)
            if verdict:
                return verdict
    return None


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        pytest.param("x.x.x", None, id="three of five"),
        pytest.param("." * 100 + "xxx", None, id="three in a row"),
        pytest.param("." * 100 + "xxxxx", "closed", id="five in a row"),
        pytest.param("xx.xx.xx", "closed", id="six of eight"),
        pytest.param("x.." * 20, "crowded", id="every third"),
        pytest.param(("x" + "." * 9) * 20, None, id="every tenth"),
    ],
)
def test_refusals_are_judged_by_how_many_were_sent_meanwhile(outcomes: str, verdict: str | None):
    """Few are isolated, many in a row are a limit."""
    found = play(Evidence(), outcomes)
    assert (found and ("closed" if found.closed else "crowded")) == verdict


def test_while_probing_a_few_are_enough():
    """More than the good rate was tried, and three of twenty were refused: that is it."""
    assert play(Evidence(), "x.........x.......x", probing=True)
    assert play(Evidence(), "x.........x.......x") is None


def test_requests_under_way_count_as_admitted():
    """Refusals are faster than answers: six of a hundred sent are isolated, though no
    answer is there yet."""
    evidence = Evidence()
    assert not any(evidence.refused(seq, 0.0, 0.0, probing=False) for seq in range(5, 100, 17))


def test_isolated_refusals_are_hardly_ever_taken_for_a_limit():
    """5 % at random: not more than once in ten thousand, and never for a closed door."""
    rng, evidence, verdicts, seq = random.Random(1), Evidence(), [], 0
    while seq < 200_000:
        seq += 1
        if rng.random() >= 0.05:
            evidence.answered(seq)
        elif verdict := evidence.refused(seq, 0.0, 0.0, probing=False):
            verdicts.append(verdict)
            evidence.lowered(verdict, seq, on_trial=True)
    assert len(verdicts) <= 20
    assert sum(verdict.closed for verdict in verdicts) <= 1


def lowered(evidence: Evidence, before: str) -> int:
    """Bring about a verdict after `before`, lower the rate, put it on trial."""
    outcomes = before + "x.x" * 30
    verdict = play(evidence, outcomes)
    assert verdict is not None
    seq = verdict.run.last_seq
    evidence.lowered(verdict, seq, on_trial=True)
    return seq


def judged(evidence: Evidence, outcomes: str, start: int) -> bool | None:
    for seq, outcome in enumerate(outcomes, start + 1):
        if outcome == "x":
            evidence.refused(seq, 0.0, 0.0, probing=False)
        elif (in_vain := evidence.answered(seq)) is not None:
            return in_vain
    return None


def test_a_lower_rate_that_helps_is_kept():
    """No refusals among the next sixty."""
    evidence = Evidence()
    seq = lowered(evidence, "." * 200)
    assert judged(evidence, "." * 61, seq) is False


def test_a_lower_rate_that_does_not_help_was_lowered_in_vain():
    """As many refusals as before: they come of something else, and count less from now on."""
    evidence = Evidence()
    often = ("x" + "." * 11) * 20
    seq = lowered(evidence, often)
    assert judged(evidence, often, seq) is True
    assert play(evidence, "xxxxx", start=seq + 300) is None
    assert play(evidence, "x" * 40, start=seq + 400)


def test_isolated_refusals_that_cease_are_forgotten():
    """After a thousand clean answers the tests are as sharp as before."""
    evidence = Evidence()
    often = ("x" + "." * 11) * 20
    seq = lowered(evidence, often)
    judged(evidence, often, seq)
    play(evidence, "." * 3000, start=seq + 300)
    assert play(evidence, "xxxxx", start=seq + 3300)
