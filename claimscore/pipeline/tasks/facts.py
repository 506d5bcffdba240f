"""Facts: FactSim's tuples of a subject and a description, of summaries and of sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claimscore.errors import ParseError
from claimscore.pipeline.tasks.base import (
    Task,
    TaskInput,
    Unit,
    sides_and_source_in,
)
from claimscore.tables import FACTS


def _units(given: TaskInput) -> list[Unit]:
    """One unit a text: FactSim asks about a whole review or summary at once."""
    return [
        Unit(item.id, item.side, item.text, item.text) for item in given.texts if item.text.strip()
    ]


def _check(answer: Mapping[str, Any]) -> None:
    if not all(fact[key].strip() for fact in answer["facts"] for key in ("subject", "description")):
        raise ParseError("a fact has an empty subject or description")


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


def _number(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Positions among all facts of a side: those of several sources follow one another."""
    seen: dict[tuple[str, str], int] = {}
    numbered = []
    for row in rows:
        key = (row["id"], row["side"])
        index = seen.get(key, 0)
        seen[key] = index + 1
        numbered.append({**row, "index": index})
    return numbered


FACTS_TASK = Task(
    name="facts",
    table=FACTS,
    output={"facts": [{"subject": "string", "description": "string"}]},
    units=_units,
    check=_check,
    rows=_rows,
    sides=sides_and_source_in,
    join=_number,
)
