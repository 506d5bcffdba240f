"""The judge's grades as scores: expected values, means, and why there is none."""

from typing import Any

import pytest

from claimscore.metrics import load_metric
from claimscore.metrics.base import Score
from claimscore.metrics.llm_judge import DIMENSIONS, expected_score
from tests.support.frames import Row, answer, tables

RECORD = {"id": "x", "summary": "S.", "source": "T."}


def graded(
    score: int, probabilities: dict[str, float] | None = None, *, index: int, record: str = "x"
) -> Row:
    said = {"score": score, "probabilities": probabilities}
    return answer("judge", "summary", index, said, id=record)


def all_graded(*scores: int, record: str = "x") -> list[dict[str, object]]:
    return [graded(score, index=index, record=record) for index, score in enumerate(scores)]


def scores(spec: str, answers: Any, records: Any = (RECORD,), **more: Any) -> list[Score]:
    return load_metric(spec).score(tables(records, llm_answers=answers, **more))


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ({"4": 1.0}, 4.0),
        ({"1": 0.5, "5": 0.5}, 3.0),
        ({"3": 0.25, "4": 0.5, "5": 0.25}, 4.0),
        ({"4": 0.6, "5": 0.2}, 4.25),
        ({"1": 0.2, "2": 0.2, "3": 0.2, "4": 0.2, "5": 0.2}, 3.0),
    ],
)
def test_the_expected_value_is_over_the_scores_alone(probabilities, expected):
    """G-Eval, eq. 1; what the model gave to no score is left out of the sum."""
    assert expected_score(probabilities) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("nothing", [{}, {"4": 0.0}])
def test_no_probability_has_no_expected_value(nothing):
    with pytest.raises(ValueError, match="sum to nothing"):
        expected_score(nothing)


def test_overall_is_the_mean_of_four():
    rows = [*all_graded(1, 2, 3, 4, record="y"), *all_graded(5, 5, 5, 4)][::-1]
    first, second = scores("llm-judge", rows, [RECORD, {**RECORD, "id": "y"}])
    assert (first.id, first.value, second.id, second.value) == ("x", 4.75, "y", 2.5)
    assert list(first.components) == list(DIMENSIONS)


@pytest.mark.parametrize(("index", "dimension"), list(enumerate(DIMENSIONS)))
def test_one_dimension_is_its_own_grade(index, dimension):
    rows = [graded(2, index=index)]
    failures = [
        {"id": "x", "stage": "judge", "side": "summary", "index": other, "message": "no"}
        for other in range(4)
        if other != index
    ]
    (score,) = scores(f"llm-judge:dimension={dimension}", rows, failures=failures)
    assert score.value == 2.0


@pytest.mark.parametrize(
    ("expectation", "value", "by"),
    [("auto", 4.25, "expectation"), ("required", 4.25, "expectation"), ("off", 4.0, "score")],
)
def test_the_option_says_which_of_both_counts(expectation, value, by):
    rows = [graded(4, {"4": 0.6, "5": 0.2}, index=2)]
    (score,) = scores(f"llm-judge:dimension=fluency:expectation={expectation}", rows)
    assert score.value == pytest.approx(value)
    assert score.components["fluency"]["by"] == by
    assert score.components["fluency"]["score"] == 4
