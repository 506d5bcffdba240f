"""The manifest: one synced line a finished (chunk, step). What it does not name is not there."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from claimscore.atomic import os_errors, sync_folder
from claimscore.errors import ConfigError


class Part(NamedTuple):
    """Rows that one step wrote into one table for one chunk."""

    table: str
    rows: int


class Manifest:
    """Finished steps in memory and on disk; the last line of a (chunk, step) wins.

    A line without its end, which a kill leaves, is ignored, and `truncate` takes it away
    before anything is appended. A line before the last that cannot be read means that
    something else damaged the file, and is an error. Threads may share a manifest.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[int, dict[str, tuple[Part, ...]]] = {}
        self._steps: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._size = 0
        self._mutex = threading.Lock()
        with os_errors(path):
            self._load()

    def _load(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    self._apply(*_entry(json.loads(line)))
                except (ValueError, KeyError, TypeError, AttributeError):
                    raise ConfigError(
                        f"{self._path}, line {number}: damaged; name another --out and run again "
                        "(answers are in the cache)"
                    ) from None
                self._size += len(line)

    def truncate(self) -> None:
        """Remove a torn last line; only the writer may call this."""
        with os_errors(self._path):
            if self._path.exists() and self._path.stat().st_size > self._size:
                os.truncate(self._path, self._size)

    def parts(self, chunk: int, step: str) -> tuple[Part, ...] | None:
        """What a finished step wrote, or None where it is not finished."""
        with self._mutex:
            return self._done.get(chunk, {}).get(step)

    def steps(self, chunk: int) -> frozenset[str]:
        """The finished steps of a chunk."""
        with self._mutex:
            return frozenset(self._done.get(chunk, ()))

    def writers(self, table: str, chunk: int) -> list[str]:
        """Steps that wrote rows of the table for the chunk, sorted."""
        with self._mutex:
            steps = self._done.get(chunk, {})
            return [step for step in sorted(steps) if any(_is(p, table) for p in steps[step])]

    def written(self, table: str) -> Iterator[tuple[int, str]]:
        """Every (chunk, step) with rows of the table, sorted."""
        with self._mutex:
            chunks = sorted(self._done)
        for chunk in chunks:
            for step in self.writers(table, chunk):
                yield chunk, step

    def all_steps(self) -> frozenset[str]:
        return frozenset(step for step, chunks in self._steps.items() if chunks)

    def steps_done(self, step: str) -> int:
        return self._steps[step]

    def counts(self) -> dict[str, int]:
        with self._mutex:
            return dict(self._rows)

    def chunk_counts(self, chunk: int) -> Counter[str]:
        with self._mutex:
            counts: Counter[str] = Counter()
            for parts in self._done.get(chunk, {}).values():
                counts.update(dict(parts))
            return counts

    def finish(self, chunk: int, step: str, rows: Mapping[str, int]) -> None:
        """Make the step count."""
        with self._mutex:
            self._append({"chunk": chunk, "step": step, "rows": dict(rows)})
            self._apply(chunk, step, rows)

    def strike(self, chunk: int, step: str) -> None:
        """Make a finished step count no more."""
        with self._mutex:
            self._append({"chunk": chunk, "step": step})
            self._apply(chunk, step, None)

    def _apply(self, chunk: int, step: str, rows: Mapping[str, int] | None) -> None:
        step = sys.intern(step)
        steps = self._done.setdefault(chunk, {})
        before = steps.pop(step, None)
        if before is not None:
            self._steps[step] -= 1
            self._rows.subtract(dict(before))
        if rows is None:
            return
        self._steps[step] += 1
        steps[step] = tuple(Part(sys.intern(table), count) for table, count in rows.items())
        self._rows.update(rows)

    def _append(self, entry: Mapping[str, object]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with os_errors(self._path):
            new = not self._path.exists()
            with self._path.open("ab") as stream:
                stream.truncate(self._size)  # a full disk may have left half a line
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
            if new:
                sync_folder(self._path.parent)
        self._size += len(line)


def _entry(line: dict[str, Any]) -> tuple[int, str, dict[str, int] | None]:
    """A line's chunk, step and rows; `TypeError` where they are none."""
    chunk, step, rows = line["chunk"], line["step"], line.get("rows")
    counts = [chunk, *(rows.values() if rows is not None else ())]
    if not (isinstance(step, str) and all(isinstance(count, int) for count in counts)):
        raise TypeError("not an entry of a manifest")
    return chunk, step, rows


def _is(part: Part, table: str) -> bool:
    return part.table == table and part.rows > 0
