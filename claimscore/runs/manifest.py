"""The manifest: which steps of which chunks are finished, and in which parts their rows are.

It is a log of lines, each a CRC-32 and an entry; the last entry about a step of a chunk wins:

    5a1b2c3d {"step":"nli-a-b","chunks":[3,4,0],"rows":{"nli":[97],"failures":[0]},
              "checksums":{"nli":[7213,2899731047]}}                  finished for chunk 3
    1f0c33e2 {"step":"nli-a-b","chunks":[0,64,1],"rows":{...},...}    0 to 63 are compacted
    77ab0412 {"step":"nli-a-b","chunks":[3,9]}                        3 to 8 are invalidated

In memory each step has a list with the `PartSet` of each chunk. Compaction keeps the number of
sets small, so a run over a million records takes a few megabytes.
"""

from __future__ import annotations

import itertools
import json
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

from claimscore.errors import StoppedEarly
from claimscore.runs.manifest_log import FileLog
from claimscore.runs.parts import (
    MOST_CHUNKS,
    PART_TABLES,
    STEP_NAME,
    Checksum,
    PartLocation,
    PartSet,
    RowRange,
    spans,
)


class Invalidation(NamedTuple):
    """A step no longer counts for the chunks `first` to `end` (exclusive)."""

    step: str
    first: int
    end: int

    def chunks(self) -> Sequence[int]:
        """The chunks of the span."""
        return range(self.first, self.end)


Entry: TypeAlias = PartSet | Invalidation

#: What a damaged line raises.
_DAMAGE = ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError


class Manifest:
    """Finished steps, in memory and in a log. Threads may share it.

    A line that cannot be read shows that another program than claimscore changed the log. It is
    left out and named in `damaged`: its steps may count as undone, or as finished in parts that
    are gone (`PartFiles.damaged` finds those). `is_missing`: no log was there when it was read.
    """

    def __init__(self, log: FileLog, n_chunks: int = MOST_CHUNKS) -> None:
        """`n_chunks` is the most that the run can have: a line about others is damaged."""
        self._log = log
        self._by_step: dict[str, list[PartSet | None]] = {}
        self._sets: dict[PartSet, None] = {}  # those that count, in the order they came
        self._generations: dict[tuple[str, int, int], int] = {}
        self._waiting: list[tuple[Sequence[Entry], Future[list[PartSet]]]] = []
        self._mutex = threading.RLock()
        self._turn = threading.Lock()
        self.damaged: list[str] = []
        self.is_missing = True
        for name, lines in log.read():
            self.is_missing = False
            for number, line in enumerate(lines, start=1):
                try:
                    self._apply(_entry(line, n_chunks))
                except _DAMAGE:
                    self.damaged.append(f"{name}, line {number}: damaged")

    def open_for_writing(self) -> None:
        """Begin a log, or take damaged lines out of it, or shorten a long one; for the only
        writer."""
        if self.is_missing:
            self._log.append(b"")  # from now on a log that is not there is lost
        elif self.damaged or self._log.is_long(len(self._sets)):
            self._log.rewrite(self._snapshot())

    # Finished steps

    def has(self, chunk: int, step: str) -> bool:
        """Whether a step is finished for a chunk."""
        return self._set(chunk, step) is not None

    def _set(self, chunk: int, step: str) -> PartSet | None:
        found = self._by_step.get(step, ())
        return found[chunk] if chunk < len(found) else None

    def steps(self, chunk: int) -> frozenset[str]:
        """The finished steps of a chunk."""
        with self._mutex:
            return frozenset(step for step in self._by_step if self.has(chunk, step))

    def all_steps(self) -> frozenset[str]:
        """The steps that are finished for at least one chunk."""
        with self._mutex:
            return frozenset(parts.step for parts in self._sets)

    def chunks_with(self, step: str) -> list[int]:
        """The chunks for which a step is finished."""
        with self._mutex:
            sets = self._by_step.get(step, ())
            return [chunk for chunk, parts in enumerate(sets) if parts is not None]

    def counts(self) -> Counter[str]:
        """Rows of each table over all finished steps."""
        total: Counter[str] = Counter()
        with self._mutex:
            for parts, first, end in itertools.chain(*map(_runs, self._by_step.values())):
                for table in parts.starts:
                    rows = parts.range(table, first, end)
                    total[table] += rows.rows if rows else 0
        return total

    def chunk_counts(self, chunk: int) -> Counter[str]:
        """Rows of each table that the finished steps of a chunk wrote."""
        total: Counter[str] = Counter()
        for rows in itertools.chain(*self.finished(chunk).values()):
            total[rows.part.table] += rows.rows
        return total

    # Their rows

    def finished(self, chunk: int) -> dict[str, list[RowRange]]:
        """The finished steps of a chunk in sorted order, each with its rows."""
        with self._mutex:
            found = ((step, self._set(chunk, step)) for step in sorted(self._by_step))
            return {step: parts.ranges(chunk) for step, parts in found if parts is not None}

    def ranges(self, table: str, chunks: Iterable[int]) -> list[RowRange]:
        """The rows of a table: chunk by chunk, of each its steps in sorted order."""
        return [
            rows
            for chunk in chunks
            for of_step in self.finished(chunk).values()
            for rows in of_step
            if rows.part.table == table
        ]

    def all_ranges(
        self, table: str, step: str | None = None, first: int = 0, end: int | None = None
    ) -> list[RowRange]:
        """The rows of a table of the chunks `first` to `end` (or all), of one step or all, in as
        few ranges as possible.

        A step's rows come in the order of the input; several steps take turns part by part.
        """
        with self._mutex:
            found = [
                rows
                for name in sorted(self._by_step)
                if step in (None, name)
                for parts, start, stop in _runs(self._by_step[name][first:end], first)
                if (rows := parts.range(table, start, stop))
            ]
        return sorted(found, key=lambda rows: rows.chunk)

    def parts(self, chunks: Iterable[int] | None = None) -> list[PartLocation]:
        """The parts that have rows of these chunks, or of all, each once."""
        with self._mutex:
            sets = dict(self._sets) if chunks is None else {}
            for chunk, of_step in itertools.product(chunks or (), self._by_step.values()):
                if chunk < len(of_step) and (parts := of_step[chunk]) is not None:
                    sets[parts] = None
        return [part for parts in sets for part in parts.locations()]

    def chunks_in(self, part: PartLocation) -> list[int]:
        """The chunks whose rows are in a part, or would be if they had some."""
        key = (part.step, part.first, part.end, part.generation)
        with self._mutex:
            sets = enumerate(self._by_step[part.step][part.first : part.end], part.first)
            return [chunk for chunk, parts in sets if parts is not None and parts.key == key]

    # Changes; every process sees them once these return

    def add(self, parts: PartSet) -> list[PartSet]:
        """Make a step count for the chunks of a set; returns the sets that count no more.

        Their files may be removed; a set whose files the new one replaced is not among them.
        """
        return self._commit([parts])

    def invalidate(self, *invalid: tuple[str, int, int]) -> list[PartSet]:
        """Make steps of chunks (`first` to `end`) count no more, all at once or, where a kill cuts
        it short on a disk, the first ones; returns as `add` does."""
        return self._commit([Invalidation(*each) for each in invalid])

    def new_set(self, step: str, first: int, end: int, rows: dict[str, list[int]]) -> PartSet:
        """A set without checksums, whose files have names that were never used."""
        with self._mutex:
            generation = 1 + self._generations.get((step, first, end), 0)
        return PartSet.of(step, first, end, generation, rows, {})

    def compactable(self, step: str, first: int, end: int) -> PartSet | None:
        """The set that the parts of these chunks would make together.

        None where a chunk is missing, they are together already, or the step has no table.
        """
        with self._mutex:
            sets = [parts for parts in self._by_step.get(step, ())[first:end] if parts is not None]
            if len(sets) < end - first or len(dict.fromkeys(sets)) == 1:
                return None
            tables = sorted({table for parts in sets for table in parts.starts})
            rows: dict[str, list[int]] = {table: [] for table in tables}
            for (chunk, parts), table in itertools.product(enumerate(sets, first), rows):
                found = parts.range(table, chunk)
                rows[table].append(found.rows if found else 0)
        return self.new_set(step, first, end, rows) if rows else None

    def _commit(self, entries: Sequence[Entry]) -> list[PartSet]:
        """Append the entries to the log, then apply them.

        Threads that come while a group is being written are the next group: one sync, or one
        object of a store, for all of them.
        """
        mine: Future[list[PartSet]] = Future()
        with self._mutex:
            self._waiting.append((entries, mine))
        with self._turn:
            if not mine.done():
                self._commit_group()
        return mine.result()

    def _commit_group(self) -> None:
        with self._mutex:
            group, self._waiting = self._waiting, []
        try:
            self._log.append(b"".join(_line(e) for entries, _ in group for e in entries))
        except BaseException as exc:
            for _, done in group:
                done.set_exception(
                    exc if isinstance(exc, Exception) else StoppedEarly("interrupted")
                )
            raise
        with self._mutex:
            for entries, done in group:
                done.set_result([old for e in entries for old in self._apply(e)])
        if self._log.is_long(len(self._sets)):
            self._log.rewrite(self._snapshot())

    def _apply(self, entry: Entry) -> list[PartSet]:
        """Change the state; the sets that count no more."""
        new = entry if isinstance(entry, PartSet) else None
        by_chunk = self._by_step.get(entry.step, [])
        if new is not None:
            self._by_step[entry.step] = by_chunk
            by_chunk.extend([None] * (entry.end - len(by_chunk)))
        old: dict[PartSet, None] = {}
        for chunk in range(entry.first, min(entry.end, len(by_chunk))):
            if (before := by_chunk[chunk]) is not None:
                old[before] = None
            by_chunk[chunk] = new
        if new is not None:
            self._sets[new] = None
            self._generations[new.key[:3]] = new.generation
        superseded = [one for one in old if one not in by_chunk[one.first : one.end]]
        for one in superseded:
            del self._sets[one]
        return [one for one in superseded if new is None or one.key != new.key]

    def _snapshot(self) -> bytes:
        """The lines of as few entries as lead to this state."""
        with self._mutex:
            invalid: dict[str, set[int]] = defaultdict(set)
            for parts in self._sets:
                by_chunk = self._by_step[parts.step]
                invalid[parts.step].update(c for c in parts.chunks() if by_chunk[c] is None)
            entries: list[Entry] = list(self._sets)
            for step, chunks in invalid.items():
                entries += [Invalidation(step, *span) for span in spans(chunks)]
            return b"".join(map(_line, entries))


def _runs(sets: Sequence[PartSet | None], first: int = 0) -> Iterator[tuple[PartSet, int, int]]:
    """The chunks one after the other that are in the same set: the set, the first chunk, the end;
    `first` is the first chunk of all."""
    for parts, group in itertools.groupby(sets):
        end = first + sum(1 for _ in group)
        if parts is not None:
            yield parts, first, end
        first = end


def _line(entry: Entry) -> bytes:
    line: dict[str, Any] = {"step": entry.step, "chunks": [entry.first, entry.end]}
    if isinstance(entry, PartSet):
        line["chunks"].append(entry.generation)
        line["rows"] = {table: entry.rows(table) for table in entry.starts}
        line["checksums"] = entry.checksums
    body = json.dumps(line, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _entry(line: bytes, n_chunks: int) -> Entry:
    """The entry of a line; one of `_DAMAGE` where it is damaged."""
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    if int(crc, 16) != zlib.crc32(body):
        raise ValueError("not what was written")
    value = json.loads(body)
    step, (first, end, *generation) = value["step"], value["chunks"]
    if not (STEP_NAME.fullmatch(step) and 0 <= first < end <= n_chunks):
        raise ValueError("no step of a run")
    if not generation:
        return Invalidation(step, first, end)
    rows, sums = value["rows"], value["checksums"]
    if not PART_TABLES >= rows.keys() >= sums.keys():
        raise ValueError("no table of a run")
    if any(len(counts) != end - first or min(counts) < 0 for counts in rows.values()):
        raise ValueError("not the rows of these chunks")
    checksums = {table: Checksum(*numbers) for table, numbers in sums.items()}
    return PartSet.of(step, first, end, int(generation[0]), rows, checksums)
