"""The Parquet files of a run directory: the parts that hold the rows of the steps, and the scores.

    <table>/part-000000-<step>.parquet           one part a chunk and step that writes the table
    <table>/part-000000-000063.1-<step>.parquet  chunks 0 to 63 together, compacted

    scores.parquet                               a row a record and metric

A file is written whole or not at all. A part is never changed, and counts once the manifest names
it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import itertools
import json
import os
import re
import shutil
import threading
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
PART_FILE = rf"part-\d{{6,}}(-\d{{6,}}\.\d+)?-{STEP_NAME.pattern}\.parquet"
_FILE_NAME = re.compile(PART_FILE)

#: A part of several chunks has at most so many row groups, each of at least so many rows: reading
#: one chunk decodes little more than that chunk.
_ROW_GROUPS, _LEAST_ROW_GROUP = 64, 64

#: Seconds that a file stays for readers which began before another one took its place.
GRACE_S = 300.0

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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartSet:
    """The parts of one step for the chunks `first` to `end` (exclusive): one a table.

    `generation` is one more than that of the sets whose place it took. `rows` has by table the
    number of rows of each chunk; a table without rows has no part and no checksum.
    """

    step: str
    first: int
    end: int
    generation: int
    rows: Mapping[str, Sequence[int]]
    checksums: Mapping[str, Checksum]

    @property
    def is_of_one_chunk(self) -> bool:
        """Whether it has the rows of a single chunk."""
        return self.end - self.first == 1

    def name(self, table: str) -> str:
        """The name of a table's part in the run directory."""
        chunks = f"{self.first:06d}"
        if self.generation or not self.is_of_one_chunk:
            chunks += f"-{self.end - 1:06d}.{self.generation}"
        return f"{table}/part-{chunks}-{self.step}.parquet"

    def names(self) -> list[str]:
        """The names of its parts."""
        return [self.name(table) for table in self.checksums]

    def range(self, table: str, first: int, end: int) -> RowRange:
        """The rows of a table in the chunks `first` to `end`."""
        counts = self.rows.get(table, ())
        start, stop = first - self.first, end - self.first
        return RowRange(self, table, first, sum(counts[:start]), sum(counts[start:stop]))


class RowRange(NamedTuple):
    """So many rows of a part from `offset` on: those of `chunk`, or of it and some after it."""

    parts: PartSet
    table: str
    chunk: int
    offset: int
    rows: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the part."""
        return self.rows == sum(self.parts.rows[self.table])


class DamagedPart(ConfigError):
    """A part, of `table` in the set `parts`, that is missing or not what was written."""

    def __init__(self, path: Path, why: str, parts: PartSet, table: str) -> None:
        super().__init__(f"{path}: {why}; {ADVICE}")
        self.path, self.why, self.parts, self.table = path, why, parts, table


class PartFiles:
    """Reads and writes parts in a folder. Threads may share it.

    A file is compared with its checksum before it is read: a flipped bit gives other values as
    often as an error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._compared: set[tuple[PartSet, str]] = set()
        #: Names of files that count no more, and when they are removed.
        self._superseded: collections.deque[tuple[float, list[str]]] = collections.deque()
        self._mutex = threading.Lock()

    # Writing

    def write(self, parts: PartSet, rows: Mapping[str, pl.DataFrame | pl.LazyFrame]) -> PartSet:
        """Write the parts of a set, by table; the set with their checksums. A table without rows
        has no file. Rows that are not loaded yet are never all in memory."""
        counts = {table: sum(parts.rows[table]) for table in rows}
        groups = 1 if parts.is_of_one_chunk else _ROW_GROUPS
        sums = {t: self._write(parts.name(t), rows[t], n, groups) for t, n in counts.items() if n}
        return dataclasses.replace(parts, checksums=sums)

    def _write(
        self, name: str, rows: pl.DataFrame | pl.LazyFrame, n_rows: int, n_groups: int
    ) -> Checksum:
        path = self._folder / name
        with os_errors(path.parent):
            if not path.parent.exists():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                sync_folder(self._folder)
        size = max(_LEAST_ROW_GROUP, -(-n_rows // n_groups))
        table = TABLES.get(path.parent.name)
        if table is not None:
            rows = rows.match_to_schema(table.schema)
        with atomic_path(path) as temporary, polars_errors(path):
            write = rows.write_parquet if isinstance(rows, pl.DataFrame) else rows.sink_parquet
            write(temporary, compression="zstd", row_group_size=size)
            return Checksum.of(temporary)

    def remove(self, superseded: Iterable[PartSet], *, now: bool = False) -> None:
        """Remove the files of these sets, but for `now` only after `GRACE_S`: readers may have
        begun with them. A missing one is no error.

        Names are given again only once steps were undone: these want `now`.
        """
        names = [name for parts in superseded for name in parts.names()]
        with self._mutex:
            self._superseded.append((time.monotonic() + GRACE_S, names))
            while self._superseded and (now or self._superseded[0][0] <= time.monotonic()):
                remove_files(self._folder / name for name in self._superseded.popleft()[1])

    def remove_others(self, names: Collection[str]) -> None:
        """Remove every part but these: a kill leaves parts that do not count yet, or no more."""
        for table in PART_TABLES:
            folder = self._folder / table
            with os_errors(folder):
                paths = list(folder.iterdir()) if folder.is_dir() else []
            ours = [path for path in paths if _FILE_NAME.fullmatch(path.name)]
            remove_files(path for path in ours if f"{table}/{path.name}" not in names)

    # Reading

    def damage(self, parts: PartSet, table: str, *, deep: bool = True) -> DamagedPart | None:
        """What is wrong with a part: it is missing, has another size than it was written with or,
        with `deep`, other bytes. A whole part of many chunks is read once."""
        if (parts, table) in self._compared:
            return None
        path, expected = self._folder / parts.name(table), parts.checksums[table]
        with os_errors(path):
            if not path.is_file():
                return DamagedPart(path, "missing", parts, table)
            checksum = Checksum.of(path) if deep else Checksum(path.stat().st_size, expected.crc)
        if checksum != expected:
            return DamagedPart(path, "damaged: not what was written", parts, table)
        if deep and not parts.is_of_one_chunk:
            self._compared.add((parts, table))
        return None

    def read(self, table: str, ranges: Sequence[RowRange]) -> pl.DataFrame:
        """The rows of these ranges, in this order; each part is read once. Raises as `scan`."""
        by_set: dict[PartSet, list[RowRange]] = {}
        for rows in ranges:
            by_set.setdefault(rows.parts, []).append(rows)
        frames: dict[RowRange, pl.DataFrame] = {}
        for parts, of_set in by_set.items():
            first = min(rows.offset for rows in of_set)
            height = max(rows.offset + rows.rows for rows in of_set) - first
            span = of_set[0]._replace(offset=first, rows=height)
            try:
                frame = self.scan(table, [span]).collect()
                filled = TABLES[table].filled if table in TABLES else ()
                if frame.height != height or any(frame[name].null_count() for name in filled):
                    raise ValueError("not the rows it had")
            except (OSError, ValueError, pl.exceptions.PolarsError) as exc:
                path, why = self._folder / parts.name(table), f"damaged: {_first_line(exc)}"
                raise DamagedPart(path, why, parts, table) from exc
            frames |= {rows: frame.slice(rows.offset - first, rows.rows) for rows in of_set}
        return pl.concat([frames[rows] for rows in ranges])

    def scan(self, table: str, ranges: Sequence[RowRange]) -> pl.LazyFrame:
        """The rows of these ranges, in this order, without loading them; `DamagedPart` where a
        part is missing or damaged."""
        for rows in ranges:
            if damage := self.damage(rows.parts, table):
                raise damage
        scans = []
        for is_whole, group in itertools.groupby(ranges, lambda rows: rows.is_whole):
            if is_whole:
                scans.append(self._scan(table, [rows.parts for rows in group]))
            else:
                scans += [self._scan(table, [r.parts]).slice(r.offset, r.rows) for r in group]
        return pl.concat(scans) if scans else empty(table)

    def _scan(self, table: str, sets: Sequence[PartSet]) -> pl.LazyFrame:
        schema = TABLES[table].schema if table in TABLES else None
        paths = [self._folder / parts.name(table) for parts in sets]
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
