"""Merging: the parts of many chunks become one file, so that a folder never holds many.

Chunks come in ranges of 64, these in ranges of 64 again. Once no worker is at any chunk of a
range, what a step wrote for them is copied into one file a table, the manifest is told, and then
the old files are removed. So a row is copied once a level, and of a million records in chunks
of 64 a table has at most 63 parts, 63 files of 64 chunks and 3 of 4,096 for each step.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import polars as pl

from claimscore.runs.manifest import Manifest
from claimscore.runs.parts import PartFiles

#: Chunks of a range, and ranges of the next larger one.
FANOUT = 64

#: Sizes of ranges, in chunks.
SIZES = (FANOUT, FANOUT**2)


class Merging:
    """Merges what is settled. Threads may share it; one of them merges at a time."""

    def __init__(self, manifest: Manifest, parts: PartFiles) -> None:
        self._manifest = manifest
        self._parts = parts
        self._settled: set[int] = set()
        self._n_settled: Counter[tuple[int, int]] = Counter()
        self._mutex = threading.Lock()

    def clean(self) -> None:
        """Remove parts that a kill left: written and never made to count, or merged since."""
        for table in self._manifest.counts():
            self._parts.remove_others(table, self._manifest.all_places(table))

    def settle(self, chunks: Iterable[int]) -> None:
        """No worker is at these chunks any more: merge the ranges that are whole by that."""
        with self._mutex:
            for chunk in chunks:
                if chunk not in self._settled:
                    self._settled.add(chunk)
                    self._settle(chunk)

    def _settle(self, chunk: int) -> None:
        for size in SIZES:
            first = chunk // size * size
            self._n_settled[size, first] += 1
            if self._n_settled[size, first] == size:
                for step in sorted(self._manifest.all_steps()):
                    self._merge(step, first, first + size)

    def write(
        self, first: int, step: str, table: str, frames: Sequence[pl.DataFrame | None]
    ) -> None:
        """One file for the rows of several chunks that stand nowhere yet; a chunk of which there
        is None is not in it."""
        file = self._manifest.new_file(step, first, first + len(frames))
        found = [frame for frame in frames if frame is not None]
        written = self._parts.write_merged(table, step, file, pl.concat(found))
        rows = {table: [None if frame is None else frame.height for frame in frames]}
        self._manifest.merge(step, file, rows, {table: written})

    def _merge(self, step: str, first: int, end: int) -> None:
        """Put what a step wrote for all of these chunks into one file a table."""
        manifest, parts = self._manifest, self._parts
        if not manifest.is_finished(step, first, end) or manifest.is_together(step, first, end):
            return
        columns = manifest.columns(step, first, end)
        if not columns:  # it wrote nothing
            return
        old_files = manifest.files(step, first, end)
        old_parts = manifest.own(step, first, end)
        file = manifest.new_file(step, first, end)
        sums = {
            table: written
            for table in columns
            if (
                written := parts.merge(
                    table, step, file, manifest.all_places(table, step, first, end)
                )
            )
        }
        manifest.merge(step, file, columns, sums)
        for chunk in old_parts:
            parts.remove(chunk, step, columns)
        for old in old_files:
            if old not in manifest.files(step, old.first, old.end):
                parts.remove_merged(step, old, columns)
