"""scores.parquet: the same rows give the same bytes, however they come; and its checksum."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from claimscore.atomic import atomic_path, os_errors, write_bytes, write_text
from claimscore.csv_text import csv_text
from claimscore.errors import ConfigError
from claimscore.runs.damage import ADVICE, polars_errors
from claimscore.runs.parts import Checksum
from claimscore.runs.settings_file import STATE
from claimscore.tables import SCORES

SCORES_FILE = "scores.parquet"

#: The checksums that scores.parquet may have: of the last call and, where it was killed, of the
#: call before.
_CHECKSUMS = f"{STATE}/scores.json"

ROW_GROUP = 50_000

#: So many scratch parts make a row group: rows wait in memory for a part to be full.
_PARTS_A_GROUP = 5


def write_scores(folder: Path, frames: Iterable[pl.DataFrame], scratch: Path) -> None:
    """Replace scores.parquet; the bytes depend on the rows alone.

    Rows are first regrouped into scratch parts of one fixed size, so their cut into frames leaves
    no trace and memory holds one part. `scratch` is a folder of this function alone.
    """
    with atomic_path(folder / SCORES_FILE) as path:
        with os_errors(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(mode=0o700)
        try:
            parts = _regrouped(frames, scratch)
            with polars_errors(folder / SCORES_FILE):
                pl.scan_parquet(parts, glob=False).sink_parquet(
                    path, compression="zstd", row_group_size=ROW_GROUP
                )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        sums = [Checksum.of_file(path), *_checksums(folder)[:1]]
        write_bytes(folder / _CHECKSUMS, json.dumps(sums).encode() + b"\n")


def _regrouped(frames: Iterable[pl.DataFrame], scratch: Path) -> list[Path]:
    """Parts of exactly so many rows (the last may have fewer, or none)."""
    size = ROW_GROUP // _PARTS_A_GROUP
    paths: list[Path] = []

    def write(rows: pl.DataFrame) -> None:
        path = scratch / f"part-{len(paths):06d}.parquet"
        with polars_errors(path):
            rows.write_parquet(path, compression="lz4")
        paths.append(path)

    waiting = SCORES.empty()
    for frame in frames:
        waiting = pl.concat([waiting, frame.select(SCORES.schema.keys())])
        while waiting.height >= size:
            write(waiting.head(size))
            waiting = waiting.slice(size)
    if waiting.height or not paths:
        write(waiting)
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
    path, known = folder / SCORES_FILE, _checksums(folder)
    with os_errors(path):
        is_whole = Checksum.of_file(path) in known
    if known and not is_whole:
        raise ConfigError(f"{path}: damaged: not what was written; {ADVICE}")


def _checksums(folder: Path) -> list[Checksum]:
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, RecursionError):
        return [Checksum(*numbers) for numbers in json.loads((folder / _CHECKSUMS).read_bytes())]
    return []
