"""Parts: the Parquet files that hold what steps wrote.

    records/part-000000.parquet                  one part a chunk of records
    <table>/part-000000-<step>.parquet           one part a chunk and step that writes the table
    <table>/part-000000-000063.1-<step>.parquet  the same of chunks 0 to 63 (generation 1)

Nothing here knows whether a step is finished: who reads names the parts, and what names no
part is never looked for. A part is written whole or not at all, so a process without the lock
may write parts too: they count when the process with the lock says so.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import itertools
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.atomic import atomic_path, os_errors
from claimscore.runs.damage import DamagedPart, polars_errors, why
from claimscore.runs.index import Merged, Place, Sum
from claimscore.storage import Storage
from claimscore.tables import TABLES

#: Tables that one step alone writes: their parts do not name it.
SINGLE_STEP_TABLES = frozenset({"records"})

#: Objects of a store that are got at the same time.
_AT_ONCE = 16

#: A merged file has at most so many row groups, each of at least so many rows: who reads one
#: chunk of it decodes little more than that.
_ROW_GROUPS, _LEAST_ROW_GROUP = 64, 64

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_CHANGED = "damaged: not what was written"

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_STEP_NAME = re.compile(r"[a-z][a-z0-9_.-]*")


#: Bytes of a file that are summed at a time.
_BLOCK = 1 << 20


class Written(NamedTuple):
    """The rows of each table, and the sums of the files that there are."""

    rows: dict[str, int]
    sums: dict[str, Sum]


class PartFiles:
    """The parts in a folder. Threads may write and read different ones at once.

    What is read on a disk is compared with its sum first: a flipped bit in a Parquet file gives
    other values as often as an error. A store compares what it keeps with sums of its own; there
    only parts of one chunk, which are got whole anyway, are compared here too.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder
        self._compared: set[tuple[str, Sum]] = set()

    def write(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> Written:
        """Write what a step made of a chunk, in place of what is there.

        An empty frame has no file. `ValueError`, before anything is written, where a frame is not
        what its table says.
        """
        frames = checked(step, frames)
        files = {_name(table, chunk, step): frame for table, frame in frames.items()}
        if self._folder.local is not None or len(files) == 1:
            sums = [self._write_part(name, frame) for name, frame in files.items()]
        else:
            with concurrent.futures.ThreadPoolExecutor(len(files)) as pool:
                sums = list(pool.map(self._write_part, files, files.values()))
        return Written(
            {table: frame.height for table, frame in frames.items()},
            {table: found for table, found in zip(frames, sums, strict=True) if found is not None},
        )

    def remove(self, chunk: int, step: str, tables: Iterable[str]) -> None:
        """Take away what a step wrote for a chunk; what is not there is no error."""
        self._folder.delete(*(_name(table, chunk, step) for table in tables))

    def merge(self, table: str, step: str, file: Merged, places: Sequence[Place]) -> Sum | None:
        """Write the rows of these places into a merged file; without rows there is none."""
        rows = sum(place.rows for place in places)
        return self._sink(table, step, file, self.scan(table, places), rows) if rows else None

    def write_merged(self, table: str, step: str, file: Merged, frame: pl.DataFrame) -> Sum:
        """Write a merged file of rows that stand nowhere yet."""
        (frame,) = checked(step, {table: frame}).values()
        return self._sink(table, step, file, frame.lazy(), frame.height)

    def _sink(self, table: str, step: str, file: Merged, rows: pl.LazyFrame, n_rows: int) -> Sum:
        name = _merged_name(table, step, file)
        with self._writing(name) as path, polars_errors(self._folder.address(name)):
            rows.sink_parquet(
                path,
                compression="zstd",
                row_group_size=max(_LEAST_ROW_GROUP, -(-n_rows // _ROW_GROUPS)),
            )
            return sum_of_file(path)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """A path on this machine; what is written there is the file when the block ends."""
        if self._folder.local is None:
            with tempfile.TemporaryDirectory(prefix="claimscore-") as scratch:
                path = Path(scratch) / "part.parquet"
                yield path
                self._folder.upload(name, path)
            return
        path = self._folder.local / name
        with os_errors(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        with atomic_path(path) as temporary:
            yield temporary

    def remove_merged(self, step: str, file: Merged, tables: Iterable[str]) -> None:
        """Take away merged files; what is not there is no error."""
        self._folder.delete(*(_merged_name(table, step, file) for table in tables))

    def remove_others(self, table: str, places: Iterable[Place]) -> None:
        """Take away every part of a table but these: what a kill left between writing parts and
        making them count, or between counting others and removing them."""
        kept = {_place_name(table, place) for place in places}
        begin = f"{table}/part-"
        found = [name for name in self._folder.names(table) if name.startswith(begin)]
        self._folder.delete(*(n for n in found if n not in kept and "/" not in n[len(begin) :]))

    def damaged(
        self, table: str, places: Iterable[Place], *, deep: bool = False
    ) -> list[DamagedPart]:
        """The files of these places that are missing or have another size than they were written
        with; with `deep` also those with other bytes, in a store those of one chunk alone."""
        by_name = {_place_name(table, place): place for place in places}
        sizes = self._folder.sizes(table)
        said = {name: _why_not(sizes.get(name), place.sum) for name, place in by_name.items()}
        found = [self._damage(name, why, table, by_name[name]) for name, why in said.items() if why]
        if deep:
            whole = [place for name, place in by_name.items() if not said[name]]
            with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
                read = pool.map(lambda place: self._found_by_reading(table, place), whole)
                found += itertools.chain.from_iterable(read)
        return found

    def _found_by_reading(self, table: str, place: Place) -> list[DamagedPart]:
        try:
            if self._folder.local is not None:
                self.compare(table, place)
            elif place.file is None:
                self._sources(table, [place])
        except DamagedPart as damage:
            return [damage]
        return []

    def compare(self, table: str, place: Place) -> None:
        """`DamagedPart` where a file on a disk is not what was written."""
        self._compare(table, _place_name(table, place), place)

    def _compare(self, table: str, name: str, place: Place) -> None:
        """`DamagedPart` where a file on a disk is not what was written; one of several chunks is
        looked at once."""
        path = self._folder.local
        if path is None or place.sum is None or (name, place.sum) in self._compared:
            return
        try:
            found = sum_of_file(path / name)
        except _NO_FILE as exc:
            raise self._damage(name, "missing", table, place) from exc
        except OSError as exc:
            with os_errors(path / name):
                raise exc
        if found != place.sum:
            raise self._damage(name, _CHANGED, table, place)
        if place.file is not None:
            self._compared.add((name, place.sum))

    def _damage(self, name: str, said: str, table: str, place: Place) -> DamagedPart:
        return DamagedPart(self._folder.address(name), said, table, place)

    def read(self, table: str, places: Sequence[Place]) -> pl.DataFrame:
        """The rows of these places, in this order; `DamagedPart` where a part is missing or
        damaged."""
        if not places:
            return empty(table).collect()
        by_file: dict[tuple[str, Merged] | None, list[Place]] = {}
        for place in places:
            by_file.setdefault(place.file and (place.step, place.file), []).append(place)
        frames: dict[Place, pl.DataFrame] = {}
        for together in by_file.values():
            frames.update(zip(together, self._read_together(table, together), strict=True))
        return pl.concat([frames[place] for place in places])

    def scan(self, table: str, places: Sequence[Place]) -> pl.LazyFrame:
        """The rows of these places, in this order, without loading them; `DamagedPart` as far as
        that is seen on a disk."""
        if not places:
            return empty(table)
        for place in places:
            self._compare(table, _place_name(table, place), place)
        scans = []
        for is_own, group in itertools.groupby(places, lambda place: place.file is None):
            if is_own:
                names = [_place_name(table, place) for place in group]
                scans.append(_scan(table, [self._folder.address(name) for name in names]))
            else:
                scans += [self._scan_merged(table, place) for place in group]
        return scans[0] if len(scans) == 1 else pl.concat(scans)

    def _scan_merged(self, table: str, place: Place) -> pl.LazyFrame:
        address = self._folder.address(_place_name(table, place))
        return _scan(table, [address]).slice(place.offset, place.rows)

    def _read_together(self, table: str, places: Sequence[Place]) -> list[pl.DataFrame]:
        """The rows of places that lie in one merged file, or all in files of their own."""
        if places[0].file is None:
            return self._read_own(table, places)
        first = min(place.offset for place in places)
        end = max(place.offset + place.rows for place in places)
        name = _place_name(table, places[0])
        with self._damage_named(name, table, places[0]):
            self._compare(table, name, places[0])
            all_of_them = self._scan_merged(
                table, places[0]._replace(offset=first, rows=end - first)
            ).collect()
        if all_of_them.height < end - first:
            raise self._damage(name, "damaged: rows are missing", table, places[0])
        return [all_of_them.slice(place.offset - first, place.rows) for place in places]

    def _read_own(self, table: str, places: Sequence[Place]) -> list[pl.DataFrame]:
        try:
            frame = _scan(table, self._sources(table, places)).collect()
        except (OSError, pl.exceptions.PolarsError):
            return [self._read_one(table, place) for place in places]
        if frame.height != sum(place.rows for place in places):
            return [self._read_one(table, place) for place in places]
        ends = itertools.accumulate(place.rows for place in places)
        return [
            frame.slice(end - place.rows, place.rows)
            for end, place in zip(ends, places, strict=True)
        ]

    def _write_part(self, name: str, frame: pl.DataFrame) -> Sum | None:
        if frame.is_empty():
            self._folder.delete(name)
            return None
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        content = buffer.getbuffer()
        self._folder.write(name, content)
        return Sum(len(content), zlib.crc32(content))

    def _sources(self, table: str, places: Sequence[Place]) -> Sequence[io.BytesIO]:
        """The contents of parts of one chunk; of a store many are got at a time."""

        def content(place: Place) -> io.BytesIO:
            name = _place_name(table, place)
            found = self._folder.read(name)
            if place.sum not in (None, Sum(len(found), zlib.crc32(found))):
                raise self._damage(name, _CHANGED, table, place)
            return io.BytesIO(found)

        if self._folder.local is not None or len(places) == 1:
            return [content(place) for place in places]
        with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(places))) as pool:
            return list(pool.map(content, places))

    def _read_one(self, table: str, place: Place) -> pl.DataFrame:
        """One part; `DamagedPart` that names it where it is missing or damaged."""
        with self._damage_named(_place_name(table, place), table, place):
            frame = _scan(table, self._sources(table, [place])).collect()
        if frame.height != place.rows:
            raise self._damage(
                _place_name(table, place), "damaged: not the rows it had", table, place
            )
        return frame

    @contextlib.contextmanager
    def _damage_named(self, name: str, table: str, place: Place) -> Iterator[None]:
        """The damage of a part, in words; a store is asked first whether it gives the part."""
        try:
            yield
        except (OSError, pl.exceptions.PolarsError) as exc:
            reason, is_gone = why(exc), isinstance(exc, _NO_FILE)
            if self._folder.local is None:
                is_gone = not self._folder.exists(name)
                reason = reason if "object-store" not in reason else "it cannot be read there"
            said = "missing" if is_gone else f"missing or damaged: {reason}"
            raise self._damage(name, said, table, place) from exc


def _why_not(size: int | None, expected: Sum | None) -> str:
    """The damage that a file of this size shows, in words; empty where there is none."""
    if size is None:
        return "missing"
    if expected is not None and size != expected.size:
        return f"damaged: {size:,} bytes, not {expected.size:,}"
    return "" if size else "damaged: empty"


def sum_of_file(path: Path) -> Sum:
    """The sum of a file on this machine."""
    size = crc = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return Sum(size, crc)


def empty(table: str) -> pl.LazyFrame:
    """No row of a table; without columns where these are the user's."""
    return TABLES[table].empty().lazy() if table in TABLES else pl.LazyFrame()


def _name(table: str, chunk: int, step: str) -> str:
    return f"{table}/part-{chunk:06d}{_suffix(table, step)}.parquet"


def _merged_name(table: str, step: str, file: Merged) -> str:
    chunks = f"{file.first:06d}-{file.end - 1:06d}.{file.generation}"
    return f"{table}/part-{chunks}{_suffix(table, step)}.parquet"


def _place_name(table: str, place: Place) -> str:
    if place.file is None:
        return _name(table, place.chunk, place.step)
    return _merged_name(table, place.step, place.file)


def _suffix(table: str, step: str) -> str:
    return "" if table in SINGLE_STEP_TABLES else f"-{step}"


def checked(step: str, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The frames with their columns in the order of the tables.

    `ValueError` where one is not what its table says, or step or table cannot be names of files.
    """
    if not _STEP_NAME.fullmatch(step):
        raise ValueError(f"not a name for a step: {step!r}")
    found = {}
    for table, frame in frames.items():
        if not _NAME.fullmatch(table):
            raise ValueError(f"not a name for a table: {table!r}")
        found[table] = frame
        if table in TABLES:
            schema = TABLES[table].schema
            if frame.schema != schema:
                raise ValueError(f"{table}: schema {frame.schema}, not {pl.Schema(schema)}")
            found[table] = frame.select(schema.keys())
    return found


def _scan(table: str, sources: Sequence[object]) -> pl.LazyFrame:
    found: list[object] = list(sources)
    if table not in TABLES:
        return pl.scan_parquet(found, glob=False)  # type: ignore[arg-type]  # paths or contents
    # A column that an older claimscore did not write is null, one of a newer is left out.
    return pl.scan_parquet(
        found,  # type: ignore[arg-type]  # paths or contents
        glob=False,
        schema=TABLES[table].schema,
        missing_columns="insert",
        extra_columns="ignore",
    )
