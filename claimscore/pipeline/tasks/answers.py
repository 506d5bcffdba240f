"""Answers: each question made from one text, asked of the other (summary and source)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from claimscore.errors import ParseError
from claimscore.pipeline.tasks.base import Task, TaskInput, Unit
from claimscore.pipeline.tasks.questions import both_sides
from claimscore.tables import LLM_ANSWERS, SOURCE_SIDE

#: Of which side the questions of each side are asked.
_OTHER = {"summary": SOURCE_SIDE, SOURCE_SIDE: "summary"}


def _units(given: TaskInput) -> list[Unit]:
    """One unit a question; its side is that of the text the question was made from.

    A record whose other text is blank has none: nothing can be asked of it.
    """
    sides = {item.side for item in given.texts}
    others = {side: given.whole_texts(_OTHER[side]) for side in sides}
    questions = given.tables["llm_answers"].filter(
        (pl.col("task") == "questions") & pl.col("side").is_in(sides)
    )
    return [
        Unit(
            record,
            side,
            others[side][record],
            others[side][record],
            sentence_index=index,
            more={"question": question},
        )
        for record, side, index, question in questions.select(
            "id", "side", "index", "question"
        ).iter_rows()
        if record in others[side]
    ]


def _check(answer: Mapping[str, Any]) -> None:
    if answer["answerable"] and not answer["answer"].strip():
        raise ParseError("the answer is empty")


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = answer["answer"].strip() if answer["answerable"] else None
    return [
        {
            "id": unit.id,
            "task": "answers",
            "side": unit.side,
            "index": unit.sentence_index,
            "question": unit.more["question"],
            "answer": json.dumps({"answer": text}, ensure_ascii=False),
        }
    ]


def _sides(columns: Sequence[str]) -> tuple[str, ...]:
    there = both_sides(columns)
    return there if len(there) == len(_OTHER) else ()


ANSWERS = Task(
    name="answers",
    table=LLM_ANSWERS,
    output={"answerable": "boolean", "answer": "string"},
    units=_units,
    check=_check,
    rows=_rows,
    sides=_sides,
    after=("questions",),
    fields=("text", "question"),
    n_required=2,
)
