"""The Parquet files of a run directory: the parts that hold the rows of the steps, and the scores.

    <table>/part-000000-<step>.parquet    one part a chunk and step that writes the table
    scores.parquet                        a row a record and metric

A file is written whole or not at all. A part counts once the manifest names it with its checksum.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.atomic import (
    atomic_path,
    os_errors,
    reason,
    remove_files,
    sync_folder,
    write_text,
)
from claimscore.errors import ConfigError
from claimscore.runs.settings_file import STATE
from claimscore.tables import SCORES, TABLES

#: All tables of parts: `records` and `columns` have the columns of the user's input.
PART_TABLES = frozenset({*TABLES, "records", "columns"})

#: What a step may be called, and the name of the file of a part in its table's folder.
STEP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
PART_FILE = rf"part-\d{{6,}}-{STEP_NAME.pattern}\.parquet"
_FILE_NAME = re.compile(PART_FILE)

#: Bytes of a file that are summed at a time.
_BLOCK = 1 << 20

#: The checksum of scores.parquet; gone while that is replaced.
SCORES_FILE, SCORES_CHECKSUM = "scores.parquet", f"{STATE}/scores.json"

#: Rows of a row group of scores.parquet.
ROW_GROUP = 50_000

#: What reading values that are not what was written raises.
_DAMAGE = KeyError, TypeError, ValueError, AttributeError, RecursionError, pl.exceptions.PolarsError

#: The advice about files of a run directory that another program damaged.
ADVICE = "the same command that began it makes it again (answers are in the cache)"


@contextlib.contextmanager
def damage_as_error(path: Path | str) -> Iterator[None]:
    """Turn the errors of reading a damaged file of a run directory into one clear `ConfigError`."""
    try:
        yield
    except _DAMAGE as exc:
        raise ConfigError(
            f"{path}: a file of this run directory is damaged ({type(exc).__name__}: "
            f"{_first_line(exc)}); {ADVICE}"
        ) from exc


@contextlib.contextmanager
def polars_errors(path: Path | str) -> Iterator[None]:
    """Map an `OSError`, also one that polars wraps, to an error of ours that names `path`."""
    with os_errors(path):
        try:
            yield
        except pl.exceptions.PolarsError as exc:
            if number := re.search(r"\(os error (\d+)\)", str(exc)):
                raise OSError(int(number[1]), os.strerror(int(number[1]))) from exc
            if "transport error" in str(exc):  # what polars makes of some failed writes
                raise OSError(errno.EFBIG, "") from exc
            raise ConfigError(f"{path}: {_first_line(exc)}") from exc


def _first_line(exc: Exception) -> str:
    """The message of polars or the system, in one line without Python's `[Errno 28]`."""
    return reason(exc) if isinstance(exc, OSError) else str(exc).strip().partition("\n")[0]


class Checksum(NamedTuple):
    """The size of a file in bytes, and their CRC-32."""

    size: int
    crc: int

    @classmethod
    def of(cls, path: Path) -> Checksum:
        """The checksum of a file."""
        size = crc = 0
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                size, crc = size + len(block), zlib.crc32(block, crc)
        return cls(size, crc)


class Part(NamedTuple):
    """The file of the rows of one table that a step made of a chunk."""

    table: str
    chunk: int
    step: str
    rows: int
    checksum: Checksum

    @property
    def name(self) -> str:
        """Its path in the run directory."""
        return f"{self.table}/part-{self.chunk:06d}-{self.step}.parquet"


class DamagedPart(ConfigError):
    """A part that is missing or not what was written."""

    def __init__(self, path: Path, why: str, part: Part) -> None:
        super().__init__(f"{path}: {why}; {ADVICE}")
        self.path, self.why, self.part = path, why, part


def write_part(folder: Path, table: str, chunk: int, step: str, rows: pl.DataFrame) -> Part:
    """Write the rows of a table that a step made of a chunk."""
    part = Part(table, chunk, step, rows.height, Checksum(0, 0))
    path = folder / part.name
    with os_errors(path.parent):
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder)
    if table in TABLES:
        rows = rows.match_to_schema(TABLES[table].schema)
    with atomic_path(path) as temporary, polars_errors(path):
        rows.write_parquet(temporary, compression="zstd")
        return part._replace(checksum=Checksum.of(temporary))


def remove_others(folder: Path, names: Collection[str]) -> None:
    """Remove every part but these: a kill leaves parts that do not count yet, or no more."""
    for table in PART_TABLES:
        with os_errors(folder / table):
            paths = list((folder / table).iterdir()) if (folder / table).is_dir() else []
        ours = [path for path in paths if _FILE_NAME.fullmatch(path.name)]
        remove_files(path for path in ours if f"{table}/{path.name}" not in names)


def damage_of(folder: Path, part: Part, *, deep: bool = True) -> DamagedPart | None:
    """What is wrong with a part: it is missing, has another size than it was written with or, with
    `deep`, other bytes. A flipped bit gives other values as often as an error of the reader."""
    path, expected = folder / part.name, part.checksum
    with os_errors(path):
        if not path.is_file():
            return DamagedPart(path, "missing", part)
        checksum = Checksum.of(path) if deep else Checksum(path.stat().st_size, expected.crc)
    if checksum != expected:
        return DamagedPart(path, "damaged: not what was written", part)
    return None


def read_part(folder: Path, part: Part) -> pl.DataFrame:
    """The rows of a part; `DamagedPart` where it is missing or damaged."""
    path, filled = folder / part.name, TABLES[part.table].filled if part.table in TABLES else ()
    scan = scan_parts(folder, part.table, [part])
    try:
        rows = scan.collect()
        if rows.height != part.rows or any(rows[name].null_count() for name in filled):
            raise ValueError("not the rows it had")
    except (OSError, ValueError, pl.exceptions.PolarsError) as exc:
        raise DamagedPart(path, f"damaged: {_first_line(exc)}", part) from exc
    return rows


def scan_parts(folder: Path, table: str, parts: Sequence[Part]) -> pl.LazyFrame:
    """The rows of these parts of a table, in this order, without loading them; `DamagedPart` where
    one is missing or damaged."""
    for part in parts:
        if damage := damage_of(folder, part):
            raise damage
    if not parts:
        return empty(table)
    schema = TABLES[table].schema if table in TABLES else None
    paths = [folder / part.name for part in parts]
    return pl.scan_parquet(paths, glob=False, schema=schema, missing_columns="insert")


def empty(table: str) -> pl.LazyFrame:
    """No row of a table; without columns where these are the user's."""
    return TABLES[table].empty().lazy() if table in TABLES else pl.LazyFrame()


# scores.parquet


def write_scores(folder: Path, frames: Iterable[pl.DataFrame], scratch: Path) -> None:
    """Replace scores.parquet; the bytes depend on the rows alone.

    Each frame is first a scratch part, so that memory holds one of them. `scratch` is a folder of
    this function alone.
    """
    path = folder / SCORES_FILE
    with os_errors(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
    try:
        parts: list[Path] = []
        for frame in itertools.chain([SCORES.empty()], frames):
            parts.append(scratch / f"part-{len(parts):06d}.parquet")
            with polars_errors(parts[-1]):
                frame.select(SCORES.schema.keys()).write_parquet(parts[-1], compression="lz4")
        with atomic_path(path) as temporary, polars_errors(path):
            rows = pl.scan_parquet(parts, glob=False)
            rows.sink_parquet(temporary, compression="zstd", row_group_size=ROW_GROUP)
            checksum = Checksum.of(temporary)
            remove_files([folder / SCORES_CHECKSUM])
        write_text(folder / SCORES_CHECKSUM, json.dumps(checksum) + "\n")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def scan_scores(folder: Path) -> pl.LazyFrame | None:
    """The rows of scores.parquet, None where there is none; `ConfigError` where it is not what was
    written."""
    path = folder / SCORES_FILE
    known: Any = None
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        known = json.loads((folder / SCORES_CHECKSUM).read_bytes())
    with os_errors(path):
        if not path.exists():
            return None
        if known is not None and known != list(Checksum.of(path)):
            raise ConfigError(f"{path}: damaged: not what was written; {ADVICE}")
    return pl.scan_parquet(path, glob=False)
