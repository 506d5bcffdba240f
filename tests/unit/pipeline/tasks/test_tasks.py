"""The tasks as pure functions: texts -> units, answers -> rows."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ParseError
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import (
    SideText,
    TaskInput,
    Unit,
    side_texts,
    value_probabilities,
)
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.tables import CLAIMS, LLM_ANSWERS
from claimscore.types import TokenLogprob

RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2", "r3"],
        "summary": ["Room is clean.", "Bar is loud.", " "],
        "sources": [["Room is clean.", "Pool is warm."], [" "], ["Bar is loud."]],
    }
)
BOTH = "Room is clean.\n\nPool is warm."


def given(*sides: str, **tables: pl.DataFrame) -> TaskInput:
    return TaskInput(side_texts(RECORDS, sides), "sentence", tables, RECORDS)


def test_texts_come_record_by_record_and_side_by_side() -> None:
    pairs = pl.DataFrame({"id": ["r1", "r2"], "summary_a": ["x", ""], "summary_b": ["y", None]})
    assert side_texts(pairs, ("a", "b")) == [("r1", "a", "x"), ("r1", "b", "y"), ("r2", "a", "")]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["summary", "source"], {"facts": 2, "judge": 1, "questions": 2, "answers": 2}),
        (["summary", "sources"], {"facts": 2, "judge": 1, "questions": 2, "answers": 2}),
        (["summary"], {"decompose": 1, "judge": 0, "questions": 1, "answers": 0}),
        (["summary_a", "summary_b"], {"decompose": 2, "judge": 0, "questions": 0, "answers": 0}),
        (["summary_a", "sources"], {"decompose": 1, "facts": 2, "judge": 0}),
    ],
)
def test_the_sides_that_can_be_asked_about(columns: list[str], expected: dict[str, int]) -> None:
    """A grade and an answer need both texts."""
    assert {name: len(TASKS[name].sides(columns)) for name in expected} == expected


# -- units


@pytest.mark.parametrize("task", ["decompose", "paraphrase"])
def test_a_sentence_or_a_whole_text_is_asked_about(task: str) -> None:
    texts = [SideText("r1", "a", "It is warm. It is loud."), SideText("r2", "a", " \n")]
    whole = Unit("r1", "a", texts[0].text, texts[0].text)
    assert TASKS[task].units(TaskInput(texts, "summary", {})) == [whole]
    assert TASKS[task].units(TaskInput(texts, "sentence", {})) == [
        dataclasses.replace(whole, text=sentence, sentence_index=index)
        for index, sentence in enumerate(("It is warm.", "It is loud."))
    ]


def test_negate_asks_about_every_claim_of_its_sides() -> None:
    claim = {"id": "r1", "sentence_index": 0, "claim_index": 0}
    rows = [{**claim, "side": "summary", "text": "warm"}, {**claim, "side": "b", "text": "cold"}]
    units = TASKS["negate"].units(given("summary", claims=CLAIMS.frame(rows)))
    assert units == [Unit("r1", "summary", "warm", "Room is clean.", 0, 0)]


def test_judge_asks_four_questions_about_each_summary_with_a_source() -> None:
    """Blank texts ask nothing; several sources are one, a blank line between them."""
    units = TASKS["judge"].units(given("summary"))
    dimensions = ("coherence", "consistency", "fluency", "relevance")
    assert [(unit.id, unit.sentence_index, unit.more) for unit in units] == [
        ("r1", n, {"dimension": name, "source": BOTH}) for n, name in enumerate(dimensions)
    ]


@pytest.mark.parametrize("task", ["questions", "facts"])
def test_whole_texts_are_asked_about_one_by_one(task: str) -> None:
    units = TASKS[task].units(given("summary", "source"))
    assert [(unit.id, unit.side, unit.text) for unit in units] == [
        ("r1", "summary", "Room is clean."),
        ("r1", "source", "Room is clean."),
        ("r1", "source", "Pool is warm."),
        ("r2", "summary", "Bar is loud."),
        ("r3", "source", "Bar is loud."),
    ]


def test_each_question_is_asked_of_the_other_text() -> None:
    """Of its own sides only, not of a blank text, and nothing but questions is asked."""

    def asked(record: str, side: str, *texts: str, task: str = "questions") -> list[dict[str, Any]]:
        return [
            {"id": record, "task": task, "side": side, "index": index, "question": text}
            for index, text in enumerate(texts)
        ]

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
        ("r1", "summary", 0, "Q0?", BOTH),
        ("r1", "summary", 1, "Q1?", BOTH),
        ("r1", "source", 0, "Q2?", "Room is clean."),
    ]
    only = TASKS["answers"].units(given("source", llm_answers=frame))
    assert [unit.more["question"] for unit in only] == ["Q2?"]


# -- answers


@pytest.mark.parametrize(
    ("task", "answer", "message"),
    [
        ("decompose", {"claims": ["Fine.", " "]}, "empty"),
        ("paraphrase", {"paraphrase": "\n"}, "empty"),
        ("negate", {"negation": ""}, "empty"),
        ("facts", {"facts": [{"subject": "", "description": "x"}]}, "empty"),
        ("facts", {"facts": [{"subject": "x", "description": " "}]}, "empty"),
        ("questions", {"questions": [{"question": "", "answer": "x"}]}, "empty"),
        ("questions", {"questions": [{"question": "x", "answer": "\n"}]}, "empty"),
        ("answers", {"answerable": True, "answer": " "}, "empty"),
        ("judge", {"score": 0}, "from 1 to 5, not 0"),
        ("judge", {"score": 6}, "from 1 to 5, not 6"),
    ],
)
def test_an_answer_of_the_right_type_that_says_nothing_is_refused(
    task: str, answer: dict[str, Any], message: str
) -> None:
    """It becomes a new sample, then a failure row; never an empty claim in a table."""
    with pytest.raises(ParseError, match=message):
        TASKS[task].check(answer)


def test_an_answer_may_have_nothing_to_say() -> None:
    """An empty list is an answer, not a failure; what is not answerable has no answer, whatever
    the model wrote beside it."""
    TASKS["decompose"].check({"claims": []})
    assert TASKS["decompose"].rows(Unit("r", "a", "Wow!", "Wow!", 0), {"claims": []}) == []
    TASKS["questions"].check({"questions": []})
    TASKS["answers"].check({"answerable": False, "answer": ""})
    unit = Unit("r1", "summary", "t", "t", 3, more={"question": "Q?"})
    for answerable, expected in ((False, None), (True, "warm")):
        (row,) = TASKS["answers"].rows(unit, {"answerable": answerable, "answer": " warm "})
        assert json.loads(row["answer"]) == {"answer": expected}
        assert (row["index"], row["question"]) == (3, "Q?")


def tokens(*texts: str, **top: float) -> list[TokenLogprob]:
    """Tokens of an answer; the probabilities stand at the one that is the digit."""
    others = tuple((name.replace("_", " "), math.log(p)) for name, p in top.items())
    return [
        TokenLogprob(text, math.log(0.5), others if any(c.isdigit() for c in text) else ())
        for text in texts
    ]


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
        pytest.param(
            tokens('{"score": ', "4", "}", "<|im_end|>", **{"44": 0.3, "4.": 0.1, "0": 0.1}),
            {"4": 0.5},
            id="what is no score",
        ),
        pytest.param(tokens('{"score": ', "3", "}"), None, id="of another answer"),
        pytest.param(tokens('{"sc', 'ore": 4}'), None, id="not a token of its own"),
        pytest.param([], None, id="none"),
    ],
)
def test_probabilities_are_those_at_the_place_of_the_score(
    found: list[TokenLogprob], expected: dict[str, float] | None
) -> None:
    probabilities = value_probabilities("score", list("12345"), "4", found)
    assert probabilities == (expected and pytest.approx(expected))


# -- rows


def test_decompose_makes_one_row_a_claim() -> None:
    unit = Unit("r1", "a", "It is warm and loud.", "...", sentence_index=3)
    rows = TASKS["decompose"].rows(unit, {"claims": ["It is warm. ", "It is loud."]})
    assert [(row["claim_index"], row["text"], row["sentence_index"]) for row in rows] == [
        (0, "It is warm.", 3),
        (1, "It is loud.", 3),
    ]
    assert {row["sentence"] for row in rows} == {"It is warm and loud."}


def test_the_negated_claims_of_a_sentence_are_joined_again() -> None:
    """One row of level `sentence` follows the claims of each sentence, for each sample by itself,
    with all their words."""
    task = TASKS["negate"]
    rows = [
        {**row, "sample": sample}
        for sentence, claim, text in ((0, 0, "not warm"), (0, 1, "not big"), (1, 0, "no hotel"))
        for sample in (0, 1)
        for row in task.rows(
            Unit("r1", "a", "...", "...", sentence, claim),
            {"negation": f"Room {sample} is {text}."},
        )
    ]
    assert task.join is not None
    joined = task.join(rows)
    assert [(row["level"], row["sentence_index"], row["sample"]) for row in joined] == [
        *(("claim", 0, 0), ("claim", 0, 0), ("sentence", 0, 0)),
        *(("claim", 0, 1), ("claim", 0, 1), ("sentence", 0, 1)),
        *(("claim", 1, 0), ("sentence", 1, 0), ("claim", 1, 1), ("sentence", 1, 1)),
    ]
    assert all(words in joined[2]["text"] for words in ("Room 0", "not warm", "not big"))
    assert joined[2]["claim_index"] is None


@pytest.mark.parametrize(
    ("task", "columns", "texts"),
    [
        ("facts", ("subject", "description"), ("Pool", "é")),
        ("questions", ("question", "answer"), ("Pool", '{"answer": "é"}')),
    ],
)
def test_rows_of_several_texts_are_numbered_through(
    task: str, columns: tuple[str, str], texts: tuple[str, str]
) -> None:
    """The index is the position among all rows of a side; nothing is de-duplicated."""
    answer = {task: [dict(zip(columns, (" Pool ", "é\n"), strict=True))] * 2}
    sides = ("source", "source", "summary")
    made = [row for side in sides for row in TASKS[task].rows(Unit("r1", side, "t", "t"), answer)]
    join = TASKS[task].join
    assert join is not None
    rows = join(made)
    assert [(row["side"], row["index"]) for row in rows] == [
        *(("source", n) for n in range(4)),
        *(("summary", n) for n in range(2)),
    ]
    assert {tuple(row[name] for name in columns) for row in rows} == {texts}


def test_sentences_can_stand_in_for_claims() -> None:
    """`--units sentences`: the claims table without a question, and without provenance."""
    frame = sentences_as_claims([SideText("r1", "a", "One is here. Two is there.")])
    assert frame["text"].to_list() == ["One is here.", "Two is there."]
    assert frame["sentence_index"].to_list() == [0, 1]
    assert frame["request_key"].null_count() == 2


def test_a_guess_of_questions_is_one_a_sentence_up_to_twelve() -> None:
    guess = TASKS["questions"].guess
    assert guess is not None
    for n, expected in ((5, 5), (30, 12)):
        text = " ".join(f"Room {i} is clean." for i in range(n))
        assert len(guess(Unit("r", "summary", text, text))["questions"]) == expected


@pytest.mark.parametrize("name", list(TASKS))
def test_every_tasks_rows_fit_its_table(name: str) -> None:
    answers = {
        "decompose": {"claims": ["a"]},
        "paraphrase": {"paraphrase": "a"},
        "negate": {"negation": "a"},
        "facts": {"facts": [{"subject": "a", "description": "b"}]},
        "judge": {"score": 4, "probabilities": None},
        "questions": {"questions": [{"question": "a?", "answer": "b"}]},
        "answers": {"answerable": True, "answer": "b"},
        "verify": {"verdict": "supported", "evidence": "x", "probabilities": {"supported": 1.0}},
    }
    task = TASKS[name]
    more = dict.fromkeys(task.fields, "x")
    rows = task.rows(Unit("r1", "summary", "t", "t", 0, 0, more, (0, 0, 0)), answers[name])
    assert task.table.frame(rows).height == 1
    assert set(rows[0]) <= set(task.table.schema)
