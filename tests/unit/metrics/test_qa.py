"""Answers in common: the token F1 of SQuAD, and the scores that are made of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.metrics import load_metric
from claimscore.metrics.base import Score
from claimscore.metrics.qa import answer_tokens, token_f1
from tests.support.frames import Row, answer, tables

RECORD = {"id": "x", "summary": "S.", "source": "T."}

answers = st.text(st.sampled_from("abct he.,!Ü-'\n"), max_size=20)


@pytest.mark.parametrize(
    ("expected", "given_answer", "f1"),
    [
        pytest.param("42", "42", 1.0, id="equal"),
        pytest.param("The Eiffel Tower", "eiffel tower!", 1.0, id="normalised"),
        pytest.param("the heated pool", "a pool", 2 / 3, id="one of two"),
        pytest.param("in July 2020", "July", 0.5, id="one of three"),
        pytest.param("very very good", "very good", 0.8, id="counts matter"),
        pytest.param("clean", "dirty", 0.0, id="another"),
        pytest.param("the", "an", 1.0, id="nothing left of both"),
        pytest.param("the", "pool", 0.0, id="nothing left of one"),
        pytest.param("don't", "dont", 1.0, id="punctuation inside"),
        pytest.param("theatre", "theater", 0.0, id="articles are whole words"),
    ],
)
def test_token_f1_is_squads(expected, given_answer, f1):
    """2·shared / (n + m) over normalised words (SQuAD's evaluation script)."""
    assert token_f1(expected, given_answer) == pytest.approx(f1)


@given(answers, answers)
def test_token_f1_is_symmetric_and_bounded(first, second):
    value = token_f1(first, second)
    assert value == token_f1(second, first)
    assert 0 <= value <= 1
    assert (value == 1) == (sorted(answer_tokens(first)) == sorted(answer_tokens(second)))


def rows(side: str, *pairs: tuple[str, str | None]) -> list[Row]:
    """Questions of one side: what is expected, and what the other text says."""
    return [
        answer(task, side, index, {"answer": said})
        for index, pair in enumerate(pairs)
        for task, said in zip(("questions", "answers"), pair, strict=True)
    ]


def scores(spec: str, answers: Any, records: Any = (RECORD,), **more: Any) -> list[Score]:
    return load_metric(spec).score(tables(records, llm_answers=answers, **more))


BOTH = [
    *rows("summary", ("clean pool", "pool"), ("42", None)),
    *rows("source", ("clean", "clean"), ("July", "May"), ("9", "9"), ("x", None)),
]


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("qa:value=precision", (2 / 3 + 0) / 2),
        ("qa:value=recall", 0.5),
        ("qa", 2 * (1 / 3) * 0.5 / (1 / 3 + 0.5)),
        ("qa:value=recall:overlap=exact", 0.5),
        ("qa:value=precision:overlap=exact", 0),
        ("qa:value=recall:overlap=answered", 0.75),
        ("qa:value=precision:unanswered=left_out", 2 / 3),
        ("qa:value=recall:unanswered=left_out", 2 / 3),
    ],
)
def test_scores_are_means_over_questions(spec, value):
    """Unanswerable counts 0; the order of the rows does not matter."""
    for given_rows in (BOTH, BOTH[::-1]):
        (score,) = scores(spec, given_rows)
        assert score.value == pytest.approx(value)


def test_components_name_the_questions_that_failed():
    (score,) = scores("qa", BOTH)
    assert score.components["precision_f1"] == [pytest.approx(2 / 3), 0.0]
    assert score.components["failed"] == [
        {"from": "summary", "question": "Q1?", "expected": "42", "given": None},
        {"from": "source", "question": "Q1?", "expected": "July", "given": "May"},
        {"from": "source", "question": "Q3?", "expected": "x", "given": None},
    ]


def test_no_answer_at_all_is_no_score_where_such_questions_are_left_out():
    unanswered = rows("summary", ("42", None))
    (score,) = scores("qa:value=precision:unanswered=left_out", unanswered)
    assert (score.value, score.reason) == (None, "no question from summary has an answer")


def failure(stage: str, side: str) -> dict[str, object]:
    return {"id": "x", "stage": stage, "side": side, "index": 0, "message": "cut off"}


def test_a_failure_on_the_other_side_does_not_concern_precision():
    failures = [failure("answers", "source"), failure("questions", "source"), failure("nli", "a")]
    (score,) = scores("qa:value=precision", BOTH, failures=failures)
    assert score.value == pytest.approx(1 / 3)
