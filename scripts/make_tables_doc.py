"""Write docs/reference/tables.md from claimscore/tables.py: `python scripts/make_tables_doc.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from claimscore.tables import LLM_PROVENANCE, MODEL_PROVENANCE, TABLES


def _columns(schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(
        f"`{name}`" + ("" if dtype == pl.String else f" {dtype}") for name, dtype in schema.items()
    )


HEAD = f"""# Tables

Written by `scripts/make_tables_doc.py` from `claimscore/tables.py`.

Each table is a folder of Parquet parts in the run directory; `scores.parquet` is one file. Any
Parquet reader takes them:

<!-- not run: it needs a run directory -->
```python
import polars as pl

claims = pl.scan_parquet("runs/hotels/claims/*.parquet")
scores = pl.read_parquet("runs/hotels/scores.parquet")
```

`records/` holds the input's columns, `id` first. Below, a column without a type is a String.

## Columns that say what made a row

- **LLM columns**: {_columns(LLM_PROVENANCE)}. The key is that of the request in the cache; the
  model is as the server reported it.
- **Model columns**: {_columns(MODEL_PROVENANCE)}.
"""
MADE_BY = {
    "[LLM columns](#columns-that-say-what-made-a-row)": LLM_PROVENANCE,
    "[model columns](#columns-that-say-what-made-a-row)": MODEL_PROVENANCE,
}


def tables_doc() -> str:
    """The page: each table with its meaning and its columns in order."""
    parts = [HEAD]
    for table in TABLES.values():
        columns, end = dict(table.schema), ""
        for link, made_by in MADE_BY.items():
            if list(columns.items())[-len(made_by) :] == list(made_by.items()):
                columns = dict(list(columns.items())[: -len(made_by)])
                end = f", and the {link}"
        parts.append(f"\n## {table.name}\n\n{table.description}\n\nColumns: ")
        parts.append(f"{_columns(columns)}{end}.\n")
    return "".join(parts)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "reference/tables.md"
    target.write_text(tables_doc(), encoding="utf-8")
