"""BS⁻¹ from BERTScore's F1."""

from __future__ import annotations

import pytest

from claimscore.metrics.bs_inverse import BS_INVERSE, bs_inverse
from tests.support.frames import tables, token_row


@pytest.mark.parametrize(
    ("f1", "baseline", "expected"),
    [
        pytest.param(1.0, None, 0.0, id="identical"),
        pytest.param(0.9, None, 10.0, id="raw"),
        pytest.param(0.9, 0.8, 50.0, id="rescaled"),
        pytest.param(0.8, 0.8, 100.0, id="as far as random texts"),
        pytest.param(0.7, 0.8, 150.0, id="further than random texts is not clipped"),
        pytest.param(0.877640, 0.83122575, 72.5, id="the paper's references on roberta-large"),
    ],
)
def test_formula(f1, baseline, expected):
    """100·(1 − F'), F' = (F − b)/(1 − b) where there is a baseline."""
    assert bs_inverse(f1, baseline) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("baseline", [1.0, 1.5, float("nan")])
def test_impossible_baselines_are_refused(baseline):
    """A baseline of 1 or more has no rescaling."""
    with pytest.raises(ValueError, match="below 1"):
        bs_inverse(0.5, baseline)


def test_metric_uses_the_baseline_where_the_model_has_one():
    """Order of the rows is irrelevant; null baseline means the raw F1."""
    chunk = tables(
        [{"id": "x"}, {"id": "y"}], token_scores=[token_row("y", 0.9), token_row("x", 0.9, 0.8)]
    )
    first, second = BS_INVERSE.score(chunk)
    assert (first.id, first.value) == ("x", pytest.approx(50))
    assert (second.id, second.value) == ("y", pytest.approx(10))
    assert first.components == {
        "precision": 0.9,
        "recall": 0.9,
        "f1": 0.9,
        "baseline_f1": 0.8,
        "layer": 6,
    }


def test_scores_of_other_sides_are_not_taken():
    """Only the row of summary_a against summary_b counts."""
    row = token_row("x", 0.9) | {"reference_side": "source"}
    (score,) = BS_INVERSE.score(tables([{"id": "x"}], token_scores=[row]))
    assert (score.value, score.reason) == (None, "no token scores")


@pytest.mark.parametrize(
    ("record", "rows", "failures", "reason"),
    [
        pytest.param({}, [], [], "no token scores", id="no row"),
        pytest.param({}, [None], [], "no token scores", id="null"),
        pytest.param({}, [float("nan")], [], "the BERTScore F1 is not a number", id="nan"),
    ],
)
def test_records_without_a_score_are_null_with_a_reason(record, rows, failures, reason):
    """Whatever is missing is said; no number takes its place."""
    chunk = tables(
        [{"id": "x", **record}],
        token_scores=[token_row("x", value) for value in rows],
        failures=failures,
    )
    (score,) = BS_INVERSE.score(chunk)
    assert (score.value, score.reason) == (None, reason)
