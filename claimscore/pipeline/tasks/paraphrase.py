"""Paraphrases: each sentence, or the whole summary, in other words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claimscore.pipeline.tasks.base import Task, Unit, refuse_empty, sides_in, text_units
from claimscore.tables import PARAPHRASES


def _check(answer: Mapping[str, Any]) -> None:
    refuse_empty("the paraphrase", answer["paraphrase"])


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "side": unit.side,
            "sentence_index": unit.sentence_index,
            "original": unit.text,
            "text": answer["paraphrase"].strip(),
        }
    ]


PARAPHRASE = Task(
    name="paraphrase",
    table=PARAPHRASES,
    output={"paraphrase": "string"},
    units=text_units,
    check=_check,
    rows=_rows,
    sides=sides_in,
    several=True,
    samples=True,
)
