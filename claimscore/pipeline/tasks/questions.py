"""Questions about a text, each with its short answer; and the answers that the other text gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from claimscore.pipeline.tasks.base import (
    Task,
    TaskInput,
    Unit,
    numbered_through,
    refuse_empty,
    sides_and_source_in,
    whole_text_units,
)
from claimscore.tables import LLM_ANSWERS, SOURCE_SIDE
from claimscore.text import split_sentences

#: What the prompt allows for one text.
MOST_QUESTIONS = 12


def _check(answer: Mapping[str, Any]) -> None:
    for item in answer["questions"]:
        refuse_empty("a question or its answer", item["question"], item["answer"])


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "task": "questions",
            "side": unit.side,
            "question": item["question"].strip(),
            "answer": json.dumps({"answer": item["answer"].strip()}, ensure_ascii=False),
        }
        for item in answer["questions"]
    ]


def _guess(unit: Unit) -> dict[str, Any]:
    """One question a sentence, as long as the sentence."""
    sentences = split_sentences(unit.text)[:MOST_QUESTIONS]
    return {"questions": [{"question": text, "answer": text} for text in sentences]}


def both_sides(columns: Sequence[str]) -> tuple[str, ...]:
    """Summary and source, as far as the records have them."""
    there = sides_and_source_in(columns)
    return tuple(side for side in ("summary", SOURCE_SIDE) if side in there)


QUESTIONS = Task(
    name="questions",
    table=LLM_ANSWERS,
    output={"questions": [{"question": "string", "answer": "string"}]},
    units=whole_text_units,
    check=_check,
    rows=_rows,
    sides=both_sides,
    fields=("text",),
    join=numbered_through,
    guess=_guess,
    guessed=f"are assumed: one a sentence, at most {MOST_QUESTIONS} a text",
)


#: Of which side the questions of each side are asked.
_OTHER = {"summary": SOURCE_SIDE, SOURCE_SIDE: "summary"}


def _answer_units(given: TaskInput) -> list[Unit]:
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


def _check_answer(answer: Mapping[str, Any]) -> None:
    if answer["answerable"]:
        refuse_empty("the answer", answer["answer"])


def _answer_rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
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


def _answer_sides(columns: Sequence[str]) -> tuple[str, ...]:
    there = both_sides(columns)
    return there if len(there) == len(_OTHER) else ()


ANSWERS = Task(
    name="answers",
    table=LLM_ANSWERS,
    output={"answerable": "boolean", "answer": "string"},
    units=_answer_units,
    check=_check_answer,
    rows=_answer_rows,
    sides=_answer_sides,
    after=("questions",),
    fields=("text", "question"),
    n_required=2,
)
