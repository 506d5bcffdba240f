"""The manifest: one line a finished (chunk, step). What it does not name is not there."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from claimscore.errors import ConfigError
from claimscore.rundir.damage import ADVICE
from claimscore.rundir.journal import Journal
from claimscore.rundir.parts import Written


class Part(NamedTuple):
    """Rows that one step wrote into one table for one chunk."""

    table: str
    rows: int


class Manifest:
    """Finished steps in memory, and in a journal; the last line of a (chunk, step) wins.

    A line that cannot be read means that something other than a kill damaged the journal, and is
    an error. Threads may share a manifest.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._done: dict[int, dict[str, tuple[Part, ...]]] = {}
        self._steps: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._mutex = threading.Lock()
        self._load()

    def _load(self) -> None:
        for name, lines in self._journal.read():
            for number, line in enumerate(lines, start=1):
                try:
                    self._apply(*_entry(json.loads(line)))
                except (ValueError, KeyError, TypeError, AttributeError):
                    raise ConfigError(f"{name}, line {number}: damaged; {ADVICE}") from None

    def finished(self, chunk: int) -> dict[str, dict[str, int]]:
        """The finished steps of a chunk, each with its rows by table."""
        with self._mutex:
            return {step: dict(parts) for step, parts in self._done.get(chunk, {}).items()}

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

    def written(self, table: str) -> Iterator[Written]:
        """Every (chunk, step) with rows of the table, sorted."""
        with self._mutex:
            chunks = sorted(self._done)
        for chunk in chunks:
            for step in self.writers(table, chunk):
                yield Written(chunk, step)

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
        """Make the step count; it does for everybody when this returns."""
        self._keep(chunk, step, dict(rows))

    def strike(self, chunk: int, step: str) -> None:
        """Make a finished step count no more."""
        self._keep(chunk, step, None)

    def _keep(self, chunk: int, step: str, rows: dict[str, int] | None) -> None:
        def apply() -> None:
            with self._mutex:
                self._apply(chunk, step, rows)

        self._journal.append(_line(chunk, step, rows), apply)
        self._journal.tidy(self._lines)

    def _lines(self) -> Iterable[bytes]:
        """All that counts now, in as few lines as that takes."""
        with self._mutex:
            return [
                _line(chunk, step, dict(parts))
                for chunk, steps in self._done.items()
                for step, parts in steps.items()
            ]

    def open_for_writing(self) -> None:
        """Make the journal ready for more lines; only the writer may call this."""
        self._journal.begin(self._lines)

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


def _line(chunk: int, step: str, rows: Mapping[str, int] | None) -> bytes:
    entry = {"chunk": chunk, "step": step}
    line = entry if rows is None else {**entry, "rows": rows}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _entry(line: dict[str, Any]) -> tuple[int, str, dict[str, int] | None]:
    """A line's chunk, step and rows; `TypeError` where they are none."""
    chunk, step, rows = line["chunk"], line["step"], line.get("rows")
    counts = [chunk, *(rows.values() if rows is not None else ())]
    if not (isinstance(step, str) and all(isinstance(count, int) for count in counts)):
        raise TypeError("not an entry of a manifest")
    return chunk, step, rows


def _is(part: Part, table: str) -> bool:
    return part.table == table and part.rows > 0
