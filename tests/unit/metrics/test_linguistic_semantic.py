"""LS_Score's formulas and the metric over the tables."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.metrics import load_metric, ls_score
from tests.support.frames import Row, number, tables
from tests.support.shared_data import shared

LOG_PROBS = st.floats(-50, 0)


def vectors(cosine: float) -> tuple[list[float], list[float]]:
    return [2.0, 0.0], [3 * cosine, 3 * math.sqrt(1 - cosine**2)]


def test_golden_scores():
    for case in json.loads(shared("data/ls_score/golden.json").read_text())["cases"]:
        paper = ls_score(case["token_log_probs"], *vectors(case["S_score"]))
        assert paper.linguistic == pytest.approx(
            case["L_score_paper_mean_over_cls_tokens_sep"], abs=2e-5
        )
        assert paper.score == pytest.approx(
            case["LS_score_paper_alpha0.01_beta1_cls_sep_included"], abs=2e-5
        )


@given(st.lists(LOG_PROBS, min_size=1, max_size=20), st.floats(-1, 1))
def test_ranges(values, cosine):
    paper = ls_score(values, *vectors(cosine))
    assert paper.linguistic <= 0
    assert -1 <= paper.semantic <= 1
    assert paper.score <= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "one log-probability"),
        ([[-1]], "one log-probability"),
        ([-1, math.nan], "no number"),
        ([-1, -math.inf], "no number"),
    ],
)
def test_what_is_no_summary_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        ls_score(values, *vectors(0.5))


def test_vectors_must_fit():
    with pytest.raises(ValueError, match="one length"):
        ls_score([-1], [1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="no numbers"):
        ls_score([-1], [math.nan], [1.0])
    assert ls_score([-1], [0.0], [1.0]).semantic == 0


# -- the metric


def rows_of(*cosines: float) -> list[Row]:
    of_summary = {"linguistic": -10.0, "linguistic_inner": -9.0}
    of_summary |= {"summary_tokens": 8.0, "summary_cut": 0.0}
    return [
        number("ls", name, value, ("source", index))
        for index, cosine in enumerate(cosines)
        for name, value in {**of_summary, "semantic": cosine}.items()
    ]


def score(records: list[dict], rows: list[dict]):
    return load_metric("ls-score").score(tables(records, text_scores=rows))


RECORD = {"id": "x", "source": "A document.", "summary": "A summary."}


def test_the_metric():
    (paper,) = score([RECORD], rows_of(0.5))
    assert paper.value == pytest.approx(0.4)
    assert paper.components == {
        "summary_tokens": 8,
        "summary_cut": 0,
        "n_sources": 1,
        "linguistic": -10.0,
        "semantic": 0.5,
        "linguistic_without_special": -9.0,
    }


def test_several_sources_count_by_the_mean_cosine():
    rows = rows_of(0.5, 0.7)
    for order in (rows, rows[::-1]):
        (found,) = score([RECORD | {"source": ["a", "b"]}], order)
        assert found.value == pytest.approx(0.5)
        assert found.components["n_sources"] == 2
