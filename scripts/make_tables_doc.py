"""Write docs/reference/tables.md from claimscore/tables.py: `python scripts/make_tables_doc.py`."""

from __future__ import annotations

from pathlib import Path

from claimscore.tables import TABLES

HEAD = """# Tables

Written by `scripts/make_tables_doc.py` from `claimscore/tables.py`.

Each table is a folder of Parquet parts in the run directory; `scores.parquet` is one file. Parts of
finished chunks are compacted, so their number stays small. Any Parquet reader takes them:

<!-- not run: it needs a run directory -->
```python
import polars as pl

claims = pl.scan_parquet("runs/hotels/claims/*.parquet")
scores = pl.read_parquet("runs/hotels/scores.parquet")
```

Each row that a language model made names the key of its request in the cache, the prompt's name,
version and digest, and the model as the server reported it. Each row of an encoder names model,
revision and dtype. `records/` holds the input's columns, `id` first.
"""


def tables_doc() -> str:
    parts = [HEAD]
    for table in TABLES.values():
        parts.append(f"\n## {table.name}\n\n{table.description}\n\n| column | type |\n|---|---|\n")
        parts += [f"| `{name}` | {dtype} |\n" for name, dtype in table.schema.items()]
    return "".join(parts)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "reference/tables.md"
    target.write_text(tables_doc(), encoding="utf-8")
