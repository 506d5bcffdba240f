"""scores.parquet: the same rows give the same bytes, however they come; and its checksum."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.atomic import atomic_path, os_errors, remove_files, write_text
from claimscore.csv_text import csv_text
from claimscore.errors import ConfigError
from claimscore.runs.damage import ADVICE, polars_errors
from claimscore.runs.parts import Checksum
from claimscore.runs.settings_file import STATE
from claimscore.tables import SCORES

SCORES_FILE = "scores.parquet"

#: The checksum of scores.parquet; gone while that is replaced.
_CHECKSUM = f"{STATE}/scores.json"

ROW_GROUP = 50_000

#: So many scratch parts make a row group: rows wait in memory for a part to be full.
_PARTS_A_GROUP = 5


def write_scores(folder: Path, frames: Iterable[pl.DataFrame], scratch: Path) -> None:
    """Replace scores.parquet; the bytes depend on the rows alone.

    Rows are first regrouped into scratch parts of one fixed size, so their cut into frames leaves
    no trace and memory holds one part. `scratch` is a folder of this function alone.
    """
    path = folder / SCORES_FILE
    with os_errors(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
    try:
        parts = _regrouped(frames, scratch)
        with atomic_path(path) as temporary, polars_errors(path):
            rows = pl.scan_parquet(parts, glob=False)
            rows.sink_parquet(temporary, compression="zstd", row_group_size=ROW_GROUP)
            checksum = Checksum.of(temporary)
            remove_files([folder / _CHECKSUM])
        write_text(folder / _CHECKSUM, json.dumps(checksum) + "\n")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _regrouped(frames: Iterable[pl.DataFrame], scratch: Path) -> list[Path]:
    """Parts of exactly so many rows (the last may have fewer, or none)."""
    size = ROW_GROUP // _PARTS_A_GROUP
    paths: list[Path] = []
    waiting = SCORES.empty()
    for frame in itertools.chain(frames, [None]):
        if frame is not None:
            waiting = pl.concat([waiting, frame.select(SCORES.schema.keys())])
        while waiting.height >= size or (frame is None and (waiting.height or not paths)):
            paths.append(scratch / f"part-{len(paths):06d}.parquet")
            with polars_errors(paths[-1]):
                waiting.head(size).write_parquet(paths[-1], compression="lz4")
            waiting = waiting.slice(size)
    return paths


def wide_scores(rows: pl.DataFrame) -> pl.DataFrame:
    """Scores as a row a record, in their order: `id`, a column a metric, and `reason`, which says
    why a value is null."""
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    values = rows.pivot(on="metric", index="id", values="value", maintain_order=True)
    missing = rows.filter(pl.col("value").is_null())
    reasons = missing.group_by("id", maintain_order=True).agg(
        pl.format("{}: {}", "metric", "reason").str.join("; ").alias("reason")
    )
    joined = values.join(reasons, on="id", how="left", maintain_order="left")
    return joined.select("id", *metrics, "reason")


def write_csv(folder: Path) -> None:
    """Write `wide_scores` of scores.parquet beside it, as scores.csv."""
    write_text(folder / "scores.csv", csv_text(wide_scores(pl.read_parquet(folder / SCORES_FILE))))


def check_scores(folder: Path) -> None:
    """`ConfigError` where scores.parquet is not what was written."""
    path = folder / SCORES_FILE
    known: Any = None
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        known = json.loads((folder / _CHECKSUM).read_bytes())
    with os_errors(path):
        if known is not None and known != list(Checksum.of(path)):
            raise ConfigError(f"{path}: damaged: not what was written; {ADVICE}")
