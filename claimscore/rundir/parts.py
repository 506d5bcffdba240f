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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from claimscore.atomic import atomic_path, os_errors
from claimscore.errors import ConfigError
from claimscore.rundir.damage import ADVICE, polars_errors, why
from claimscore.rundir.index import Merged, Place
from claimscore.storage import Folder
from claimscore.tables import TABLES

#: Tables that one step alone writes: their parts do not name it.
SINGLE_STEP_TABLES = frozenset({"records"})

#: Objects of a store that are got at the same time.
_AT_ONCE = 16

#: A merged file has at most so many row groups, each of at least so many rows: who reads one
#: chunk of it decodes little more than that.
_ROW_GROUPS, _LEAST_ROW_GROUP = 64, 64

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_STEP_NAME = re.compile(r"[a-z][a-z0-9_.-]*")


class PartFiles:
    """The parts in a folder. Threads may write and read different ones at once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def write(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> dict[str, int]:
        """Write what a step made of a chunk, in place of what is there; the rows of each table.

        An empty frame has no file. `ValueError`, before anything is written, where a frame is not
        what its table says.
        """
        frames = checked(step, frames)
        files = {_name(table, chunk, step): frame for table, frame in frames.items()}
        if self._folder.local is not None or len(files) == 1:
            for name, frame in files.items():
                self._write_part(name, frame)
        else:
            with concurrent.futures.ThreadPoolExecutor(len(files)) as pool:
                list(pool.map(self._write_part, files, files.values()))
        return {table: frame.height for table, frame in frames.items()}

    def remove(self, chunk: int, step: str, tables: Iterable[str]) -> None:
        """Take away what a step wrote for a chunk; what is not there is no error."""
        self._folder.delete(*(_name(table, chunk, step) for table in tables))

    def merge(self, table: str, step: str, file: Merged, places: Sequence[Place]) -> None:
        """Write the rows of these places into a merged file; without rows there is none."""
        rows = sum(place.rows for place in places)
        if rows:
            self._sink(table, step, file, self.scan(table, places), rows)

    def write_merged(self, table: str, step: str, file: Merged, frame: pl.DataFrame) -> None:
        """Write a merged file of rows that stand nowhere yet."""
        (frame,) = checked(step, {table: frame}).values()
        self._sink(table, step, file, frame.lazy(), frame.height)

    def _sink(self, table: str, step: str, file: Merged, rows: pl.LazyFrame, n_rows: int) -> None:
        name = _merged_name(table, step, file)
        with self._writing(name) as path, polars_errors(self._folder.address(name)):
            rows.sink_parquet(
                path,
                compression="zstd",
                row_group_size=max(_LEAST_ROW_GROUP, -(-n_rows // _ROW_GROUPS)),
            )

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
        found = (name for name in self._folder.names(table) if name.startswith(f"{table}/part-"))
        self._folder.delete(*(name for name in found if name not in kept))

    def read(self, table: str, places: Sequence[Place]) -> pl.DataFrame:
        """The rows of these places, in this order; `ConfigError` where a part is missing or
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
        """The rows of these places, in this order, without loading them."""
        if not places:
            return empty(table)
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
        with self._damage_named(name):
            all_of_them = self._scan_merged(
                table, places[0]._replace(offset=first, rows=end - first)
            ).collect()
        if all_of_them.height < end - first:
            raise ConfigError(f"{self._folder.address(name)}: damaged: rows are missing; {ADVICE}")
        return [all_of_them.slice(place.offset - first, place.rows) for place in places]

    def _read_own(self, table: str, places: Sequence[Place]) -> list[pl.DataFrame]:
        names = [_place_name(table, place) for place in places]
        try:
            frame = _scan(table, self._sources(names)).collect()
        except (OSError, pl.exceptions.PolarsError):
            return [self._read_one(table, name) for name in names]
        if frame.height != sum(place.rows for place in places):
            return [self._read_one(table, name) for name in names]
        ends = itertools.accumulate(place.rows for place in places)
        return [
            frame.slice(end - place.rows, place.rows)
            for end, place in zip(ends, places, strict=True)
        ]

    def _write_part(self, name: str, frame: pl.DataFrame) -> None:
        if frame.is_empty():
            self._folder.delete(name)
            return
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        self._folder.write(name, buffer.getbuffer())

    def _sources(self, names: Sequence[str]) -> Sequence[object]:
        """Paths on a disk; of a store the contents, each by one request, many at a time."""
        if self._folder.local is not None:
            return [self._folder.address(name) for name in names]
        if len(names) == 1:
            return [io.BytesIO(self._folder.read(names[0]))]
        with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
            return [io.BytesIO(content) for content in pool.map(self._folder.read, names)]

    def _read_one(self, table: str, name: str) -> pl.DataFrame:
        """One part; `ConfigError` that names it where it is missing or damaged."""
        with self._damage_named(name):
            return _scan(table, self._sources([name])).collect()

    @contextlib.contextmanager
    def _damage_named(self, name: str) -> Iterator[None]:
        """What is wrong with a part; of a store it is asked first whether it gives the part."""
        try:
            yield
        except (OSError, pl.exceptions.PolarsError) as exc:
            reason = why(exc)
            if self._folder.local is None:
                with contextlib.suppress(FileNotFoundError):
                    self._folder.stat(name)
                reason = reason if "object-store" not in reason else "it cannot be read there"
            raise ConfigError(
                f"{self._folder.address(name)}: missing or damaged: {reason}; {ADVICE}"
            ) from exc


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
