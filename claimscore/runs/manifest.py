"""The manifest: which steps of which chunks are finished, and in which parts their rows are.

It is a file of lines, each a CRC-32 and an entry; the last entry about a step of a chunk wins:

    5a1b2c3d {"step":"nli-a-b","chunks":[3,4,0],"rows":{"nli":[97],"failures":[0]},
              "checksums":{"nli":[7213,2899731047]}}                  finished for chunk 3
    1f0c33e2 {"step":"nli-a-b","chunks":[0,64,1],"rows":{...},...}    0 to 63 are compacted
    77ab0412 {"undone":{"nli-a-b":[3,5]}}                             3 and 5 are undone

In memory each step has the `PartSet` of each finished chunk. Compaction keeps the number of sets
small, so a run over a million records takes some twenty megabytes.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from claimscore.atomic import os_errors, sync_folder, write_bytes
from claimscore.runs.parts import (
    PART_TABLES,
    STEP_NAME,
    Checksum,
    PartSet,
    RowRange,
)

#: No run has more chunks than this: a billion records in chunks of 64.
MOST_CHUNKS = 1 << 24

#: The name of a step is part of a file's name.
_LONGEST_STEP = 200

#: The file is written anew once it has so many lines, and so many for each that it then had.
_LINES, _GROWTH = 4096, 4

#: What a damaged line raises.
_DAMAGE = ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError


#: Parts that count from now on; or steps that count no more, each for some chunks.
Entry: TypeAlias = PartSet | Mapping[str, Sequence[int]]


class Manifest:
    """Finished steps, in memory and in the file. Threads may share it; one process writes.

    A last line without its end, which a kill or a full disk leaves, is ignored and written over.
    Another line that cannot be read shows that another program changed the file. It is left out
    and named in `damaged`. `is_missing`: there was no file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_step: dict[str, dict[int, PartSet]] = {}
        self._sets: dict[PartSet, None] = {}  # those that count, in the order they came
        self._mutex = threading.RLock()
        self._size = self._n_lines = self._n_kept = 0
        self.damaged: list[str] = []
        self.is_missing = not path.exists()
        with os_errors(path):
            if not self.is_missing:
                self._read()

    def _read(self) -> None:
        with self._path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._size += len(line)
                self._n_lines += 1
                try:
                    self._apply(_entry(line))
                except _DAMAGE:
                    self.damaged.append(f"{self._path}, line {self._n_lines}: damaged")

    def open_for_writing(self) -> None:
        """Begin the file: from now on one that is not there is lost. For the only writer."""
        if self.is_missing:
            self._append(b"")

    # Finished steps

    def has(self, chunk: int, step: str) -> bool:
        """Whether a step is finished for a chunk."""
        return chunk in self._by_step.get(step, ())

    def _sets_of(self, step: str, chunks: Iterable[int]) -> dict[int, PartSet]:
        """The sets of those of the chunks for which a step is finished, in their order."""
        sets = self._by_step.get(step, {})
        return {chunk: sets[chunk] for chunk in chunks if chunk in sets}

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
            return sorted(self._by_step.get(step, ()))

    def counts(self, first: int = 0, end: int | None = None) -> Counter[str]:
        """Rows of each table that the finished steps of the chunks `first` to `end`, or of all,
        have."""
        total: Counter[str] = Counter()
        for rows in self._ranges(None, first, end):
            total[rows.table] += rows.rows
        return total

    def ranges(
        self, table: str, step: str | None = None, first: int = 0, end: int | None = None
    ) -> list[RowRange]:
        """The rows of a table of the chunks `first` to `end` (or all), of one step or all, in as
        few ranges as possible.

        A step's rows come in the order of the input; several steps take turns part by part.
        """
        of_table = (rows for rows in self._ranges(step, first, end) if rows.table == table)
        return sorted(of_table, key=lambda rows: rows.chunk)

    def _ranges(self, step: str | None, first: int, end: int | None) -> list[RowRange]:
        with self._mutex:
            return [
                rows
                for name in sorted(self._by_step)
                if step in (None, name)
                for parts, start, stop in _runs(
                    self._sets_of(
                        name, sorted(self._by_step[name]) if end is None else range(first, end)
                    )
                )
                for table in parts.checksums
                if (rows := parts.range(table, start, stop)).rows
            ]

    def sets(self) -> list[PartSet]:
        """The sets that count, in the order they came."""
        with self._mutex:
            return list(self._sets)

    def chunks_in(self, parts: PartSet) -> list[int]:
        """The chunks for which a set counts."""
        of_step = self._sets_of(parts.step, range(parts.first, parts.end))
        return [chunk for chunk, other in of_step.items() if other is parts]

    # Changes; every process sees them once these return

    def new_set(self, step: str, first: int, end: int, rows: dict[str, list[int]]) -> PartSet:
        """A set without checksums, whose files have other names than those that count."""
        with self._mutex:
            before = self._sets_of(step, range(first, end)).values()
        generation = 1 + max((parts.generation for parts in before), default=-1)
        return PartSet(step, first, end, generation, rows, {})

    def compactable(self, step: str, first: int, end: int) -> PartSet | None:
        """The set that the parts of these chunks would make together.

        None where a chunk is missing, they are together already, or the step has no table.
        """
        with self._mutex:
            sets = self._sets_of(step, range(first, end))
        if len(sets) < end - first or len(set(sets.values())) == 1:
            return None
        tables = sorted({table for parts in sets.values() for table in parts.rows})
        rows = {t: [parts.range(t, n, n + 1).rows for n, parts in sets.items()] for t in tables}
        return self.new_set(step, first, end, rows) if rows else None

    def add(self, parts: PartSet) -> list[PartSet]:
        """Make a step count for the chunks of a set. Returns the sets that count no more: their
        files may be removed."""
        return self._commit(parts)

    def undo(self, steps: Mapping[str, Collection[int]]) -> list[PartSet]:
        """Make steps of chunks count no more, all at once, and take damaged lines out of the file;
        returns as `add` does."""
        superseded = self._commit({step: list(chunks) for step, chunks in steps.items()})
        if self.damaged:
            with self._mutex:
                self._rewrite()
        return superseded

    def _commit(self, entry: Entry) -> list[PartSet]:
        with self._mutex:
            self._append(_line(entry))
            superseded = self._apply(entry)
            if self._n_lines > _LINES + _GROWTH * self._n_kept:
                self._rewrite()
        return superseded

    def _apply(self, entry: Entry) -> list[PartSet]:
        """Change the state; the sets that count no more."""
        new, undone = (entry, {}) if isinstance(entry, PartSet) else (None, entry)
        superseded = []
        if new is not None:
            undone = {new.step: range(new.first, new.end)}
        for step, chunks in undone.items():
            sets, before = self._by_step.setdefault(step, {}), self._sets_of(step, chunks)
            for chunk in before:
                del sets[chunk]
            if new is not None:
                sets.update(dict.fromkeys(chunks, new))
            superseded += [old for old in dict.fromkeys(before.values()) if not self.chunks_in(old)]
        if new is not None:
            self._sets[new] = None
        for old in superseded:
            del self._sets[old]
        return superseded

    def _append(self, lines: bytes) -> None:
        """Return once the lines outlive the process and the machine."""
        with os_errors(self._path):
            is_new = not self._path.exists()
            with self._path.open("ab") as stream:
                stream.truncate(self._size)
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
            if is_new:
                sync_folder(self._path.parent)
        self._size += len(lines)
        self._n_lines += lines.count(b"\n")

    def _rewrite(self) -> None:
        """Put as few lines as lead to this state in the place of all."""
        undone: dict[str, list[int]] = {}
        for parts in self._sets:
            missing = {*range(parts.first, parts.end)} - self._by_step[parts.step].keys()
            undone.setdefault(parts.step, []).extend(sorted(missing))
        entries: list[Entry] = [*self._sets, undone]
        lines = b"".join(map(_line, entries))
        write_bytes(self._path, lines)
        self._size, self._n_lines, self._n_kept = len(lines), len(entries), len(entries)


def _runs(sets: Mapping[int, PartSet]) -> Iterator[tuple[PartSet, int, int]]:
    """The chunks one after the other that are in the same set: the set, the first chunk, the
    end."""
    numbered = enumerate(sets.items())
    for (parts, _), group in itertools.groupby(numbered, lambda at: (at[1][1], at[1][0] - at[0])):
        chunks = [chunk for _, (chunk, _) in group]
        yield parts, chunks[0], chunks[-1] + 1


def _line(entry: Entry) -> bytes:
    if isinstance(entry, PartSet):
        chunks = entry.first, entry.end, entry.generation
        line = {"step": entry.step, "chunks": chunks, "rows": entry.rows}
        line["checksums"] = entry.checksums
    else:
        line = {"undone": entry}
    body = json.dumps(line, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _entry(line: bytes) -> Entry:
    """The entry of a line; one of `_DAMAGE` where it is damaged."""
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    value = json.loads(body)
    if int(crc, 16) != zlib.crc32(body):
        raise ValueError("not what was written")
    if "undone" in value:
        undone: dict[str, list[int]] = value["undone"]
        if not all(_is_count(chunk) for chunks in undone.values() for chunk in chunks):
            raise ValueError("no chunks of a run")
        return undone
    step, (first, end, generation), rows = value["step"], value["chunks"], value["rows"]
    checksums = {table: Checksum(*numbers) for table, numbers in value["checksums"].items()}
    is_of_a_run = (
        STEP_NAME.fullmatch(step)
        and len(step) <= _LONGEST_STEP
        and all(map(_is_count, (first, end, generation, *itertools.chain(*checksums.values()))))
        and first < end <= MOST_CHUNKS
        and (rows or end == first + 1)  # else no length of the line bounds the span
        and rows.keys() <= PART_TABLES
        and {table for table in rows if sum(rows[table])} == checksums.keys()
        and all(len(counts) == end - first for counts in rows.values())
        and all(map(_is_count, itertools.chain(*rows.values())))
    )
    if not is_of_a_run:
        raise ValueError("no step of a run")
    return PartSet(step, first, end, generation, rows, checksums)


def _is_count(value: object) -> bool:
    """Whether a value of a line is a number of chunks, rows or bytes."""
    return type(value) is int and 0 <= value < 1 << 48
