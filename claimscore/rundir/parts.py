"""Parts: the Parquet files that hold what steps wrote.

    records/part-000000.parquet            one part a chunk of records
    <table>/part-000000-<step>.parquet     one part a chunk and step that writes the table

Nothing here knows whether a step is finished: who reads names the parts, and what names no
part is never looked for. A part is written whole or not at all, so a process without the lock
may write parts too: they count when the process with the lock says so.
"""

from __future__ import annotations

import concurrent.futures
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.errors import ConfigError
from claimscore.rundir.damage import ADVICE, why
from claimscore.storage import Folder
from claimscore.tables import TABLES

#: Tables that one step alone writes: their parts do not name it.
SINGLE_STEP_TABLES = frozenset({"records"})

#: Objects of a store that are got at the same time.
_AT_ONCE = 16

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_STEP_NAME = re.compile(r"[a-z][a-z0-9_.-]*")


class Written(NamedTuple):
    """What a step wrote for a chunk."""

    chunk: int
    step: str


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

    def read(self, table: str, parts: Sequence[Written]) -> pl.DataFrame:
        """The rows of these parts, in this order; `ConfigError` where one is missing or damaged."""
        names = [_name(table, *part) for part in parts]
        if not names:
            return empty(table).collect()
        try:
            return _scan(table, self._sources(names)).collect()
        except (OSError, pl.exceptions.PolarsError):
            return pl.concat([self._read_one(table, name) for name in names])

    def scan(self, table: str, parts: Sequence[Written]) -> pl.LazyFrame:
        """The rows of these parts, in this order, without loading them."""
        addresses = [self._folder.address(_name(table, *part)) for part in parts]
        return _scan(table, addresses) if addresses else empty(table)

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
        try:
            return _scan(table, self._sources([name])).collect()
        except (OSError, pl.exceptions.PolarsError) as exc:
            raise ConfigError(
                f"{self._folder.address(name)}: missing or damaged: {why(exc)}; {ADVICE}"
            ) from exc


def empty(table: str) -> pl.LazyFrame:
    """No row of a table; without columns where these are the user's."""
    return TABLES[table].empty().lazy() if table in TABLES else pl.LazyFrame()


def _name(table: str, chunk: int, step: str) -> str:
    suffix = "" if table in SINGLE_STEP_TABLES else f"-{step}"
    return f"{table}/part-{chunk:06d}{suffix}.parquet"


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
