"""The tables of one chunk, as a worker in any process sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import polars as pl

from claimscore.runs.parts import PartFiles, PartSet, RowRange
from claimscore.storage import open_storage


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
        """Write the tables that a step made of the chunk, and make the step count as finished."""


class WorkerChunk:
    """The `ChunkFiles` of a process that does not hold the lock of the run directory.

    `finished` are the finished steps of the chunk, each with its rows, as
    `RunDirectory.finished` gives them. The rows written here can be read here. Every other process
    sees them once the process with the lock has called `RunDirectory.finish_written` with
    `written`; until then they do not count.
    """

    def __init__(
        self, where: Path | str, chunk: int, finished: Mapping[str, Sequence[RowRange]]
    ) -> None:
        self._files = PartFiles(open_storage(where))
        self._chunk = chunk
        self._finished = dict(finished)
        self.written: dict[str, PartSet] = {}

    @property
    def chunk(self) -> int:
        """Its number."""
        return self._chunk

    def read(self, table: str) -> pl.DataFrame:
        """As `ChunkFiles.read`."""
        steps = dict(self._finished)
        rows = [each for step in sorted(steps) for each in steps[step] if each.part.table == table]
        return self._files.read(table, rows)

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        """As `ChunkFiles.write`; the step counts after `RunDirectory.finish_written`."""
        parts = self._files.write(self._chunk, step, frames)
        self._finished[step] = parts.ranges(self._chunk)
        self.written[step] = parts
