"""The tables of one chunk in a worker: what is written is told to the driver."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from claimscore.pipeline.ray.job import Finished
from claimscore.pipeline.ray.link import Link
from claimscore.rundir import Lies, WorkerChunk


class ToldChunk:
    """`ChunkFiles` of a worker. `written` has the rows of each new step by table."""

    def __init__(self, where: str, chunk: int, finished: Finished, link: Link) -> None:
        self._files = WorkerChunk(where, chunk, finished)
        self._link = link

    @property
    def chunk(self) -> int:
        return self._files.chunk

    @property
    def written(self) -> dict[str, dict[str, Lies]]:
        return self._files.written

    def read(self, table: str) -> pl.DataFrame:
        return self._files.read(table)

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        self._files.write(step, frames)
        self._link.wrote(self.chunk, step, self._files.written[step])
