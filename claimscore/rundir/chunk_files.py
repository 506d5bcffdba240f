"""The tables of one chunk, as whoever works on it sees them, in whichever process that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl


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
