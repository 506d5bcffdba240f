"""Facts: FactSim's tuples of a subject and a description, of summaries and of sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claimscore.pipeline.tasks.base import (
    Task,
    Unit,
    numbered_through,
    refuse_empty,
    sides_and_source_in,
    whole_text_units,
)
from claimscore.tables import FACTS


def _check(answer: Mapping[str, Any]) -> None:
    for fact in answer["facts"]:
        refuse_empty("a fact's subject or description", fact["subject"], fact["description"])


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "side": unit.side,
            "subject": fact["subject"].strip(),
            "description": fact["description"].strip(),
        }
        for fact in answer["facts"]
    ]


FACTS_TASK = Task(
    name="facts",
    table=FACTS,
    output={"facts": [{"subject": "string", "description": "string"}]},
    units=whole_text_units,
    check=_check,
    rows=_rows,
    sides=sides_and_source_in,
    join=numbered_through,
)
