"""The tables of one chunk, as whoever works on it sees them, in whichever process that is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import polars as pl

from claimscore.rundir.parts import PartFiles, Written
from claimscore.storage import open_folder


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


class WorkerChunk:
    """The `ChunkFiles` of a process that does not hold the lock of the run directory.

    `finished` are the steps of the chunk that are finished, each with its rows by table, as
    `RunDirectory.finished` gives them. What is written here is read here, and counts for
    everybody once the process with the lock has called `RunDirectory.finish_written` with what
    stands in `written`; until then it is as if it were not there.
    """

    def __init__(
        self, where: Path | str, chunk: int, finished: Mapping[str, Mapping[str, int]]
    ) -> None:
        self._parts = PartFiles(open_folder(where))
        self._chunk = chunk
        self._steps = {step: dict(rows) for step, rows in finished.items()}
        self.written: dict[str, dict[str, int]] = {}

    @property
    def chunk(self) -> int:
        return self._chunk

    def read(self, table: str) -> pl.DataFrame:
        steps = dict(self._steps)
        wrote = [step for step in sorted(steps) if steps[step].get(table)]
        return self._parts.read(table, [Written(self._chunk, step) for step in wrote])

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        rows = self._parts.write(self._chunk, step, frames)
        self.written[step] = rows
        self._steps[step] = rows
