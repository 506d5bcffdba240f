"""Negations: each claim negated, and the negated claims of one sentence joined again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from claimscore.pipeline.tasks.base import Task, TaskInput, Unit, refuse_empty, sides_in
from claimscore.tables import NEGATIONS


def _units(given: TaskInput) -> list[Unit]:
    """One unit a claim of the sides asked about (METRICS: decompose first, then negate)."""
    whole = {(item.id, item.side): item.text for item in given.texts}
    return [
        Unit(
            row["id"],
            row["side"],
            row["text"],
            whole[row["id"], row["side"]],
            sentence_index=row["sentence_index"],
            claim_index=row["claim_index"],
        )
        for row in given.tables["claims"].iter_rows(named=True)
        if (row["id"], row["side"]) in whole
    ]


def _check(answer: Mapping[str, Any]) -> None:
    refuse_empty("the negation", answer["negation"])


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "side": unit.side,
            "level": "claim",
            "sentence_index": unit.sentence_index,
            "claim_index": unit.claim_index,
            "original": unit.text,
            "text": answer["negation"].strip(),
        }
    ]


def _sample(row: Mapping[str, Any]) -> int:
    return row.get("sample") or 0


def _join_sentences(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and after those of each sentence one row of level `sentence`.

    Each sample of a sentence is joined by itself.
    """
    from claimscore.baseline.negation import rejoin  # word lists, which most commands do not need

    joined: list[dict[str, Any]] = []
    sentences = itertools.groupby(rows, key=lambda r: (r["id"], r["side"], r["sentence_index"]))
    for _, sentence in sentences:
        for _, sample in itertools.groupby(sorted(sentence, key=_sample), key=_sample):
            claims = list(sample)
            whole = {"level": "sentence", "text": rejoin([row["text"] for row in claims])}
            no_claim = dict.fromkeys(("claim_index", "original", "request_key"))
            joined += [*claims, {**claims[0], **whole, **no_claim}]
    return joined


NEGATE = Task(
    name="negate",
    table=NEGATIONS,
    output={"negation": "string"},
    units=_units,
    check=_check,
    rows=_rows,
    sides=sides_in,
    after=("decompose",),
    several=True,
    samples=True,
    join=_join_sentences,
)
