"""The tables of one chunk, as a worker sees them, in whichever process it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import polars as pl

from claimscore.runs.index import Merged, Place, Sum
from claimscore.runs.parts import PartFiles, Written
from claimscore.storage import open_storage

if TYPE_CHECKING:
    from claimscore.runs.directory import RunDirectory

#: Rows in a file of their own, and the two numbers of its sum where that is known; or rows,
#: offset, the chunks and generation of a merged file, and its sum.
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
    written here is read here, and counts for every process once the one with the lock has called
    `RunDirectory.finish_written` with what stands in `written`; until then it is as if it were
    not there.
    """

    def __init__(
        self, where: Path | str, chunk: int, finished: Mapping[str, Mapping[str, Lies]]
    ) -> None:
        self._parts = PartFiles(open_storage(where))
        self._chunk = chunk
        self._places = {
            step: {table: _place(chunk, step, lies) for table, lies in tables.items()}
            for step, tables in finished.items()
        }
        self.written: dict[str, dict[str, Lies]] = {}

    @property
    def chunk(self) -> int:
        return self._chunk

    def read(self, table: str) -> pl.DataFrame:
        places = dict(self._places)
        wrote = [of for step in sorted(places) if (of := places[step].get(table)) and of.rows]
        return self._parts.read(table, wrote)

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        rows, sums = self._parts.write(self._chunk, step, frames)
        self._places[step] = {
            table: Place(self._chunk, step, None, 0, count, sums.get(table))
            for table, count in rows.items()
        }
        self.written[step] = {table: plain(place) for table, place in self._places[step].items()}


def plain(place: Place) -> Lies:
    """Where rows lie, as JSON may carry it."""
    merged = () if place.file is None else (place.offset, *place.file)
    lies = (place.rows, *merged, *(place.sum or ()))
    return lies if len(lies) > 1 else place.rows


def own(tables: Mapping[str, Lies]) -> Written | None:
    """The rows and sums of parts that are this chunk's alone; None where some lie elsewhere."""
    places = {table: _place(0, "", lies) for table, lies in tables.items()}
    if any(place.file is not None for place in places.values()):
        return None
    return Written(
        {table: place.rows for table, place in places.items()},
        {table: place.sum for table, place in places.items() if place.sum is not None},
    )


def _place(chunk: int, step: str, lies: Lies) -> Place:
    rows, *rest = [lies] if isinstance(lies, int) else lies
    found = Sum(*rest[-2:]) if len(rest) in (2, 6) else None
    if len(rest) < 4:
        return Place(chunk, step, None, 0, rows, found)
    offset, *file = rest[:4]
    return Place(chunk, step, Merged(*file), offset, rows, found)
