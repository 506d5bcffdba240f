"""The tasks that share the table `llm_answers`: judge, questions, answers."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ParseError
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import SideText, TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.judge import score_probabilities
from claimscore.tables import LLM_ANSWERS
from claimscore.types import TokenLogprob

RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2", "r3"],
        "summary": ["Room is clean.", "Bar is loud.", " "],
        "sources": [["Room is clean.", "Pool is warm."], [" "], ["Bar is loud."]],
    }
)


def given(*sides: str, **tables: pl.DataFrame) -> TaskInput:
    return TaskInput(side_texts(RECORDS, sides), "sentence", tables, RECORDS)


def tokens(*texts: str, **top: float) -> list[TokenLogprob]:
    """Tokens of an answer; the probabilities stand at the one that is the digit."""
    others = tuple((name.replace("_", " "), math.log(p)) for name, p in top.items())
    return [
        TokenLogprob(text, math.log(0.5), others if any(c.isdigit() for c in text) else ())
        for text in texts
    ]


def test_judge_asks_four_questions_about_each_summary_with_a_source() -> None:
    """Blank texts ask nothing; several sources are one, a blank line between them."""
    units = TASKS["judge"].units(given("summary"))
    assert [(unit.id, unit.sentence_index, unit.more["dimension"]) for unit in units] == [
        ("r1", 0, "coherence"),
        ("r1", 1, "consistency"),
        ("r1", 2, "fluency"),
        ("r1", 3, "relevance"),
    ]
    assert {unit.more["source"] for unit in units} == {"Room is clean.\n\nPool is warm."}


@pytest.mark.parametrize("score", [0, 6, -1, 50])
def test_a_grade_beyond_the_scale_is_no_answer(score: int) -> None:
    """It is asked for again."""
    with pytest.raises(ParseError, match=f"from 1 to 5, not {score}"):
        TASKS["judge"].check({"score": score})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            tokens('{"', "score", '":', " ", "4", "}", **{"4": 0.5, "5": 0.25, "x": 0.25}),
            {"4": 0.5, "5": 0.25},
            id="a digit of its own",
        ),
        pytest.param(
            tokens('{"score": ', "4", "}", **{"4": 0.5, "_4": 0.125, "3": 0.25}),
            {"3": 0.25, "4": 0.625},
            id="two tokens say the same",
        ),
        pytest.param(
            tokens('{"score":', " 4}", **{"_4}": 0.5, "_5}": 0.5}),
            {"4": 0.5, "5": 0.5},
            id="signs around it",
        ),
        pytest.param(tokens('{"score": ', "4", "}"), {"4": 0.5}, id="no others"),
        pytest.param(
            tokens('{"score": ', "4", "}", **{"44": 0.3, "4.": 0.1, "0": 0.1, "9": 0.1}),
            {"4": 0.5},
            id="what is no score",
        ),
        pytest.param(
            tokens('{"score": ', "4", "}", "<|im_end|>", **{"4": 0.5}),
            {"4": 0.5},
            id="more than the text",
        ),
        pytest.param(tokens('{"score": ', "3", "}"), None, id="of another answer"),
        pytest.param(tokens('{"sc', 'ore": 4}'), None, id="not a token of its own"),
        pytest.param([], None, id="none"),
    ],
)
def test_probabilities_are_those_at_the_place_of_the_score(
    found: list[TokenLogprob], expected: dict[str, float] | None
) -> None:
    """By score; None where they cannot be told."""
    assert score_probabilities(4, found) == (expected and pytest.approx(expected))


def test_questions_are_asked_text_by_text_and_numbered_through() -> None:
    """Two sources are two requests; a blank one is none."""
    task = TASKS["questions"]
    units = task.units(given("summary", "source"))
    assert [(unit.id, unit.side, unit.text) for unit in units] == [
        ("r1", "summary", "Room is clean."),
        ("r1", "source", "Room is clean."),
        ("r1", "source", "Pool is warm."),
        ("r2", "summary", "Bar is loud."),
        ("r3", "source", "Bar is loud."),
    ]
    answer = {"questions": [{"question": " What? ", "answer": " é. "}] * 2}
    assert task.join is not None
    rows = task.join([row for unit in units[:3] for row in task.rows(unit, answer)])
    assert [(row["side"], row["index"]) for row in rows] == [
        *(("summary", 0), ("summary", 1)),
        *(("source", 0), ("source", 1), ("source", 2), ("source", 3)),
    ]
    assert {(row["question"], row["answer"]) for row in rows} == {("What?", '{"answer": "é."}')}


def asked(record: str, side: str, *questions: str, task: str = "questions") -> list[dict[str, Any]]:
    return [
        {"id": record, "task": task, "side": side, "index": index, "question": question}
        for index, question in enumerate(questions)
    ]


def test_each_question_is_asked_of_the_other_text() -> None:
    """Of its own sides only, not of a blank text, and nothing but questions is asked."""
    frame = LLM_ANSWERS.frame(
        [
            *asked("r1", "summary", "Q0?", "Q1?"),
            *asked("r1", "source", "Q2?"),
            *asked("r2", "summary", "Q3?"),
            *asked("r3", "source", "Q4?"),
            *asked("r1", "summary", "coherence", task="judge"),
        ]
    )
    units = TASKS["answers"].units(given("summary", "source", llm_answers=frame))
    assert [(u.id, u.side, u.sentence_index, u.more["question"], u.text) for u in units] == [
        ("r1", "summary", 0, "Q0?", "Room is clean.\n\nPool is warm."),
        ("r1", "summary", 1, "Q1?", "Room is clean.\n\nPool is warm."),
        ("r1", "source", 0, "Q2?", "Room is clean."),
    ]
    only = TASKS["answers"].units(given("source", llm_answers=frame))
    assert [unit.more["question"] for unit in only] == ["Q2?"]


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("questions", {"questions": [{"question": "", "answer": "x"}]}),
        ("questions", {"questions": [{"question": "x", "answer": "\n"}]}),
        ("answers", {"answerable": True, "answer": " "}),
    ],
)
def test_an_answer_that_says_nothing_is_refused(task: str, answer: dict[str, Any]) -> None:
    """No text to ask about, and no answer, are said otherwise."""
    with pytest.raises(ParseError, match="empty"):
        TASKS[task].check(answer)
    TASKS["questions"].check({"questions": []})
    TASKS["answers"].check({"answerable": False, "answer": ""})


def test_what_is_not_answerable_has_no_answer() -> None:
    """Whatever the model wrote beside it."""
    unit = Unit("r1", "summary", "t", "t", 3, more={"question": "Q?"})
    for answerable, expected in ((False, None), (True, "warm")):
        (row,) = TASKS["answers"].rows(unit, {"answerable": answerable, "answer": " warm "})
        assert json.loads(row["answer"]) == {"answer": expected}
        assert (row["index"], row["question"]) == (3, "Q?")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["summary", "source"], {"judge": 1, "questions": 2, "answers": 2}),
        (["summary", "sources"], {"judge": 1, "questions": 2, "answers": 2}),
        (["summary"], {"judge": 0, "questions": 1, "answers": 0}),
        (["summary_a", "summary_b"], {"judge": 0, "questions": 0, "answers": 0}),
    ],
)
def test_the_sides_that_can_be_asked_about(columns: list[str], expected: dict[str, int]) -> None:
    """A grade and an answer need both texts."""
    assert {name: len(TASKS[name].sides(columns)) for name in expected} == expected


def test_a_guess_of_questions_is_one_a_sentence_up_to_twelve() -> None:
    """What an estimate counts with."""
    guess = TASKS["questions"].guess
    assert guess is not None
    for n, expected in ((1, 1), (5, 5), (30, 12)):
        text = " ".join(f"Room {i} is clean." for i in range(n))
        assert len(guess(Unit("r", "summary", text, text))["questions"]) == expected
    assert (
        TASKS["questions"].units(TaskInput([SideText("r", "summary", "\n")], "sentence", {})) == []
    )
