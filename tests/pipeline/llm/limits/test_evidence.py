"""Telling a limit's refusals from isolated ones."""

from __future__ import annotations

import random

import pytest

from claimscore.pipeline.llm.limits.evidence import Evidence, Verdict


def play(
    evidence: Evidence, outcomes: str, *, start: int = 0, probing: bool = False
) -> Verdict | None:
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
            evidence.lowered(verdict, seq, to=50.0)
    assert len(verdicts) <= 20
    assert sum(verdict.closed for verdict in verdicts) <= 1


def lowered(evidence: Evidence, before: str) -> int:
    """Bring about a verdict after `before`, lower the rate, put it on trial."""
    outcomes = before + "x.x" * 30
    verdict = play(evidence, outcomes)
    assert verdict is not None
    seq = verdict.run.last_seq
    evidence.lowered(verdict, seq, to=10.0)
    return seq


def judged(evidence: Evidence, outcomes: str, start: int) -> str | None:
    """What lowering has brought, once that is known."""
    for seq, outcome in enumerate(outcomes, start + 1):
        if outcome == "x":
            evidence.refused(seq, 0.0, 0.0, probing=False)
        elif (found := evidence.answered(seq)) is not None:
            return found
    return None


OFTEN = ("x" + "." * 11) * 20


def test_a_lower_rate_that_helps_is_kept():
    """No refusals among the next sixty."""
    evidence = Evidence()
    seq = lowered(evidence, "." * 200)
    assert judged(evidence, "." * 60, seq) is None
    assert judged(evidence, ".", seq + 60) == "helped"


def test_requests_are_judged_when_slower_answers_are_there():
    """The first outcomes after lowering are refusals, for these are faster."""
    evidence = Evidence()
    seq = lowered(evidence, "." * 200)
    for refused in (seq + 7, seq + 30):
        evidence.refused(refused, 0.0, 0.0, probing=False)
    assert judged(evidence, "." * 61, seq) == "helped"


def test_a_lower_rate_that_does_not_help_is_lowered_once_more():
    """It may still be too high; if a still lower one helps, that was it."""
    evidence = Evidence()
    seq = lowered(evidence, OFTEN)
    assert judged(evidence, OFTEN, seq) == "doubtful"
    assert evidence.lowered_further(seq + 70) == pytest.approx(1 / 12)
    assert judged(evidence, "." * 61, seq + 70) == "helped"


def in_vain(evidence: Evidence) -> int:
    """Refusals that no rate changes; the last request."""
    seq = lowered(evidence, OFTEN)
    assert judged(evidence, OFTEN, seq) == "doubtful"
    evidence.lowered_further(seq + 70)
    assert judged(evidence, OFTEN, seq + 70) == "in vain"
    return seq + 140


def test_refusals_that_no_rate_changes_count_less_from_then_on():
    """They come of something else: five in a row are chance now, forty are not."""
    evidence = Evidence()
    seq = in_vain(evidence)
    assert play(evidence, "xxxxx", start=seq + 300) is None
    assert play(evidence, "x" * 40, start=seq + 400)


def test_isolated_refusals_that_cease_are_forgotten():
    """After some thousand clean answers the tests are as sharp as before."""
    evidence = Evidence()
    seq = in_vain(evidence)
    play(evidence, "." * 3000, start=seq + 300)
    assert play(evidence, "xxxxx", start=seq + 3300)
