"""Grades: how good a summary of its source is, a number from 1 to 5 for each of four dimensions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from claimscore.errors import ParseError
from claimscore.metrics.llm_judge import DIMENSIONS, SCALE
from claimscore.pipeline.tasks.base import (
    Task,
    TaskInput,
    Unit,
    sides_and_source_in,
    value_probabilities,
)
from claimscore.tables import LLM_ANSWERS, SOURCE_SIDE
from claimscore.types import Completion

#: The likeliest tokens whose probabilities are asked for: as many as there are scores; some
#: servers give no more.
TOP_LOGPROBS = len(SCALE)


def _units(given: TaskInput) -> list[Unit]:
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


def _check(answer: Mapping[str, Any]) -> None:
    if answer["score"] not in SCALE:
        raise ParseError(f"the score must be from {SCALE[0]} to {SCALE[-1]}, not {answer['score']}")


def _refine(completion: Completion, answer: dict[str, Any]) -> dict[str, Any]:
    probabilities = value_probabilities(
        "score", list(map(str, SCALE)), str(answer["score"]), completion.logprobs or ()
    )
    return {**answer, "probabilities": probabilities}


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "task": "judge",
            "side": unit.side,
            "index": unit.sentence_index,
            "question": unit.more["dimension"],
            "answer": json.dumps(answer),
        }
    ]


def _sides(columns: Sequence[str]) -> tuple[str, ...]:
    there = sides_and_source_in(columns)
    return ("summary",) if {"summary", SOURCE_SIDE} <= set(there) else ()


JUDGE = Task(
    name="judge",
    table=LLM_ANSWERS,
    output={"score": "integer"},
    units=_units,
    check=_check,
    rows=_rows,
    sides=_sides,
    fields=("text", "dimension", "source"),
    n_required=2,
    top_logprobs=TOP_LOGPROBS,
    refine=_refine,
    samples=True,
)
