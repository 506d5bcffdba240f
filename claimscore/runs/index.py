"""Which steps of which chunks are finished, how many rows they wrote, and in which files these lie.

Kept in arrays by chunk: a run over a million records has some 100,000 finished steps, and they
take a few megabytes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]

_UNDONE, _OWN = -2, -1
_CAPACITY = 64


class Sum(NamedTuple):
    """The size of a file in bytes, and their CRC-32."""

    size: int
    crc: int


class Span(NamedTuple):
    """The chunks `first` to `end` (exclusive)."""

    first: int
    end: int


class Part(NamedTuple):
    """Rows that one step wrote into one table for one chunk."""

    table: str
    rows: int


class Merged(NamedTuple):
    """A file of a table with what a step wrote for the chunks `first` to `end` (exclusive).

    A file is never changed: another one of the same chunks has the next generation.
    """

    first: int
    end: int
    generation: int


#: Rows of a merged file by table, a number a chunk; None where the chunk is not in it.
Columns: TypeAlias = Mapping[str, Sequence[int | None]]


class Entry(NamedTuple):
    """One change: a step finished for a chunk (`rows` by table), struck off (None) for one or
    several, or the rows of several chunks put into one file. `sums` are those of the files, by
    table; older versions did not write them."""

    step: str
    where: int | Span | Merged
    rows: Mapping[str, int] | Columns | None
    sums: Mapping[str, Sum] = MappingProxyType({})


class Place(NamedTuple):
    """Where the rows of one chunk lie: in a merged file from `offset` on, or in one of its own
    (`file` is None). `sum` is the file's, None where it is not known."""

    chunk: int
    step: str
    file: Merged | None
    offset: int
    rows: int
    sum: Sum | None = None


_NO_SUMS: Mapping[str, Sum] = MappingProxyType({})


@dataclasses.dataclass(slots=True)
class _Step:
    """One step: for each chunk the file it lies in (or that it is undone), and by table how many
    rows it has and where in the file they begin. `sums` are those of files of one chunk, of which
    there are few at a time."""

    file: Numbers
    rows: dict[str, Numbers]
    offset: dict[str, Numbers]
    sums: dict[int, Mapping[str, Sum]] = dataclasses.field(default_factory=dict)

    def fit(self, n_chunks: int) -> None:
        if n_chunks <= len(self.file):
            return
        room = max(n_chunks, 2 * len(self.file))
        self.file = _grown(self.file, room, _UNDONE)
        self.rows = {table: _grown(rows, room, 0) for table, rows in self.rows.items()}
        self.offset = {table: _grown(starts, room, 0) for table, starts in self.offset.items()}

    def put(self, chunks: Numbers, table: str, rows: Numbers | int, offset: Numbers | int) -> None:
        if table not in self.rows:
            table = sys.intern(table)
            self.rows[table] = np.zeros(len(self.file), np.int64)
            self.offset[table] = np.zeros(len(self.file), np.int64)
        self.rows[table][chunks] = rows
        self.offset[table][chunks] = offset


def _grown(numbers: Numbers, room: int, fill: int) -> Numbers:
    grown = np.full(room, fill, np.int64)
    grown[: len(numbers)] = numbers
    return grown


def _counts(column: Sequence[int | None]) -> Numbers:
    """A column as an array, -1 for None."""
    return np.array([-1 if n is None else n for n in column], np.int64)


def _follows(place: Place, before: Place) -> bool:
    return (
        place.file is not None
        and place.file == before.file
        and place.offset == before.offset + before.rows
    )


class PartIndex:
    """The state that a manifest's lines lead to. Not for several threads at once."""

    def __init__(self) -> None:
        self._by_step: dict[str, _Step] = {}
        self._files: list[Merged] = []
        self._contents: list[Columns] = []
        self._sums: list[Mapping[str, Sum]] = []
        self._generations: dict[tuple[str, int, int], int] = {}
        self._total: Counter[str] = Counter()
        self._n_done: Counter[str] = Counter()

    # -- what changes it

    def apply(self, entry: Entry) -> None:
        """Make a change that a journal tells of."""
        if isinstance(entry.where, Merged):
            self.merge(entry.step, entry.where, cast("Columns", entry.rows), entry.sums)
        elif isinstance(entry.where, Span):
            self.strike_span(entry.where, entry.step)
        elif entry.rows is None:
            self.strike(entry.where, entry.step)
        else:
            rows = cast("Mapping[str, int]", entry.rows)
            self.finish(entry.where, entry.step, rows, entry.sums)

    def finish(
        self, chunk: int, step: str, rows: Mapping[str, int], sums: Mapping[str, Sum] = _NO_SUMS
    ) -> None:
        """The step is finished for the chunk, in files of its own."""
        found = self._step(step, chunk + 1)
        self._strike(found, np.array([chunk]), step)
        found.file[chunk] = _OWN
        if sums:
            found.sums[chunk] = sums
        self._n_done[step] += 1
        for table, count in rows.items():
            found.put(np.array([chunk]), table, count, 0)
            self._total[table] += count

    def strike(self, chunk: int, step: str) -> None:
        """The step is undone for the chunk."""
        if step in self._by_step:
            self._strike(self._step(step, chunk + 1), np.array([chunk]), step)

    def strike_span(self, span: Span, step: str) -> None:
        """The step is undone for several chunks."""
        if step in self._by_step:
            self._strike(self._step(step, span.end), np.arange(*span), step)

    def merge(
        self, step: str, file: Merged, rows: Columns, sums: Mapping[str, Sum] = _NO_SUMS
    ) -> None:
        """The rows of these chunks lie in `file`; `rows` has a number a chunk, None for those
        that are not in it."""
        number = len(self._files)
        self._files.append(file)
        self._sums.append(sums)
        self._generations[step, file.first, file.end] = file.generation
        self._contents.append({table: tuple(column) for table, column in rows.items()})
        counts = {table: _counts(column) for table, column in rows.items()}
        chunks = file.first + np.flatnonzero(np.all([n >= 0 for n in counts.values()], axis=0))
        found = self._step(step, file.end)
        self._strike(found, chunks, step)
        found.file[chunks] = number
        self._n_done[step] += len(chunks)
        for table, n in counts.items():
            n = n.clip(0)
            here = chunks - file.first
            found.put(chunks, table, n[here], (np.cumsum(n) - n)[here])
            self._total[table] += int(n[here].sum())

    def _step(self, step: str, n_chunks: int) -> _Step:
        step = sys.intern(step)
        found = self._by_step.get(step)
        if found is None:
            empty = np.full(max(n_chunks, _CAPACITY), _UNDONE, np.int64)
            found = self._by_step[step] = _Step(empty, {}, {})
        found.fit(n_chunks)
        return found

    def _strike(self, found: _Step, chunks: Numbers, step: str) -> None:
        self._n_done[step] -= int((found.file[chunks] != _UNDONE).sum())
        found.file[chunks] = _UNDONE
        if found.sums:
            for chunk in chunks.tolist():
                found.sums.pop(chunk, None)
        for table, rows in found.rows.items():
            self._total[table] -= int(rows[chunks].sum())
            rows[chunks] = 0

    # -- what is asked

    def parts(self, chunk: int, step: str) -> tuple[Part, ...] | None:
        """The tables of a finished step and their rows, or None where it is not finished."""
        found = self._by_step.get(step)
        if found is None or chunk >= len(found.file) or found.file[chunk] == _UNDONE:
            return None
        return tuple(Part(table, int(rows[chunk])) for table, rows in found.rows.items())

    def steps(self, chunk: int) -> frozenset[str]:
        """The finished steps of a chunk."""
        return frozenset(step for step in self._by_step if self._is_done(chunk, step))

    def _is_done(self, chunk: int, step: str) -> bool:
        file = self._by_step[step].file
        return chunk < len(file) and bool(file[chunk] != _UNDONE)

    def all_steps(self) -> frozenset[str]:
        """The steps that are finished for at least one chunk."""
        return frozenset(step for step, count in self._n_done.items() if count)

    def steps_done(self, step: str) -> int:
        """For how many chunks a step is finished."""
        return self._n_done[step]

    def counts(self) -> dict[str, int]:
        """Rows of each table over all finished steps."""
        return dict(self._total)

    def finished(self, chunk: int) -> dict[str, dict[str, Place]]:
        """The finished steps of a chunk, each with where its rows lie by table."""
        return {
            step: {part.table: self._place(part.table, chunk, step) for part in parts}
            for step in sorted(self._by_step)
            if (parts := self.parts(chunk, step)) is not None
        }

    def chunk_counts(self, chunk: int) -> Counter[str]:
        """Rows of each table that the finished steps of a chunk wrote."""
        counts: Counter[str] = Counter()
        for step in self._by_step:
            counts.update(dict(self.parts(chunk, step) or ()))
        return counts

    def writers(self, table: str, chunk: int) -> list[str]:
        """Steps that wrote rows of the table for the chunk, sorted."""
        return [
            step
            for step in sorted(self._by_step)
            if any(part.table == table and part.rows for part in self.parts(chunk, step) or ())
        ]

    def places(self, table: str, chunks: Sequence[int]) -> Iterator[Place]:
        """Where the rows of a table lie: chunk by chunk, of each its steps in sorted order."""
        for chunk in chunks:
            for step in self.writers(table, chunk):
                yield self._place(table, chunk, step)

    def _place(self, table: str, chunk: int, step: str) -> Place:
        found = self._by_step[step]
        number = int(found.file[chunk])
        file = None if number == _OWN else self._files[number]
        sums = found.sums.get(chunk, _NO_SUMS) if file is None else self._sums[number]
        offset, rows = int(found.offset[table][chunk]), int(found.rows[table][chunk])
        return Place(chunk, step, file, offset, rows, sums.get(table))

    def all_places(
        self, table: str, step: str | None = None, first: int = 0, end: int | None = None
    ) -> list[Place]:
        """The same for the chunks `first` to `end` (or all), of one step or all, with what lies
        together in one merged file in one place.

        A step's rows come in the input's order; several steps take turns file by file.
        """
        places: list[Place] = []
        for name in sorted(self._by_step):
            if step in (None, name) and table in self._by_step[name].rows:
                places += self._places_of(table, name, first, end)
        return sorted(places, key=lambda place: place.chunk)

    def _places_of(self, table: str, step: str, first: int, end: int | None) -> Iterator[Place]:
        found = self._by_step[step]
        waiting: Place | None = None
        for chunk in np.flatnonzero(found.rows[table][first:end]).tolist():
            place = self._place(table, first + chunk, step)
            if waiting is not None and _follows(place, waiting):
                waiting = waiting._replace(rows=waiting.rows + place.rows)
            else:
                if waiting is not None:
                    yield waiting
                waiting = place
        if waiting is not None:
            yield waiting

    def entries(self) -> Iterator[Entry]:
        """The entries that lead to this state, as few as that takes."""
        for step, found in self._by_step.items():
            used = np.unique(found.file[found.file >= 0]).tolist()
            named = np.zeros(len(found.file), bool)
            for number in used:
                file, rows = self._files[number], self._contents[number]
                named[file.first : file.end] |= [
                    None not in of_chunk for of_chunk in zip(*rows.values(), strict=True)
                ]
                yield Entry(step, file, rows, self._sums[number])
            for chunk in np.flatnonzero(found.file == _OWN).tolist():
                rows_of = dict(self.parts(chunk, step) or ())
                yield Entry(step, chunk, rows_of, found.sums.get(chunk, _NO_SUMS))
            for chunk in np.flatnonzero(named & (found.file == _UNDONE)).tolist():
                yield Entry(step, chunk, None)

    # -- merging

    def is_finished(self, step: str, first: int, end: int) -> bool:
        """Whether a step is finished for all of these chunks."""
        return len(self.members(step, first, end)) == end - first

    def members(self, step: str, first: int, end: int | None) -> list[int]:
        """The chunks of these (to the last one where `end` is None) for which a step is
        finished."""
        if step not in self._by_step:
            return []
        found = self._by_step[step].file[first:end]
        return [first + int(number) for number in np.flatnonzero(found != _UNDONE)]

    def files(self, step: str, first: int, end: int) -> list[Merged]:
        """The merged files in which a step's rows of these chunks lie."""
        if step not in self._by_step:
            return []
        numbers = np.unique(self._by_step[step].file[first:end])
        return [self._files[int(number)] for number in numbers if number >= 0]

    def together_with(self, place: Place) -> list[int]:
        """The chunks whose rows of the place's step lie in the same files as the place's."""
        found = self._by_step[place.step].file
        if place.file is None:
            return [place.chunk] if found[place.chunk] == _OWN else []
        return [n for n in self.members(place.step, *place.file[:2]) if self._lies_in(place, n)]

    def _lies_in(self, place: Place, chunk: int) -> bool:
        number = int(self._by_step[place.step].file[chunk])
        return number >= 0 and self._files[number] == place.file

    def own(self, step: str, first: int, end: int) -> list[int]:
        """The chunks of these for which a finished step has files of its own."""
        return [
            first + int(n) for n in np.flatnonzero(self._step(step, end).file[first:end] == _OWN)
        ]

    def is_together(self, step: str, first: int, end: int) -> bool:
        """Whether a step's rows of all of these chunks lie in one merged file."""
        found = self._step(step, end).file[first:end]
        return bool(found[0] >= 0 and (found == found[0]).all())

    def columns(self, step: str, first: int, end: int) -> dict[str, list[int | None]]:
        """A step's rows by table, a number a chunk; None where it is undone."""
        found = self._step(step, end)
        done = (found.file[first:end] != _UNDONE).tolist()
        return {
            table: [n if is_done else None for n, is_done in zip(column, done, strict=True)]
            for table, column in ((t, rows[first:end].tolist()) for t, rows in found.rows.items())
        }

    def new_file(self, step: str, first: int, end: int) -> Merged:
        """A file of a step and these chunks that there is not yet."""
        generation = 1 + self._generations.get((step, first, end), 0)
        return Merged(first, end, generation)
