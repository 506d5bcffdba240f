"""What the scripts share: common options, errors in one line, and tables printed and written."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import claimscore

#: Common options that are settings of `claimscore.evaluate`.
SETTINGS = ("llm", "max_cost", "nli", "embedder", "dtype")


def parser(description: str | None, metrics: str) -> argparse.ArgumentParser:
    """A parser with the options that every script has; the first line of its docstring."""
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("input", type=Path, nargs="+")
    made.add_argument("--out", type=Path, required=True, help="Folder of runs and tables.")
    made.add_argument("--metrics", default=metrics)
    made.add_argument("--llm", default="builtin", help="Makes claims, facts and other texts.")
    made.add_argument("--max-cost", type=float, help="Dollars for each run.")
    made.add_argument("--nli", default="embedded")
    made.add_argument("--embedder", default="embedded")
    made.add_argument("--dtype", default="auto", help="bfloat16 is faster where it is built in.")
    return made


def settings(given: argparse.Namespace) -> dict[str, Any]:
    """The options of `claimscore.evaluate` among those that were given."""
    return {name: getattr(given, name) for name in SETTINGS}


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End with one line and status 2 where the input or the settings are wrong."""
    wrong = (claimscore.ClaimscoreError, OSError, pl.exceptions.PolarsError, ValueError, KeyError)
    try:
        yield
    except wrong as exc:
        what = f"the input has no {exc}" if isinstance(exc, KeyError) else str(exc).splitlines()[0]
        print(f"error: {what}", file=sys.stderr)
        sys.exit(2)


def show(path: Path, title: str, table: pl.DataFrame, *notes: str) -> None:
    """Print a table of text with its title and notes, and write it as Markdown to `path`."""
    with pl.Config(
        tbl_formatting="MARKDOWN",
        tbl_hide_column_data_types=True,
        tbl_hide_dataframe_shape=True,
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=10_000,
        fmt_str_lengths=10_000,
    ):
        text = "\n\n".join([f"## {title}", str(table), *notes]) + "\n"
    print(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def read(paths: Sequence[Path]) -> pl.DataFrame:
    """The rows of JSONL or Parquet files, with all columns of any; `ValueError` names the file."""
    frames = []
    for path in paths:
        try:
            parquet = path.suffix == ".parquet"
            frames.append(
                pl.read_parquet(path) if parquet else pl.read_ndjson(path, infer_schema_length=None)
            )
        except pl.exceptions.PolarsError as exc:
            raise ValueError(f"{path} is neither JSONL nor Parquet: {exc}") from exc
    return pl.concat(frames, how="diagonal_relaxed")
