"""scores.parquet: the same rows give the same bytes, however they come; and its sum."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from claimscore.atomic import os_errors
from claimscore.errors import ConfigError
from claimscore.runs.damage import ADVICE, polars_errors
from claimscore.runs.home import STATE
from claimscore.runs.index import Sum
from claimscore.runs.parts import sum_of_file
from claimscore.storage import Storage
from claimscore.tables import SCORES

SCORES_FILE = "scores.parquet"

#: Whose sum scores.parquet may have: that of the last call and, where it was killed, of before.
_SUMS = f"{STATE}/scores.json"

ROW_GROUP = 50_000

#: So many scratch parts make a row group: what waits for a part to be full is in memory.
_PARTS_A_GROUP = 5


def sink_scores(
    frames: Iterable[pl.DataFrame], path: Path, scratch: Path, target: Path | str
) -> None:
    """Write the rows to `path` as one Parquet file; the bytes depend on the rows alone.

    Rows are first regrouped into scratch parts of one fixed size, so how they were cut into
    frames leaves no trace and memory holds one part. `scratch` is a folder of this function
    alone; errors name `target`.
    """
    with os_errors(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
    try:
        parts = _regrouped(frames, scratch)
        with polars_errors(target):
            pl.scan_parquet(parts, glob=False).sink_parquet(
                path, compression="zstd", row_group_size=ROW_GROUP
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _regrouped(frames: Iterable[pl.DataFrame], scratch: Path) -> list[Path]:
    """Parts of exactly so many rows (the last may have fewer, or none)."""
    size = ROW_GROUP // _PARTS_A_GROUP
    paths: list[Path] = []
    waiting = [SCORES.empty()]
    height = 0

    def write(rows: pl.DataFrame) -> None:
        path = scratch / f"part-{len(paths):06d}.parquet"
        with polars_errors(path):
            rows.write_parquet(path, compression="lz4")
        paths.append(path)

    for frame in frames:
        waiting.append(frame.select(SCORES.schema.keys()))
        height += frame.height
        if height < size:
            continue
        pending = pl.concat(waiting)
        while pending.height >= size:
            write(pending.head(size))
            pending = pending.slice(size)
        waiting, height = [pending], pending.height
    if height or not paths:
        write(pl.concat(waiting))
    return paths


def keep_sum(folder: Storage, path: Path) -> None:
    """Remember the sum of the scores that are about to take the place of those there are."""
    sums = [sum_of_file(path), *_sums(folder)[:1]]
    folder.write(_SUMS, json.dumps(sums).encode() + b"\n")


def check_sum(folder: Storage) -> None:
    """`ConfigError` where the scores are not what was written; in a store only their size is
    looked at."""
    sums, address = _sums(folder), folder.address(SCORES_FILE)
    if folder.local is None:
        is_whole = folder.size(SCORES_FILE) in [found.size for found in sums]
    else:
        with os_errors(address):
            is_whole = sum_of_file(folder.local / SCORES_FILE) in sums
    if sums and not is_whole:
        raise ConfigError(f"{address}: damaged: not what was written; {ADVICE}")


def _sums(folder: Storage) -> list[Sum]:
    """Empty where an older version wrote the scores."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        return [Sum(*found) for found in json.loads(folder.read(_SUMS))]
    return []
