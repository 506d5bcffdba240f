"""The tables of one chunk, as whoever works on it sees them, in whichever process that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import polars as pl

from claimscore.rundir.index import Merged, Place
from claimscore.rundir.parts import PartFiles
from claimscore.storage import open_folder

if TYPE_CHECKING:
    from claimscore.rundir.directory import RunDirectory

#: Rows in a file of their own; or rows, offset and the chunks and generation of a merged file.
Lies: TypeAlias = int | Sequence[int]


class ChunkFiles(Protocol):
    """Reads and writes the tables of one chunk of a run. Threads may share it."""

    @property
    def chunk(self) -> int:
        """Its number, from 0 on."""

    def read(self, table: str) -> pl.DataFrame:
        """The rows of a table that the finished steps of this chunk wrote; empty where none did.

        `ConfigError` where a part is missing or damaged.
        """

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        """Write what a step made of the chunk, and make the step count as finished."""


@dataclasses.dataclass(frozen=True, slots=True)
class WriterChunk:
    """The `ChunkFiles` of the process that holds the lock of the run directory."""

    directory: RunDirectory
    chunk: int

    def read(self, table: str) -> pl.DataFrame:
        return self.directory.read(table, self.chunk)

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        self.directory.write_parts(self.chunk, step, frames)


class WorkerChunk:
    """The `ChunkFiles` of a process that does not hold the lock of the run directory.

    `finished` are the steps of the chunk that are finished, each with where its rows lie by
    table, as `RunDirectory.finished` gives them: plain data, which JSON may carry. What is
    written here is read here, and counts for everybody once the process with the lock has called
    `RunDirectory.finish_written` with what stands in `written`; until then it is as if it were
    not there.
    """

    def __init__(
        self, where: Path | str, chunk: int, finished: Mapping[str, Mapping[str, Lies]]
    ) -> None:
        self._parts = PartFiles(open_folder(where))
        self._chunk = chunk
        self._places = {
            step: {table: _place(chunk, step, lies) for table, lies in tables.items()}
            for step, tables in finished.items()
        }
        self.written: dict[str, dict[str, int]] = {}

    @property
    def chunk(self) -> int:
        return self._chunk

    def read(self, table: str) -> pl.DataFrame:
        places = dict(self._places)
        wrote = [of for step in sorted(places) if (of := places[step].get(table)) and of.rows]
        return self._parts.read(table, wrote)

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        rows = self._parts.write(self._chunk, step, frames)
        self.written[step] = rows
        self._places[step] = {
            table: _place(self._chunk, step, count) for table, count in rows.items()
        }


def plain(place: Place) -> Lies:
    """Where rows lie, as JSON may carry it."""
    return place.rows if place.file is None else (place.rows, place.offset, *place.file)


def _place(chunk: int, step: str, lies: Lies) -> Place:
    if isinstance(lies, int):
        return Place(chunk, step, None, 0, lies)
    rows, offset, *file = lies
    return Place(chunk, step, Merged(*file), offset, rows)
