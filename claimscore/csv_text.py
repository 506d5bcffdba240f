"""CSV that people open: no cell of it is a formula.

A spreadsheet runs a cell that begins with =, +, -, @, a tab or a line break (OWASP, CSV Injection),
so such a text gets an apostrophe before it. A text that is a number stays as it is.
"""

from __future__ import annotations

import re

import polars as pl

_FORMULA = r"^'*[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]"  # apostrophes too: else undoing loses one
_NUMBER = r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"


def csv_text(rows: pl.DataFrame) -> str:
    """A table as CSV with its header; lists are joined by spaces, null is an empty cell."""
    texts = rows.with_columns(
        pl.col(name).list.eval(pl.element().cast(pl.String)).list.join(" ")
        for name, dtype in rows.schema.items()
        if isinstance(dtype, pl.List)
    )
    formula = pl.col(pl.String).str.contains(_FORMULA) & ~pl.col(pl.String).str.contains(_NUMBER)
    escaped = pl.when(formula).then("'" + pl.col(pl.String)).otherwise(pl.col(pl.String))
    texts = texts.with_columns(escaped.name.keep())
    return texts.rename({name: _escaped(name) for name in texts.columns}).write_csv()


def _escaped(text: str) -> str:
    return f"'{text}" if re.match(_FORMULA, text) and not re.match(_NUMBER, text) else text


def unescaped(cell: str) -> str:
    """The text of a cell that `csv_text` wrote."""
    return cell[1:] if cell.startswith("'") and _escaped(cell[1:]) == cell else cell
