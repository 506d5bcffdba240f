"""Compaction: the parts of many chunks become one file, so that a folder never holds many.

Chunks come in ranges of 64, these in ranges of 64 again. Once all chunks of a range are sealed,
the rows of a step are copied into one file a table, the manifest is told, and the old files are
removed. So a row is copied once a level, and of a million records in chunks of 64 a table has at
most 63 parts, 63 files of 64 chunks and 3 of 4,096 for each step.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import polars as pl

from claimscore.runs.manifest import Manifest
from claimscore.runs.parts import PartFiles, checked

#: Chunks of a range, and ranges of the next larger one.
FANOUT = 64

#: Sizes of ranges, in chunks.
SIZES = (FANOUT, FANOUT**2)


class Compactor:
    """Compacts what is sealed. Threads may share it; one of them compacts at a time."""

    def __init__(self, manifest: Manifest, files: PartFiles) -> None:
        self._manifest = manifest
        self._files = files
        self._sealed: set[int] = set()
        self._n_sealed: Counter[tuple[int, int]] = Counter()
        self._mutex = threading.Lock()

    def seal(self, chunks: Iterable[int]) -> None:
        """No worker is at these chunks any more: compact the ranges that are whole by that."""
        with self._mutex:
            for chunk in chunks:
                if chunk not in self._sealed:
                    self._sealed.add(chunk)
                    self._count(chunk)

    def _count(self, chunk: int) -> None:
        for size in SIZES:
            first = chunk // size * size
            self._n_sealed[size, first] += 1
            if self._n_sealed[size, first] == size:
                for step in sorted(self._manifest.all_steps()):
                    self._compact(step, first, first + size)

    def _compact(self, step: str, first: int, end: int) -> None:
        parts = self._manifest.compactable(step, first, end)
        if parts is None:
            return
        sums = {}
        for table in parts.starts:
            sources = self._manifest.all_ranges(table, step, first, end)
            if found := self._files.compact(parts.location(table), sources):
                sums[table] = found
        whole = dataclasses.replace(parts, checksums=sums)
        self._files.remove(self._manifest.add(whole))

    def write(self, first: int, step: str, table: str, frames: Sequence[pl.DataFrame]) -> None:
        """Write new rows of several chunks into one file."""
        rows = checked({table: pl.concat(frames)})[table]
        heights = [frame.height for frame in frames]
        parts = self._manifest.new_set(step, first, first + len(frames), {table: heights})
        sums = {}
        if rows.height:
            sums[table] = self._files.sink(parts.location(table), rows.lazy(), rows.height)
        self._manifest.add(dataclasses.replace(parts, checksums=sums))
