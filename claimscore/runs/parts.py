"""Parts: the Parquet files that hold the rows of the steps.

    records/part-000000.parquet                  one part a chunk of records
    <table>/part-000000-<step>.parquet           one part a chunk and step that writes the table
    <table>/part-000000-000063.1-<step>.parquet  chunks 0 to 63 together (generation 1)

A part is written whole or not at all, and never changed but by doing its step again. It counts
once the manifest names it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import itertools
import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.atomic import atomic_path, os_errors, remove_files, sync_folder, write_bytes
from claimscore.errors import ConfigError
from claimscore.runs.damage import ADVICE, polars_errors, why
from claimscore.tables import TABLES

#: Tables that one step alone writes: their parts do not name it.
SINGLE_STEP_TABLES = frozenset({"records"})

#: All tables of parts: `records` and `columns` have the columns of the user's input.
PART_TABLES = frozenset({*TABLES, "records", "columns"})

#: What a step may be called, and the name of the file of a part in its table's folder.
STEP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
PART_FILE = rf"part-\d{{6,}}(-\d{{6,}}\.\d+)?(-{STEP_NAME.pattern})?\.parquet"
_FILE_NAME = re.compile(PART_FILE)

#: No run has more chunks than this: a billion records in chunks of 64.
MOST_CHUNKS = 1 << 24

#: Files that are compared at the same time.
_AT_ONCE = 16

#: A compacted part has at most so many row groups, each of at least so many rows: reading one
#: chunk of it decodes little more than that chunk.
_ROW_GROUPS, _LEAST_ROW_GROUP = 64, 64

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_CHANGED = "damaged: not what was written"

#: Bytes of a file that are summed at a time.
_BLOCK = 1 << 20


class Checksum(NamedTuple):
    """The size of a file in bytes, and their CRC-32."""

    size: int
    crc: int

    @classmethod
    def of(cls, content: bytes | memoryview) -> Checksum:
        """The checksum of a content."""
        return cls(len(content), zlib.crc32(content))

    @classmethod
    def of_file(cls, path: Path) -> Checksum:
        """The checksum of a file on this machine."""
        size = crc = 0
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                size, crc = size + len(block), zlib.crc32(block, crc)
        return cls(size, crc)


class PartLocation(NamedTuple):
    """One part: rows of `table` by `step` for the chunks `first` to `end` (exclusive).

    A step writes its part of one chunk as generation 0; a compacted part has a later generation,
    one higher for each time that these chunks are compacted again.
    """

    table: str
    step: str
    first: int
    end: int
    generation: int
    checksum: Checksum | None = None

    @property
    def name(self) -> str:
        """The name of its file in the run directory."""
        chunks = f"{self.first:06d}"
        if self.generation:
            chunks += f"-{self.end - 1:06d}.{self.generation}"
        step = "" if self.table in SINGLE_STEP_TABLES else f"-{self.step}"
        return f"{self.table}/part-{chunks}{step}.parquet"


class RowRange(NamedTuple):
    """So many rows of a part from `offset` on: those of `chunk`, or of it and some after it."""

    part: PartLocation
    chunk: int
    offset: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartSet:
    """The parts of one step for the chunks `first` to `end` (exclusive): one a table.

    `starts` has by table the number of rows before each chunk and, at its end, the number of all;
    a table without rows has no part and no checksum.
    """

    step: str
    first: int
    end: int
    generation: int
    starts: Mapping[str, array[int]]
    checksums: Mapping[str, Checksum]

    @classmethod
    def of(
        cls,
        step: str,
        first: int,
        end: int,
        generation: int,
        rows: Mapping[str, Iterable[int]],
        checksums: Mapping[str, Checksum],
    ) -> PartSet:
        """The set with so many rows by table and chunk."""
        starts = {t: array("q", itertools.accumulate(n, initial=0)) for t, n in rows.items()}
        return cls(step, first, end, generation, starts, checksums)

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What the names of its files are made of."""
        return self.step, self.first, self.end, self.generation

    def chunks(self) -> Sequence[int]:
        """The chunks that are in it."""
        return range(self.first, self.end)

    def rows(self, table: str) -> list[int]:
        """The rows of a table by chunk."""
        return [after - before for before, after in itertools.pairwise(self.starts[table])]

    def location(self, table: str) -> PartLocation:
        """The part of a table."""
        return PartLocation(
            table, self.step, self.first, self.end, self.generation, self.checksums.get(table)
        )

    def locations(self) -> list[PartLocation]:
        """The parts that have rows."""
        return [self.location(table) for table in self.checksums]

    def range(self, table: str, first: int, end: int | None = None) -> RowRange | None:
        """The rows of the chunks `first` to `end` (or of one chunk); None where there are none."""
        starts = self.starts.get(table)
        if starts is None:
            return None
        start = starts[first - self.first]
        rows = starts[(end or first + 1) - self.first] - start
        return RowRange(self.location(table), first, start, rows) if rows else None

    def ranges(self, chunk: int) -> list[RowRange]:
        """The rows of one chunk, a range a table that has some."""
        return [found for table in self.starts if (found := self.range(table, chunk))]


class DamagedPart(ConfigError):
    """A part that is missing, or not what was written; `part` is its location."""

    def __init__(self, address: Path | str, why: str, part: PartLocation) -> None:
        super().__init__(f"{address}: {why}; {ADVICE}")
        self.address = address
        self.why = why
        self.part = part

    def __reduce__(self) -> tuple[type[DamagedPart], tuple[Path | str, str, PartLocation]]:
        return DamagedPart, (self.address, self.why, self.part)


class PartFiles:
    """Reads and writes parts in a folder. Threads may share it.

    A file is compared with its checksum before it is read: a flipped bit gives other values as
    often as an error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._compared: set[PartLocation] = set()

    # Writing

    def write(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> PartSet:
        """Write the parts of a step for a chunk, in place of earlier ones.

        An empty frame has no file. `ValueError`, before anything is written, where a frame does
        not have the schema of its table.
        """
        frames = checked(frames)
        parts = {table: PartLocation(table, step, chunk, chunk + 1, 0) for table in frames}
        sums = map(self._write_part, parts.values(), frames.values())
        return PartSet.of(
            *(step, chunk, chunk + 1, 0),
            {table: [frame.height] for table, frame in frames.items()},
            {table: checksum for table, checksum in zip(frames, sums, strict=True) if checksum},
        )

    def _write_part(self, part: PartLocation, frame: pl.DataFrame) -> Checksum | None:
        if frame.is_empty():
            remove_files([self.path(part)])
            return None
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        content = buffer.getbuffer()
        write_bytes(self._path_to_write(part), content)
        return Checksum.of(content)

    def path(self, part: PartLocation) -> Path:
        """The path of its file."""
        return self._folder / part.name

    def _path_to_write(self, part: PartLocation) -> Path:
        """The same, in a folder that is there."""
        path = self.path(part)
        with os_errors(path.parent):
            if not path.parent.exists():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                sync_folder(self._folder)
        return path

    def compact(self, part: PartLocation, sources: Sequence[RowRange]) -> Checksum | None:
        """Write the rows of these ranges into one part; without rows there is none."""
        rows = sum(source.rows for source in sources)
        return self.sink(part, self.scan(part.table, sources), rows) if rows else None

    def sink(self, part: PartLocation, rows: pl.LazyFrame, n_rows: int) -> Checksum:
        """Write a part of many chunks without loading its rows."""
        path = self._path_to_write(part)
        with atomic_path(path) as temporary, polars_errors(path):
            rows.sink_parquet(
                temporary,
                compression="zstd",
                row_group_size=max(_LEAST_ROW_GROUP, -(-n_rows // _ROW_GROUPS)),
            )
            return Checksum.of_file(temporary)

    def remove(self, superseded: Iterable[PartSet]) -> None:
        """Remove the files of these sets; a missing one is no error."""
        remove_files(self.path(part) for parts in superseded for part in parts.locations())

    def remove_others(self, parts: Iterable[PartLocation]) -> None:
        """Remove every part but these: a kill leaves parts that do not count yet, or no more."""
        kept = {part.name for part in parts}
        remove_files(self._folder / name for name in self.names() if name not in kept)

    def names(self) -> Iterator[str]:
        """The names of all files that are called as parts are, whether they count or not."""
        for table in sorted(PART_TABLES):
            folder = self._folder / table
            with os_errors(folder):
                files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
            yield from (f"{table}/{file}" for file in files if _FILE_NAME.fullmatch(file))

    # Comparing

    def damaged(self, parts: Iterable[PartLocation], *, deep: bool = False) -> list[DamagedPart]:
        """The parts that are missing or have another size than they were written with.

        With `deep` also those with other bytes: all are read.
        """
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            looks = pool.map(partial(self._damage_in, deep=deep), parts)
            return [damage for damage in looks if damage is not None]

    def _damage_in(self, part: PartLocation, *, deep: bool) -> DamagedPart | None:
        try:
            size = self.path(part).stat().st_size
            if why_not := _why_not(size, part.checksum):
                return self._damage(part, why_not)
            if deep:
                self.compare(part)
        except _NO_FILE:
            return self._damage(part, "missing")
        except DamagedPart as damage:
            return damage
        return None

    def compare(self, part: PartLocation) -> None:
        """`DamagedPart` where a part is not what was written; a part of several chunks is read
        once."""
        if part in self._compared:
            return
        path = self.path(part)
        try:
            checksum = Checksum.of_file(path)
        except _NO_FILE as exc:
            raise self._damage(part, "missing") from exc
        except OSError as exc:
            with os_errors(path):
                raise exc
        if checksum != part.checksum:
            raise self._damage(part, _CHANGED)
        if not _is_of_one_chunk(part):
            self._compared.add(part)

    # Reading

    def read(self, table: str, ranges: Sequence[RowRange]) -> pl.DataFrame:
        """The rows of these ranges, in this order; `DamagedPart` where a part is missing or
        damaged."""
        if not ranges:
            return empty(table).collect()
        by_part: dict[PartLocation, list[RowRange]] = {}
        for rows in ranges:
            by_part.setdefault(rows.part, []).append(rows)
        frames: dict[RowRange, pl.DataFrame] = {}
        for of_part in by_part.values():
            frames |= zip(of_part, self._read_part(of_part), strict=True)
        return pl.concat([frames[rows] for rows in ranges])

    def _read_part(self, ranges: Sequence[RowRange]) -> list[pl.DataFrame]:
        """The rows of ranges of one part, a frame each."""
        part = ranges[0].part
        first = min(each.offset for each in ranges)
        rows = max(each.offset + each.rows for each in ranges) - first
        try:
            if _is_of_one_chunk(part):
                frame = _scan(part.table, [io.BytesIO(self._content(part))]).collect()
            else:
                self.compare(part)
                frame = self._scan_range(RowRange(part, part.first, first, rows)).collect()
        except (OSError, pl.exceptions.PolarsError) as exc:
            missing = isinstance(exc, _NO_FILE)
            raise self._damage(part, "missing" if missing else f"damaged: {why(exc)}") from exc
        if frame.height != rows:
            raise self._damage(part, "damaged: not the rows it had")
        return [frame.slice(each.offset - first, each.rows) for each in ranges]

    def _content(self, part: PartLocation) -> bytes:
        content = self.path(part).read_bytes()
        if Checksum.of(content) != part.checksum:
            raise self._damage(part, _CHANGED)
        return content

    def scan(self, table: str, ranges: Sequence[RowRange]) -> pl.LazyFrame:
        """The rows of these ranges, in this order, without loading them; `DamagedPart` where a
        part is missing or damaged."""
        for rows in ranges:
            self.compare(rows.part)
        scans = []
        for is_small, group in itertools.groupby(ranges, lambda rows: _is_of_one_chunk(rows.part)):
            if is_small:
                scans.append(_scan(table, [self.path(rows.part) for rows in group]))
            else:
                scans += map(self._scan_range, group)
        return pl.concat(scans) if scans else empty(table)

    def _scan_range(self, rows: RowRange) -> pl.LazyFrame:
        return _scan(rows.part.table, [self.path(rows.part)]).slice(rows.offset, rows.rows)

    def _damage(self, part: PartLocation, why: str) -> DamagedPart:
        return DamagedPart(self.path(part), why, part)


class ChunkFiles:
    """Reads and writes the tables of one chunk of a run. Threads may share it.

    `read` gives the rows of a table that the finished steps of this chunk wrote; empty where none
    did, `ConfigError` where a part is missing or damaged. `write` takes a step and the tables that
    it made of the chunk, and makes the step count as finished.
    """

    def __init__(
        self,
        chunk: int,
        read: Callable[[str], pl.DataFrame],
        write: Callable[[str, Mapping[str, pl.DataFrame]], None],
    ) -> None:
        self.chunk, self.read, self.write = chunk, read, write


def _is_of_one_chunk(part: PartLocation) -> bool:
    return part.end - part.first == 1


def _why_not(size: int, expected: Checksum | None) -> str:
    """The damage that a file of this size shows, in words; empty where there is none."""
    if expected is not None and size != expected.size:
        return f"damaged: {size:,} bytes, not {expected.size:,}" if size else "damaged: empty"
    return ""


def empty(table: str) -> pl.LazyFrame:
    """No row of a table; without columns where these are the user's."""
    return TABLES[table].empty().lazy() if table in TABLES else pl.LazyFrame()


def checked(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The frames with their columns in the order of the tables; `ValueError` where one has another
    schema than its table."""
    found = dict(frames)
    for table in frames.keys() & TABLES.keys():
        schema = TABLES[table].schema
        if frames[table].schema != schema:
            raise ValueError(f"{table}: schema {frames[table].schema}, not {pl.Schema(schema)}")
        found[table] = frames[table].select(schema.keys())
    return found


def _scan(table: str, sources: Sequence[Path | str | io.BytesIO]) -> pl.LazyFrame:
    schema = TABLES[table].schema if table in TABLES else None
    return pl.scan_parquet(list(sources), glob=False, schema=schema)  # type: ignore[arg-type]


def spans(chunks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Chunks as few ranges, each with its first chunk and its end (exclusive)."""
    for _, group in itertools.groupby(enumerate(sorted(chunks)), lambda pair: pair[1] - pair[0]):
        numbers = [chunk for _, chunk in group]
        yield numbers[0], numbers[-1] + 1
