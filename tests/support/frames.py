"""Small chunk tables for tests of metrics: rows of one record, with the columns that count."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from claimscore.metrics.base import ChunkTables
from claimscore.tables import TABLES

Row = dict[str, Any]
Labels = Sequence[Sequence[str]]
_COLUMNS = ("entailment", "neutral", "contradiction")


def tables(records: Sequence[Mapping[str, Any]], **rows: Sequence[Row]) -> ChunkTables:
    """The records, with short texts where they have none, and rows of other tables by name."""
    frames = {name: table.frame(list(rows.get(name, ()))) for name, table in TABLES.items()}
    texts = {"summary_a": "A.", "summary_b": "B.", "source": "D.", "summary": "S."}
    frames["records"] = pl.DataFrame([texts | row for row in records])
    return ChunkTables(frames.__getitem__)


def claim_rows(record: str, n_a: int, n_b: int) -> list[Row]:
    return [
        {"id": record, "side": side, "sentence_index": 0, "claim_index": index, "text": "t"}
        for side, n in (("a", n_a), ("b", n_b))
        for index in range(n)
    ]


def nli_rows(record: str, forward: Labels, backward: Labels) -> list[Row]:
    return [
        {
            "id": record,
            "premise_side": sides[0],
            "premise_index": premise,
            "hypothesis_side": sides[1],
            "hypothesis_index": hypothesis,
            "direction": "_to_".join(sides),
            **{name: 0.8 if name == label else 0.1 for name in _COLUMNS},
        }
        for sides, matrix in ((("a", "b"), forward), (("b", "a"), backward))
        for premise, row in enumerate(matrix)
        for hypothesis, label in enumerate(row)
    ]


def block_rows(record: str, image: Any, cuts: tuple[str, str] = ("sentence", "sentence")) -> Any:
    """NLI of blocks of the source with those of the summary, ``[i, j, probabilities]``."""
    return [
        {
            "id": record,
            "premise_side": "source",
            "premise_cut": cuts[0],
            "premise_index": i,
            "hypothesis_side": "summary",
            "hypothesis_cut": cuts[1],
            "hypothesis_index": j,
            **dict(zip(_COLUMNS, cell, strict=True)),
        }
        for i, row in enumerate(np.asarray(image, dtype=np.float64).tolist())
        for j, cell in enumerate(row)
    ]


def fact_rows(record: str, n_source: int, n_summary: int) -> list[Row]:
    """Facts `s 0`, `s 1` ... of the source and `z 0` ... of the summary."""
    return [
        {"id": record, "side": side, "index": i, "subject": name, "description": str(i)}
        for side, name, n in (("source", "s", n_source), ("summary", "z", n_summary))
        for i in range(n)
    ]


def cosine(sides: tuple[str, str], places: tuple[int, int], value: float, **other: object) -> Row:
    row = {"id": "x", "unit": "text", "row_side": sides[0], "row_index": places[0]}
    row |= {"column_side": sides[1], "column_index": places[1], "similarity": value}
    return row | other


def fact_cells(record: str, matrix: Sequence[Sequence[float]]) -> list[Row]:
    return [
        cosine(("source", "summary"), (i, j), value, id=record, unit="fact")
        for i, row in enumerate(matrix)
        for j, value in enumerate(row)
    ]


def token_row(record: str, f1: float | None, baseline: float | None = None, **other: Any) -> Row:
    numbers = {"precision": f1, "recall": f1, "f1": f1, "baseline_f1": baseline, "layer": 6}
    return {"id": record, "candidate_side": "a", "reference_side": "b", **numbers, **other}


def number(measure: str, name: str, value: float | None, given: Any = None, **other: Any) -> Row:
    """A row of `text_scores` about the summary, `given` a text by its side and place."""
    side, index = given or (None, None)
    row = {"id": "x", "measure": measure, "side": "summary", "name": name, "value": value}
    return row | {"given_side": side, "given_index": index} | other


def answer(task: str, side: str, index: int, content: Any, **other: Any) -> Row:
    row = {"id": "x", "task": task, "side": side, "index": index, "question": f"Q{index}?"}
    return row | {"answer": json.dumps(content)} | other


def support_rows(
    record: str,
    probabilities: Sequence[Sequence[float]],
    contradiction: Sequence[Sequence[float]] | None = None,
    sides: tuple[str, str] = ("summary", "source"),
    read: str = "model.best",
) -> list[Row]:
    """Support of the claims of the first side by the texts of the second, ``[claims, texts]``."""
    against = contradiction or np.zeros(np.shape(probabilities)).tolist()
    return [
        {
            "id": record,
            "side": sides[0],
            "claim_position": claim,
            "source_side": sides[1],
            "source_index": text,
            "read": read,
            "verdict": "supported"
            if value >= 0.5
            else ("unmentioned", "contradicted")[denied >= 0.5],
            "probability": value,
            "contradiction": denied,
        }
        for claim, row in enumerate(probabilities)
        for text, (value, denied) in enumerate(zip(row, against[claim], strict=True))
    ]
