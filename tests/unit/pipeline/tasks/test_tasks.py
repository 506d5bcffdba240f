"""The tasks as pure functions: texts -> units, answers -> rows."""

from __future__ import annotations

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
    sides_and_source_in,
    sides_in,
)
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.tables import CLAIMS

RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2"],
        "summary_a": ["The pool is warm. The bar is loud.", ""],
        "summary_b": ["No pool.", None],
        "sources": [["Review one.", "Review two."], []],
    }
)


def given(
    texts: list[SideText], granularity: Any = "sentence", **tables: pl.DataFrame
) -> TaskInput:
    return TaskInput(texts, granularity, tables)


def test_texts_come_record_by_record_and_side_by_side() -> None:
    """A missing text has no entry; an empty one has, so that a metric can say why."""
    assert side_texts(RECORDS, ("a", "b")) == [
        SideText("r1", "a", "The pool is warm. The bar is loud."),
        SideText("r1", "b", "No pool."),
        SideText("r2", "a", ""),
    ]


def test_several_sources_are_several_texts_of_one_side() -> None:
    """FactSim reads all reviews of a product."""
    texts = side_texts(RECORDS, ("source",))
    assert [(item.side, item.text) for item in texts] == [
        ("source", "Review one."),
        ("source", "Review two."),
    ]


def test_the_sides_are_those_the_records_have() -> None:
    """Which columns are there decides which sides a task can be asked for."""
    assert sides_in(RECORDS.columns) == ("a", "b")
    assert sides_and_source_in(RECORDS.columns) == ("a", "b", "source")


def test_decompose_asks_sentence_by_sentence() -> None:
    """Each sentence its own question, with its position and the whole text."""
    text = "The pool is warm. The bar is loud."
    units = TASKS["decompose"].units(given([SideText("r1", "a", text)]))
    assert units == [
        Unit("r1", "a", "The pool is warm.", text, sentence_index=0),
        Unit("r1", "a", "The bar is loud.", text, sentence_index=1),
    ]


@pytest.mark.parametrize("task", ["decompose", "paraphrase"])
def test_granularity_summary_asks_once_a_text(task: str) -> None:
    """The whole summary in one request; a blank text asks nothing."""
    texts = [SideText("r1", "a", "One. Two."), SideText("r2", "a", " \n")]
    units = TASKS[task].units(given(texts, "summary"))
    assert [(unit.id, unit.text, unit.sentence_index) for unit in units] == [
        ("r1", "One. Two.", None)
    ]


def test_decompose_makes_one_row_a_claim() -> None:
    """Claims are numbered within their sentence and keep it."""
    unit = Unit("r1", "a", "It is warm and loud.", "...", sentence_index=3)
    rows = TASKS["decompose"].rows(unit, {"claims": ["It is warm. ", "It is loud."]})
    assert [(row["claim_index"], row["text"], row["sentence_index"]) for row in rows] == [
        (0, "It is warm.", 3),
        (1, "It is loud.", 3),
    ]
    assert {row["sentence"] for row in rows} == {"It is warm and loud."}


def test_a_text_that_says_nothing_has_no_claims() -> None:
    """An empty list is an answer, not a failure."""
    TASKS["decompose"].check({"claims": []})
    assert TASKS["decompose"].rows(Unit("r", "a", "Wow!", "Wow!", 0), {"claims": []}) == []


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        pytest.param("decompose", {"claims": ["Fine.", " "]}, id="blank-claim"),
        pytest.param("paraphrase", {"paraphrase": "\n"}, id="blank-paraphrase"),
        pytest.param("negate", {"negation": ""}, id="blank-negation"),
        pytest.param("facts", {"facts": [{"subject": "", "description": "x"}]}, id="no-subject"),
        pytest.param("facts", {"facts": [{"subject": "x", "description": " "}]}, id="no-word"),
    ],
)
def test_an_answer_of_the_right_type_that_says_nothing_is_refused(
    task: str, answer: dict[str, Any]
) -> None:
    """It becomes a new sample, then a failure row; never an empty claim in a table."""
    with pytest.raises(ParseError, match="empty"):
        TASKS[task].check(answer)


def test_negate_asks_about_every_claim_of_its_sides() -> None:
    """Decompose first, then negate each claim (METRICS section 3); other sides are left alone."""
    claims = CLAIMS.frame(
        [
            {"id": "r1", "side": "a", "sentence_index": 0, "claim_index": 0, "text": "It is warm."},
            {"id": "r1", "side": "b", "sentence_index": 0, "claim_index": 0, "text": "It is cold."},
        ]
    )
    units = TASKS["negate"].units(given([SideText("r1", "a", "It is warm.")], claims=claims))
    assert [(unit.side, unit.text, unit.claim_index) for unit in units] == [("a", "It is warm.", 0)]
    assert TASKS["negate"].after == ("decompose",)


def test_the_negated_claims_of_a_sentence_are_joined_again() -> None:
    """One row of level `sentence` follows the claims of each sentence, with all their words."""
    task = TASKS["negate"]
    rows = [
        row
        for sentence, claim, text in (
            (0, 0, "It is not warm."),
            (0, 1, "It is not loud."),
            (1, 0, "No."),
        )
        for row in task.rows(Unit("r1", "a", "...", "...", sentence, claim), {"negation": text})
    ]
    assert task.join is not None
    joined = task.join(rows)
    assert [row["level"] for row in joined] == ["claim", "claim", "sentence", "claim", "sentence"]
    assert "not warm" in joined[2]["text"]
    assert "not loud" in joined[2]["text"]
    assert joined[2]["claim_index"] is None


def test_facts_of_several_reviews_are_numbered_through() -> None:
    """The index is the position among all facts of a side; nothing is de-duplicated."""
    task = TASKS["facts"]
    fact = {"facts": [{"subject": "Pool", "description": "warm"}]}
    rows = [
        row
        for side in ("source", "source", "summary")
        for row in task.rows(Unit("r1", side, "...", "..."), fact)
    ]
    assert task.join is not None
    assert [(row["side"], row["index"]) for row in task.join(rows)] == [
        ("source", 0),
        ("source", 1),
        ("summary", 0),
    ]


def test_sentences_can_stand_in_for_claims() -> None:
    """`--units sentences`: the claims table without a question, and without provenance."""
    frame = sentences_as_claims([SideText("r1", "a", "One is here. Two is there.")])
    assert frame["text"].to_list() == ["One is here.", "Two is there."]
    assert frame["sentence_index"].to_list() == [0, 1]
    assert frame["request_key"].null_count() == 2


@pytest.mark.parametrize("name", list(TASKS))
def test_every_tasks_rows_fit_its_table(name: str) -> None:
    """Rows have columns of the table only."""
    answers = {
        "decompose": {"claims": ["a"]},
        "paraphrase": {"paraphrase": "a"},
        "negate": {"negation": "a"},
        "facts": {"facts": [{"subject": "a", "description": "b"}]},
        "judge": {"score": 4, "probabilities": None},
        "questions": {"questions": [{"question": "a?", "answer": "b"}]},
        "answers": {"answerable": True, "answer": "b"},
    }
    task = TASKS[name]
    more = dict.fromkeys(task.fields, "x")
    rows = task.rows(Unit("r1", "a", "t", "t", 0, 0, more), answers[name])
    assert task.table.frame(rows).height == 1
    assert set(rows[0]) <= set(task.table.schema)
