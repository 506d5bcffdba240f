"""Small chunk tables for tests of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from claimscore.metrics.base import ChunkTables
from claimscore.tables import TABLES

Labels = Sequence[Sequence[str]]
_COLUMNS = ("entailment", "neutral", "contradiction")
_MODEL = {"model": "m", "revision": "r", "dtype": "float32"}


def tables(
    records: Sequence[Mapping[str, Any]],
    **rows: Sequence[dict[str, object]],
) -> ChunkTables:
    """The records, and rows of other tables by name."""
    frames = {name: table.frame(list(rows.get(name, ()))) for name, table in TABLES.items()}
    frames["records"] = pl.DataFrame(
        [{"summary_a": "A.", "summary_b": "B.", **row} for row in records]
    )
    return ChunkTables(frames.__getitem__)


def claim_rows(record: str, n_a: int, n_b: int) -> list[dict[str, object]]:
    return [
        {"id": record, "side": side, "sentence_index": 0, "claim_index": index, "text": "t"}
        for side, n in (("a", n_a), ("b", n_b))
        for index in range(n)
    ]


def nli_rows(record: str, forward: Labels, backward: Labels) -> list[dict[str, object]]:
    return [
        _nli_row(record, sides, premise, hypothesis, label)
        for sides, matrix in ((("a", "b"), forward), (("b", "a"), backward))
        for premise, row in enumerate(matrix)
        for hypothesis, label in enumerate(row)
    ]


def _nli_row(
    record: str, sides: tuple[str, str], premise: int, hypothesis: int, label: str
) -> dict[str, object]:
    return {
        "id": record,
        "premise_side": sides[0],
        "premise_index": premise,
        "hypothesis_side": sides[1],
        "hypothesis_index": hypothesis,
        "direction": "_to_".join(sides),
        **{name: 0.8 if name == label else 0.1 for name in _COLUMNS},
        **_MODEL,
    }


def token_row(record: str, f1: float | None, baseline: float | None = None) -> dict[str, object]:
    return {
        "id": record,
        "candidate_side": "a",
        "reference_side": "b",
        "precision": f1,
        "recall": f1,
        "f1": f1,
        "baseline_f1": baseline,
        "layer": 6,
        **_MODEL,
    }
