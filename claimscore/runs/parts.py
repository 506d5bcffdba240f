"""Parts: the Parquet files that hold the rows of the steps.

    records/part-000000.parquet                  one part a chunk of records
    <table>/part-000000-<step>.parquet           one part a chunk and step that writes the table
    <table>/part-000000-000063.1-<step>.parquet  chunks 0 to 63 together (generation 1)

A part is written whole or not at all, and never changed but by doing its step again. It counts
once the manifest names it, so a process without the lock may write parts too.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import itertools
import re
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import polars as pl

from claimscore.atomic import os_errors
from claimscore.errors import ConfigError
from claimscore.runs.damage import ADVICE, polars_errors, why
from claimscore.storage import Storage, open_storage
from claimscore.tables import TABLES

T = TypeVar("T")

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

#: Requests to a store at the same time.
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
    """Reads and writes parts. Threads may share it.

    On a disk a file is compared with its checksum before it is read: a flipped bit gives other
    values as often as an error. A store compares checksums of its own; there only parts of one
    chunk, which are fetched whole anyway, are compared here too.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._compared: set[PartLocation] = set()

    # Writing

    def write(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> PartSet:
        """Write the parts of a step for a chunk, in place of earlier ones.

        An empty frame has no file. `ValueError`, before anything is written, where a frame does
        not have the schema of its table.
        """
        frames = checked(frames)
        parts = {table: PartLocation(table, step, chunk, chunk + 1, 0) for table in frames}
        sums = self._each(self._write_part, parts.values(), frames.values())
        return PartSet.of(
            *(step, chunk, chunk + 1, 0),
            {table: [frame.height] for table, frame in frames.items()},
            {table: found for table, found in zip(frames, sums, strict=True) if found is not None},
        )

    def _write_part(self, part: PartLocation, frame: pl.DataFrame) -> Checksum | None:
        if frame.is_empty():
            self._storage.delete(part.name)
            return None
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        content = buffer.getbuffer()
        self._storage.write(part.name, content)
        return Checksum.of(content)

    def compact(self, part: PartLocation, sources: Sequence[RowRange]) -> Checksum | None:
        """Write the rows of these ranges into one part; without rows there is none."""
        rows = sum(source.rows for source in sources)
        return self.sink(part, self.scan(part.table, sources), rows) if rows else None

    def sink(self, part: PartLocation, rows: pl.LazyFrame, n_rows: int) -> Checksum:
        """Write a part of many chunks without loading its rows."""
        with (
            self._storage.writing(part.name) as path,
            polars_errors(self._storage.address(part.name)),
        ):
            rows.sink_parquet(
                path,
                compression="zstd",
                row_group_size=max(_LEAST_ROW_GROUP, -(-n_rows // _ROW_GROUPS)),
            )
            return Checksum.of_file(path)

    def remove(self, superseded: Iterable[PartSet]) -> None:
        """Remove the files of these sets; a missing one is no error."""
        self._storage.delete(*(part.name for parts in superseded for part in parts.locations()))

    def remove_others(self, parts: Iterable[PartLocation]) -> None:
        """Remove every part but these: a kill leaves parts that do not count yet, or no more."""
        kept = {part.name for part in parts}
        self._storage.delete(*(name for name in self.names() if name not in kept))

    def names(self) -> Iterator[str]:
        """The names of all files that are called as parts are, whether they count or not."""
        return filter(_is_part, self._storage.sizes())

    # Comparing

    def damaged(self, parts: Iterable[PartLocation], *, deep: bool = False) -> list[DamagedPart]:
        """The parts that are missing or have another size than they were written with.

        With `deep` also those with other bytes; in a store, of those only parts of one chunk.
        """
        parts = list(parts)
        sizes: dict[str, int] = {}
        for table in {part.table for part in parts}:
            sizes |= self._storage.sizes(table)
        said = {part: _why_not(sizes.get(part.name), part.checksum) for part in parts}
        found = [self._damage(part, why) for part, why in said.items() if why]
        if deep:
            whole = [part for part, why in said.items() if not why]
            with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
                found += filter(None, pool.map(self._damage_by_reading, whole))
        return found

    def _damage_by_reading(self, part: PartLocation) -> DamagedPart | None:
        try:
            if self._storage.local is not None:
                self.compare(part)
            elif _is_of_one_chunk(part):
                self._content(part)
        except FileNotFoundError:
            return self._damage(part, "missing")
        except DamagedPart as damage:
            return damage
        return None

    def compare(self, part: PartLocation) -> None:
        """`DamagedPart` where a part on a disk is not what was written; a part of several chunks
        is read once."""
        path = self._storage.local
        if path is None or part in self._compared:
            return
        try:
            found = Checksum.of_file(path / part.name)
        except _NO_FILE as exc:
            raise self._damage(part, "missing") from exc
        except OSError as exc:
            with os_errors(path / part.name):
                raise exc
        if found != part.checksum:
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
        for each in ranges:
            by_part.setdefault(each.part, []).append(each)
        found = self._each(self._read_part, by_part.values())
        frames = dict(zip(itertools.chain(*by_part.values()), itertools.chain(*found), strict=True))
        return pl.concat([frames[each] for each in ranges])

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
            raise self._damage_of(part, exc) from exc
        if frame.height != rows:
            raise self._damage(part, "damaged: not the rows it had")
        return [frame.slice(each.offset - first, each.rows) for each in ranges]

    def _content(self, part: PartLocation) -> bytes:
        content = self._storage.read(part.name)
        if Checksum.of(content) != part.checksum:
            raise self._damage(part, _CHANGED)
        return content

    def scan(self, table: str, ranges: Sequence[RowRange]) -> pl.LazyFrame:
        """The rows of these ranges, in this order, without loading them; `DamagedPart` as far as
        damage is seen on a disk."""
        for each in ranges:
            self.compare(each.part)
        scans = []
        for is_small, group in itertools.groupby(ranges, lambda each: _is_of_one_chunk(each.part)):
            if is_small:
                names = [self._storage.address(each.part.name) for each in group]
                scans.append(_scan(table, names))
            else:
                scans += map(self._scan_range, group)
        return pl.concat(scans) if scans else empty(table)

    def _scan_range(self, rows: RowRange) -> pl.LazyFrame:
        address = self._storage.address(rows.part.name)
        return _scan(rows.part.table, [address]).slice(rows.offset, rows.rows)

    def _each(self, call: Callable[..., T], *arguments: Collection[Any]) -> list[T]:
        """The results of a call for each argument; requests to a store go in threads."""
        if self._storage.local is not None or len(arguments[0]) == 1:
            return list(map(call, *arguments))
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(call, *arguments))

    def _damage(self, part: PartLocation, said: str) -> DamagedPart:
        return DamagedPart(self._storage.address(part.name), said, part)

    def _damage_of(self, part: PartLocation, error: Exception) -> DamagedPart:
        """The damage that an error shows; a store is asked first whether it has the part."""
        reason, is_missing = why(error), isinstance(error, _NO_FILE)
        if self._storage.local is None:
            is_missing = not self._storage.exists(part.name)
            reason = reason if "object-store" not in reason else "it cannot be read there"
        return self._damage(part, "missing" if is_missing else f"missing or damaged: {reason}")


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


class WorkerChunk(ChunkFiles):
    """The `ChunkFiles` of a process that does not hold the lock of the run directory.

    `finished` are the finished steps of the chunk, each with its rows, as
    `RunDirectory.finished` gives them. The rows written here can be read here. Every other process
    sees them once the process with the lock has called `RunDirectory.finish_written` with
    `written`; until then they do not count.
    """

    def __init__(
        self, where: Path | str, chunk: int, finished: Mapping[str, Sequence[RowRange]]
    ) -> None:
        super().__init__(chunk, self._read, self._write)
        self._files = PartFiles(open_storage(where))
        self._finished = dict(finished)
        self.written: dict[str, PartSet] = {}

    def _read(self, table: str) -> pl.DataFrame:
        steps = dict(self._finished)
        rows = [each for step in sorted(steps) for each in steps[step] if each.part.table == table]
        return self._files.read(table, rows)

    def _write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        parts = self._files.write(self.chunk, step, frames)
        self._finished[step] = parts.ranges(self.chunk)
        self.written[step] = parts


def _is_of_one_chunk(part: PartLocation) -> bool:
    return part.end - part.first == 1


def _is_part(name: str) -> bool:
    table, _, file = name.partition("/")
    return table in PART_TABLES and _FILE_NAME.fullmatch(file) is not None


def _why_not(size: int | None, expected: Checksum | None) -> str:
    """The damage that a file of this size shows, in words; empty where there is none."""
    if size is None:
        return "missing"
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
