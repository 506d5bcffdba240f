"""The manifest: which steps of which chunks are finished, and in which parts their rows are.

It is a file of lines, each a CRC-32 and an entry; the last entry about a step of a chunk wins. Of
each part it has the rows, the size and the checksum:

    5a1b2c3d {"step":"nli-a-b","chunk":3,"parts":{"nli":[97,7213,2899731047]}}   finished
    77ab0412 {"undone":{"nli-a-b":[3,5]}}                                        3 and 5 are undone
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from claimscore.atomic import os_errors, sync_file, sync_folder
from claimscore.runs.parts import PART_TABLES, STEP_NAME, Checksum, Part

#: No run has more chunks than this: a billion records in chunks of 64.
MOST_CHUNKS = 1 << 24

#: The name of a step is part of a file's name.
_LONGEST_STEP = 200

#: What a damaged line raises.
_DAMAGE = ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError


class Finished(NamedTuple):
    """A step of a chunk that counts from now on, and its parts."""

    step: str
    chunk: int
    parts: Sequence[Part]


#: Or steps that count no more, each for some chunks.
Entry: TypeAlias = Finished | Mapping[str, Collection[int]]


class Manifest:
    """Finished steps, in memory and in the file. Threads may share it; one process writes.

    A last line without its end, which a kill or a full disk leaves, is ignored and written over.
    Another line that cannot be read shows that another program changed the file: it is named in
    `damaged`, and no step is finished. `is_missing`: there was no file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_step: dict[str, dict[int, Sequence[Part]]] = {}
        self._mutex = threading.RLock()
        self._size = 0
        self.damaged = ""
        self.is_missing = not path.exists()
        with os_errors(path):
            if not self.is_missing:
                self._read()

    def _read(self) -> None:
        with self._path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    self._apply(_entry(line))
                except _DAMAGE:
                    self.damaged = f"{self._path}, line {number}: damaged"
                    self._by_step, self._size = {}, 0
                    return
                self._size += len(line)

    def open_for_writing(self) -> None:
        """Begin the file, or begin it again: from now on one that is not there is lost. For the
        only writer."""
        if self.is_missing or self.damaged:
            self._append(b"")

    # Finished steps

    def has(self, chunk: int, step: str) -> bool:
        """Whether a step is finished for a chunk."""
        return chunk in self._by_step.get(step, ())

    def steps(self, chunk: int) -> frozenset[str]:
        """The finished steps of a chunk."""
        with self._mutex:
            return frozenset(step for step in self._by_step if self.has(chunk, step))

    def all_steps(self) -> frozenset[str]:
        """The steps that are finished for at least one chunk."""
        with self._mutex:
            return frozenset(step for step, chunks in self._by_step.items() if chunks)

    def chunks_with(self, step: str) -> list[int]:
        """The chunks for which a step is finished."""
        with self._mutex:
            return sorted(self._by_step.get(step, ()))

    def counts(self, chunk: int | None = None) -> Counter[str]:
        """Rows of each table that the finished steps of a chunk, or of all, have."""
        total: Counter[str] = Counter()
        for part in self.parts(chunk=chunk):
            total[part.table] += part.rows
        return total

    def parts(
        self, table: str | None = None, step: str | None = None, chunk: int | None = None
    ) -> list[Part]:
        """The parts that count, or those of a table, a step, a chunk: by chunk, of each its steps
        in sorted order."""
        with self._mutex:
            parts = [
                part
                for name in sorted(self._by_step)
                if step in (None, name)
                for part in self._parts_of(name, chunk)
                if table in (None, part.table)
            ]
        return sorted(parts, key=lambda part: part.chunk)

    def _parts_of(self, step: str, chunk: int | None) -> Iterator[Part]:
        chunks = self._by_step[step]
        for of_chunk in chunks.values() if chunk is None else [chunks.get(chunk, ())]:
            yield from of_chunk

    # Changes; every process sees them once these return

    def add(self, chunk: int, step: str, parts: Sequence[Part]) -> None:
        """Make a step of a chunk count, with these parts in the place of those that it had."""
        self._commit(Finished(step, chunk, parts))

    def undo(self, steps: Mapping[str, Collection[int]]) -> list[Part]:
        """Make steps of chunks count no more, all at once. Returns their parts, whose files may be
        removed."""
        with self._mutex:
            gone = [
                part
                for step, chunks in steps.items()
                for chunk in chunks
                for part in self._by_step.get(step, {}).get(chunk, ())
            ]
            self._commit({step: list(chunks) for step, chunks in steps.items()})
        return gone

    def _commit(self, entry: Entry) -> None:
        with self._mutex:
            self._append(_line(entry))
            self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        if isinstance(entry, Finished):
            self._by_step.setdefault(entry.step, {})[entry.chunk] = entry.parts
            return
        for step, chunks in entry.items():
            for chunk in chunks:
                self._by_step.get(step, {}).pop(chunk, None)

    def _append(self, line: bytes) -> None:
        """Return once the line outlives the process and the machine."""
        with os_errors(self._path):
            is_new = not self._path.exists()
            with self._path.open("ab") as stream:
                stream.truncate(self._size)
                stream.write(line)
                stream.flush()
                sync_file(stream.fileno(), self._path)
            if is_new:
                sync_folder(self._path.parent)
        self._size += len(line)


def _line(entry: Entry) -> bytes:
    value: Mapping[str, object] = {"undone": entry}
    if isinstance(entry, Finished):
        parts = {part.table: (part.rows, *part.checksum) for part in entry.parts}
        value = {"step": entry.step, "chunk": entry.chunk, "parts": parts}
    body = json.dumps(value, separators=(",", ":")).encode()
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
    step, chunk, tables = value["step"], value["chunk"], value["parts"]
    numbers = [chunk, *(number for of_table in tables.values() for number in of_table)]
    is_of_a_run = (
        STEP_NAME.fullmatch(step)
        and len(step) <= _LONGEST_STEP
        and all(map(_is_count, numbers))
        and chunk < MOST_CHUNKS
        and tables.keys() <= PART_TABLES
    )
    if not is_of_a_run:
        raise ValueError("no step of a run")
    parts = [
        Part(table, chunk, step, rows, Checksum(size, crc))
        for table, (rows, size, crc) in tables.items()
    ]
    return Finished(step, chunk, parts)


def _is_count(value: object) -> bool:
    """Whether a value of a line is a number of chunks, rows or bytes."""
    return type(value) is int and 0 <= value < 1 << 48
