"""Tasks whose answers stand in `llm_answers`: questions about a text, each with its short answer;
the answers that the other text gives; grades of a summary, from 1 to 5 for each of four dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from claimscore.errors import ParseError
from claimscore.metrics.llm_judge import DIMENSIONS, SCALE
from claimscore.pipeline.tasks.base import (
    Task,
    TaskInput,
    Unit,
    no_empty,
    numbered_through,
    refuse_empty,
    value_probabilities,
    whole_text_units,
)
from claimscore.tables import LLM_ANSWERS, SOURCE_SIDE
from claimscore.text import split_sentences
from claimscore.types import Completion

#: What the prompt allows for one text.
MOST_QUESTIONS = 12


def _row(task: str, unit: Unit, question: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": unit.id,
        "task": task,
        "side": unit.side,
        "index": unit.sentence_index,
        "question": question,
        "answer": json.dumps(answer, ensure_ascii=False),
    }


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _row("questions", unit, item["question"].strip(), {"answer": item["answer"].strip()})
        for item in answer["questions"]
    ]


def _guess(unit: Unit) -> dict[str, Any]:
    """One question a sentence, as long as the sentence."""
    sentences = split_sentences(unit.text)[:MOST_QUESTIONS]
    return {"questions": [{"question": text, "answer": text} for text in sentences]}


QUESTIONS = Task(
    name="questions",
    table=LLM_ANSWERS,
    output={"questions": [{"question": "string", "answer": "string"}]},
    units=whole_text_units,
    check=no_empty("a question or its answer"),
    rows=_rows,
    sides={"summary": "", SOURCE_SIDE: ""},
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
    return [_row("answers", unit, unit.more["question"], {"answer": text})]


ANSWERS = Task(
    name="answers",
    table=LLM_ANSWERS,
    output={"answerable": "boolean", "answer": "string"},
    units=_answer_units,
    check=_check_answer,
    rows=_answer_rows,
    sides=_OTHER,
    after=("questions",),
    fields=("text", "question"),
    n_required=2,
)


#: The likeliest tokens whose probabilities are asked for: as many as there are scores; some
#: servers give no more.
TOP_LOGPROBS = len(SCALE)


def _judge_units(given: TaskInput) -> list[Unit]:
    """One unit a dimension of each summary that has a source."""
    sources = given.whole_texts(SOURCE_SIDE)
    return [
        Unit(
            item.id,
            item.side,
            item.text,
            item.text,
            sentence_index=index,
            more={"dimension": dimension, "source": sources[item.id]},
        )
        for item in given.texts
        if item.text.strip() and item.id in sources
        for index, dimension in enumerate(DIMENSIONS)
    ]


def _check_grade(answer: Mapping[str, Any]) -> None:
    if answer["score"] not in SCALE:
        raise ParseError(f"the score must be from {SCALE[0]} to {SCALE[-1]}, not {answer['score']}")


def _refine(completion: Completion, answer: dict[str, Any]) -> dict[str, Any]:
    probabilities = value_probabilities(
        "score", list(map(str, SCALE)), str(answer["score"]), completion.logprobs or ()
    )
    return {**answer, "probabilities": probabilities}


def _judge_rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_row("judge", unit, unit.more["dimension"], answer)]


JUDGE = Task(
    name="judge",
    table=LLM_ANSWERS,
    output={"score": "integer"},
    units=_judge_units,
    check=_check_grade,
    rows=_judge_rows,
    sides={"summary": SOURCE_SIDE},
    fields=("text", "dimension", "source"),
    n_required=2,
    top_logprobs=TOP_LOGPROBS,
    refine=_refine,
    samples=True,
)
