"""Write docs/reference/tables.md from claimscore/tables.py and claim_checks.py:
`python scripts/make_tables_doc.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from claimscore.claim_checks import CHECKS, LEAST_FINDINGS
from claimscore.tables import (
    CLAIM_CHECKS,
    LLM_PROVENANCE,
    MODEL_PROVENANCE,
    OPINIONS,
    SUPPORT,
    TABLES,
)


def _columns(schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(f"`{name}`" for name in schema)


HEAD = f"""# Tables

Written by `scripts/make_tables_doc.py` from `claimscore/tables.py`.

Each table is a folder of Parquet parts in the run directory (`claims/*.parquet`); `scores.parquet`
is one file. `records/` holds the input's columns, `id` first. A *side* is the text that a row is
about: `a`, `b` and `common` are `summary_a`, `summary_b` and `summary_common`, `source` is
`source` or `sources`; `summary` and `references` are themselves.

## What made a row

- **LLM columns**: {_columns(LLM_PROVENANCE)}: the key in the cache, and the model as the server
  reported it.
- **Model columns**: {_columns(MODEL_PROVENANCE)}.
"""
CHECKS_TABLE = (
    f"""
A run warns where the share of a check is above its threshold, from {LEAST_FINDINGS} findings on:

| check | finds | warns above |
|---|---|---|
"""
    + "".join(
        f"| `{name}` | {check.of} that {check.says} | {check.warns_above:.0%} |\n"
        for name, check in CHECKS.items()
    )
    + """
Words are compared as [`evaluate claims`](evaluation.md#evaluate-claims) does. `not_entailed` is
below the model's threshold, and asked where a metric needs the NLI model. No check fails a record.
"""
)
MADE_BY = {
    "[LLM columns](#what-made-a-row)": LLM_PROVENANCE,
    "[model columns](#what-made-a-row)": MODEL_PROVENANCE,
}


def tables_doc() -> str:
    """The page: each table with its meaning and its columns in order."""
    parts = [HEAD]
    for table in TABLES.values():
        columns, end = dict(table.schema), ""
        if table is OPINIONS:
            columns = dict(list(columns.items())[len(SUPPORT.schema) :])
            end = ", and those of [support](#support)"
        for link, made_by in MADE_BY.items():
            if list(columns.items())[-len(made_by) :] == list(made_by.items()):
                columns = dict(list(columns.items())[: -len(made_by)])
                end = f", {link}"
        parts.append(f"\n## {table.name}\n\n{table.description}\n\nColumns: ")
        parts.append(f"{_columns(columns)}{end}.\n")
        if table is CLAIM_CHECKS:
            parts.append(CHECKS_TABLE)
    return "".join(parts)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "reference/tables.md"
    target.write_text(tables_doc(), encoding="utf-8")
