"""The manifest: what is finished, as a journal of lines. What it does not name is not there.

{"chunk":3,"step":"decompose-a-b","rows":{"claims":97,"failures":0},"sums":{"claims":[7213,...]}}
                                         finished; bytes and CRC-32 of each file
{"chunk":3,"step":"decompose-a-b"}       struck off
{"chunks":[0,64],"step":"nli"}           struck off for several chunks
{"chunks":[0,64,1],"step":"nli","rows":{"nli":[120,...],"failures":[0,...]},"sums":{"nli":[...]}}
                                         chunks 0 to 63 lie in a merged file, generation 1

Each line ends with a CRC-32 of what stands before it (`"crc"`); lines of older versions do not.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from claimscore.runs.index import Columns, Entry, Merged, Part, PartIndex, Place, Span, Sum
from claimscore.runs.journal import LOST, Journal

_MARK = b',"crc":'

_NO_SUMS: Mapping[str, Sum] = MappingProxyType({})


class Manifest:
    """Finished steps in memory, and in a journal; the last line about a (chunk, step) wins.

    A line that cannot be read means that something other than a kill damaged the journal. It is
    passed over and named in `damaged`: what it said is lost, so a step may count as undone, or as
    finished in files that are no more (`RunDirectory.damaged` finds those). Threads may share a
    manifest.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._index = PartIndex()
        self._mutex = threading.Lock()
        self.damaged: list[str] = []
        self._load()

    def _load(self) -> None:
        for name, lines in self._journal.read():
            for number, line in enumerate(lines, start=1):
                if line == LOST:
                    self.damaged.append(f"{name}: missing or cut off")
                    continue
                try:
                    self._apply(_entry(json.loads(_checked(line))))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.damaged.append(f"{name}, line {number}: damaged")

    def open_for_writing(self) -> None:
        """Make the journal ready for more lines; only the writer may call this. Damaged lines are
        no longer in it then."""
        self._journal.begin(self._lines)
        if self.damaged:
            self._journal.rewrite(self._lines)

    # -- what is finished

    def finished(self, chunk: int) -> dict[str, dict[str, Place]]:
        """The finished steps of a chunk, each with where its rows lie by table."""
        with self._mutex:
            return self._index.finished(chunk)

    def parts(self, chunk: int, step: str) -> tuple[Part, ...] | None:
        """The rows that a finished step wrote, or None where it is not finished."""
        with self._mutex:
            return self._index.parts(chunk, step)

    def steps(self, chunk: int) -> frozenset[str]:
        """The finished steps of a chunk."""
        with self._mutex:
            return self._index.steps(chunk)

    def writers(self, table: str, chunk: int) -> list[str]:
        """Steps that wrote rows of the table for the chunk, sorted."""
        with self._mutex:
            return self._index.writers(table, chunk)

    def places(self, table: str, chunks: Iterable[int]) -> list[Place]:
        """Where the rows of a table lie: chunk by chunk, of each its steps in sorted order."""
        with self._mutex:
            return list(self._index.places(table, tuple(chunks)))

    def all_places(
        self, table: str, step: str | None = None, first: int = 0, end: int | None = None
    ) -> list[Place]:
        """The same for the chunks `first` to `end` (or all), of one step or all: as few places as
        there are files. A step's rows come in the input's order; several steps take turns file by
        file."""
        with self._mutex:
            return self._index.all_places(table, step, first, end)

    def all_steps(self) -> frozenset[str]:
        with self._mutex:
            return self._index.all_steps()

    def steps_done(self, step: str) -> int:
        with self._mutex:
            return self._index.steps_done(step)

    def counts(self) -> dict[str, int]:
        with self._mutex:
            return self._index.counts()

    def chunk_counts(self, chunk: int) -> Counter[str]:
        with self._mutex:
            return self._index.chunk_counts(chunk)

    def is_finished(self, step: str, first: int, end: int) -> bool:
        """Whether a step is finished for all of the chunks `first` to `end` (exclusive)."""
        with self._mutex:
            return self._index.is_finished(step, first, end)

    def is_together(self, step: str, first: int, end: int) -> bool:
        """Whether its rows of all of them lie in one merged file."""
        with self._mutex:
            return self._index.is_together(step, first, end)

    def own(self, step: str, first: int, end: int) -> list[int]:
        """The chunks of these for which a finished step has parts of its own."""
        with self._mutex:
            return self._index.own(step, first, end)

    def files(self, step: str, first: int, end: int) -> list[Merged]:
        """The merged files in which a step's rows of these chunks lie."""
        with self._mutex:
            return self._index.files(step, first, end)

    def columns(self, step: str, first: int, end: int) -> dict[str, list[int | None]]:
        """A step's rows by table, a number a chunk; None where it is undone."""
        with self._mutex:
            return self._index.columns(step, first, end)

    def new_file(self, step: str, first: int, end: int) -> Merged:
        """A merged file of a step and these chunks that there is not yet."""
        with self._mutex:
            return self._index.new_file(step, first, end)

    def together_with(self, place: Place) -> list[int]:
        """The chunks whose rows of the place's step lie in the same files as the place's."""
        with self._mutex:
            return self._index.together_with(place)

    def members(self, step: str) -> list[int]:
        """The chunks for which a step is finished."""
        with self._mutex:
            return self._index.members(step, 0, None)

    # -- changes; every process sees them once these return

    def finish(
        self, chunk: int, step: str, rows: Mapping[str, int], sums: Mapping[str, Sum] = _NO_SUMS
    ) -> None:
        """Make the step count, with parts of its own."""
        self._keep(Entry(step, chunk, dict(rows), dict(sums)))

    def strike(self, chunk: int, step: str) -> None:
        """Make a finished step count no more."""
        self._keep(Entry(step, chunk, None))

    def strike_all(self, spans: Iterable[tuple[str, Span]]) -> None:
        """Make finished steps of several chunks count no more, all at once or, where a kill cuts
        it short on a disk, the first ones."""
        self._keep(*(Entry(step, span, None) for step, span in spans))

    def merge(
        self, step: str, file: Merged, rows: Columns, sums: Mapping[str, Sum] = _NO_SUMS
    ) -> None:
        """Make the rows of several chunks those of a merged file."""
        self._keep(Entry(step, file, rows, dict(sums)))

    def _keep(self, *entries: Entry) -> None:
        def apply() -> None:
            with self._mutex:
                for entry in entries:
                    self._apply(entry)

        self._journal.append(b"".join(map(_line, entries)), apply)
        self._journal.tidy(self._lines)

    def _lines(self) -> Iterable[bytes]:
        """Everything that counts now, in as few lines as that takes."""
        with self._mutex:
            return [_line(entry) for entry in self._index.entries()]

    def _apply(self, entry: Entry) -> None:
        self._index.apply(entry)


def _line(entry: Entry) -> bytes:
    where: dict[str, object] = (
        {"chunk": entry.where} if isinstance(entry.where, int) else {"chunks": entry.where}
    )
    line = {**where, "step": entry.step}
    if entry.rows is not None:
        line["rows"] = entry.rows
    if entry.sums:
        line["sums"] = entry.sums
    body = json.dumps(line, separators=(",", ":")).encode()[:-1]
    return body + _MARK + str(zlib.crc32(body)).encode() + b"}\n"


def _checked(line: bytes) -> bytes:
    """The line; `ValueError` where it is not what was written."""
    body, mark, crc = line.rpartition(_MARK)
    if mark and int(crc.rstrip(b"}\n")) != zlib.crc32(body):
        raise ValueError("not what was written")
    return line


def _entry(line: dict[str, Any]) -> Entry:
    """A line as what it says; `TypeError` where it is none."""
    step, rows = line["step"], line.get("rows")
    sums = {table: Sum(*found) for table, found in line.get("sums", {}).items()}
    entry: Entry
    if "chunks" in line and rows is not None:
        first, end, generation = line["chunks"]
        counts = [first, end, generation, *(n or 0 for column in rows.values() for n in column)]
        if any(len(column) != end - first for column in rows.values()):
            raise TypeError("not an entry of a manifest")
        entry = Entry(step, Merged(first, end, generation), rows, sums)
    elif "chunks" in line:
        first, end = counts = line["chunks"]
        entry = Entry(step, Span(first, end), None)
    else:
        counts = [line["chunk"], *(rows.values() if rows is not None else ())]
        entry = Entry(step, line["chunk"], rows, sums)
    if not (isinstance(step, str) and all(isinstance(count, int) for count in counts)):
        raise TypeError("not an entry of a manifest")
    return entry
