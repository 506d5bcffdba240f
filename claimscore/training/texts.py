"""Documents and summaries to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from claimscore.errors import InputError
from claimscore.records.files import find_files
from claimscore.records.readers import place, read

_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}


def read_texts(tables: Sequence[str], *, labelled: bool = False) -> pl.DataFrame:
    """The rows of JSONL, CSV or Parquet files (or globs): id, source, summary, label (1 or 0).

    Several documents of a row are joined by an empty line. Where no label is asked for, it is 1.
    `InputError` names file, line and column of what cannot be used.
    """
    needed = ("source", "summary", "label") if labelled else ("source", "summary")
    rows: list[tuple[str, str, str, int]] = []
    for table in tables:
        for file in find_files(table):
            for line, record in read(file):
                where = place(file, line)
                for column in needed:
                    if column not in record:
                        there = ", ".join(record)
                        raise InputError(f"{where}: no column {column}; the row has: {there}")
                source, summary = (_joined(record[c], f"{where}: {c}") for c in needed[:2])
                label = _label(record["label"], where) if labelled else 1
                rows.append((str(len(rows)), source, summary, label))
    if not rows:
        raise InputError(f"{', '.join(tables)}: no row to train on")
    texts = dict.fromkeys(("id", "source", "summary"), pl.String())
    return pl.DataFrame(rows, schema={**texts, "label": pl.Int64()}, orient="row")


def _joined(value: object, where: str) -> str:
    texts: list[Any] = value if isinstance(value, list) else [value or ""]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where} must be text")
    return "\n\n".join(texts)


def _label(value: object, where: str) -> int:
    label = _LABELS.get(str(value).lower().removesuffix(".0"))
    if label is None:
        raise InputError(f"{where}: label must be 1 (consistent) or 0, not {value!r}")
    return label
