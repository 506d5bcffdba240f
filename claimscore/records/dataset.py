"""`prepare`: one pass that refuses what cannot be used; `Dataset`: the records, in chunks.

The first pass finds the number of records, the columns' types and the digest; chunks are
then read from the files again, so memory holds one chunk whatever the input's size.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from claimscore.atomic import os_errors
from claimscore.errors import InputError
from claimscore.records.columns import (
    ALTERNATIVES,
    CANONICAL,
    KNOWN_COLUMNS,
    Column,
    ColumnError,
    TypeFinder,
    check_room,
    identifier,
    is_null_word,
    likely_columns,
    parse_record,
)
from claimscore.records.files import InputFile, find_files, spool_stdin
from claimscore.records.readers import Record, header, place, read, rows_in_memory

Required = Mapping[str, Sequence[str]]


#: After the first problem so many records are looked at for others, of which so many are told.
LOOKED_AT, TOLD = 10_000, 10


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which records of an input are read, and under which names.

    `columns` has names of the input by names of claimscore (`{"source": "article"}`); what has the
    latter name in the input is left out. `limit` is the number of records from the first on.
    """

    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limit: int | None = None

    def read(self, files: Iterable[InputFile]) -> Iterator[tuple[InputFile, int, Record]]:
        """Each record with its file and line; `InputError` where a file changes meanwhile."""
        left = -1 if self.limit is None else self.limit
        for file in files:
            file.check_unchanged()
            for line, record in read(file):
                if not left:
                    return
                left -= 1
                yield file, line, self._renamed(record) if self.columns else record
            file.check_unchanged()

    def names(self, given: Sequence[str]) -> list[str]:
        """The names of columns after renaming."""
        return list(self._renamed(dict.fromkeys(given)))

    def first_names(self, files: Iterable[InputFile]) -> list[str]:
        """The columns of the first record after renaming; none where there is no record."""
        return next(([*record] for _, _, record in self.read(files)), [])

    def _renamed(self, record: Record) -> Record:
        others = {*self.columns, *self.columns.values()}
        kept = {name: value for name, value in record.items() if name not in others}
        taken = {ours: record[theirs] for ours, theirs in self.columns.items() if theirs in record}
        return kept | taken


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Validated records; nothing of them is in memory until `chunks` is iterated.

    `null_words` counts, by column, the words such as NULL that are read as no text.

    Not promised: that the digest is the same for the same records in another format,
    beyond texts, lists and ratings (a CSV cell is text, a JSON number is not).
    """

    files: tuple[InputFile, ...]
    n_records: int
    columns: dict[str, pl.DataType]
    digest: str
    _columns: tuple[Column, ...] = dataclasses.field(repr=False)
    _has_ids: bool = True
    selection: Selection = Selection()
    null_words: Mapping[str, Counter[str]] = dataclasses.field(default_factory=dict)

    def chunks(self, size: int) -> Iterator[pl.DataFrame]:
        """Frames of `size` records in the input's order, all of the schema `columns`.

        `InputError` when a file is no longer what was validated.
        """
        rows: list[Record] = []
        cells = self.files[0].format in ("csv", "tsv")
        for number, (_, _, record) in enumerate(self.selection.read(self.files)):
            parsed = parse_record(record, cells=cells)
            if not self._has_ids:
                parsed["id"] = str(number)
            rows.append(parsed)
            if len(rows) == size:
                yield self._frame(rows)
                rows = []
        if rows:
            yield self._frame(rows)

    def _frame(self, rows: list[Record]) -> pl.DataFrame:
        return pl.DataFrame(
            [column.series([row.get(column.name) for row in rows]) for column in self._columns]
        )


def open_input(source: Any, *, spool: Path, stdin: BinaryIO | None = None) -> tuple[InputFile, ...]:
    """What `source` names: a file, a glob, rows in memory (`rows_in_memory`), or "-" for JSONL on
    standard input, which is copied to `spool`."""
    with os_errors(spool):
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not isinstance(source, str):
        return (rows_in_memory(source),)
    return (spool_stdin(spool, stdin),) if source == "-" else find_files(source, spool)


def prepare(
    files: tuple[InputFile, ...], required: Required, selection: Selection = Selection()
) -> Dataset:
    """Validate every record of the files in one streaming pass.

    `required` says which columns each chosen metric needs. `InputError` names all problems, of
    each the first place: file, line or row, and column.
    """
    return _Validation(files, required, selection).run()


def _listed(names: Sequence[str], limit: int = 20) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(_shown(name) for name in names[:limit]) + more


def _shown(name: str) -> str:
    """A name or id from the input as part of a message of one line."""
    return name if name.isprintable() and len(name) <= 80 else json.dumps(name[:80])


class _Validation:
    """The state of the first pass."""

    def __init__(
        self, files: tuple[InputFile, ...], required: Required, selection: Selection
    ) -> None:
        self._selection = selection
        self._files = files
        self._cells = files[0].format in ("csv", "tsv")
        self._types = TypeFinder(cells=self._cells)
        self._has_ids: bool | None = None
        self._id_hashes = array("q")
        self._needs: dict[str, list[str]] = {}
        for metric, columns in required.items():
            for column in columns:
                self._needs.setdefault(column, []).append(metric)
        self._accepted = [(name, ALTERNATIVES.get(name, (name,))) for name in self._needs]
        self._null_words: dict[str, Counter[str]] = {}
        self._problems: dict[str, str] = {}
        self._n_problems = Counter[str]()

    def run(self) -> Dataset:
        digest, count, left = hashlib.sha256(), 0, LOOKED_AT
        name = self._files[0].name + f" and {len(self._files) - 1} more" * (len(self._files) > 1)
        try:
            self._check_directions()
            for file in self._files:
                self._check_header(file)
            for file, line, record in self._selection.read(self._files):
                parsed = self._checked(file, line, record)
                if parsed is not None:
                    if not self._has_ids:
                        parsed["id"] = str(count)
                    try:
                        digest.update(CANONICAL(parsed).encode() + b"\n")
                    except RecursionError:
                        self._note(place(file, line), "objects are nested too deeply")
                count += 1
                left -= bool(self._problems)
                if not left:
                    break
            else:
                self._check_duplicates()
                if not (count or self._problems):
                    self._note(name, "the input is empty; there are no records in it")
        except InputError as exc:  # what comes after it cannot be read
            self._problems.setdefault(str(exc), str(exc))
        for ours, theirs in self._selection.columns.items():
            if not self._problems and ours not in self._types.names:
                self._note(name, f"{self._renamed(ours)}: no record has a column {_shown(theirs)}")
        if self._problems:
            raise InputError("\n  ".join(self._messages()))
        columns = tuple(self._types.columns())
        return Dataset(
            files=self._files,
            n_records=count,
            columns={column.name: column.dtype for column in columns},
            digest=digest.hexdigest(),
            _columns=columns,
            _has_ids=bool(self._has_ids),
            selection=self._selection,
            null_words=self._null_words,
        )

    def _note(self, where: str, why: str, like: str = "") -> None:
        """Keep the first of the problems that are alike, and how many there are."""
        self._problems.setdefault(like or why, f"{where}: {why}")
        self._n_problems[like or why] += 1

    def _messages(self) -> Iterator[str]:
        if (n := len(self._problems)) > 1:
            first = f", the first {TOLD}" * (n > TOLD)
            yield f"{self._files[0].name}: {n:,} problems{first}:"
        for like, message in itertools.islice(self._problems.items(), TOLD):
            more = self._n_problems[like] - 1
            yield f"{message}; also in {more:,} more" if more > 0 else message

    def _checked(self, file: InputFile, line: int, record: Record) -> Record | None:
        """The record with the types of its columns; None where something is wrong with it."""
        where, n_before = functools.partial(place, file, line), self._n_problems.total()
        for name in self._types.new_names(record):
            check_room(self._types.names, where())
            self._types.add_name(name)
        parsed: Record = record
        try:
            parsed = parse_record(record, cells=self._cells)
        except ColumnError as exc:
            self._note(where(), f"{exc.column} {exc}{self._needed_by(exc.column)}")
        else:
            if "id" in parsed:
                self._id_hashes.append(hash(parsed["id"]))
            if parsed.get("source") and parsed.get("sources"):
                self._note(where(), "source and sources are both there; leave one of them out")
        if ("id" in record) is not self._has_ids or (self._has_ids and record["id"] is None):
            self._check_id(where(), record)
        for column, accepted in self._accepted:
            if not any(name in parsed for name in accepted):
                if not self._note_missing(where(), list(record), "the record has"):
                    what = "empty" if self._cells else "null"
                    self._note(where(), f"{column} is {what}{self._needed_by(column)}")
                break
        if self._n_problems.total() > n_before:
            return None
        if not all(parsed.values()):
            for name, value in record.items():
                if is_null_word(name, value):
                    self._null_words.setdefault(name, Counter())[value.strip()] += 1
        self._types.see(parsed)
        return parsed

    def _check_id(self, where: str, record: Record) -> None:
        if self._has_ids is None:
            self._has_ids = "id" in record
        if "id" in record and record["id"] is None:
            self._note(where, "id is null; give every record an id, or leave the column out")
        elif self._has_ids and "id" not in record:
            self._note(where, "no id, though records before it have one")
        elif not self._has_ids and "id" in record:
            self._note(where, "an id, though records before it have none")

    def _note_missing(self, where: str, names: Sequence[str], said: str) -> list[str]:
        """Note the columns that are needed and none of `names`, all together; return them."""
        missing: dict[str, list[str]] = {}
        for column, accepted in self._accepted:
            if not set(accepted) & set(names):
                missing.setdefault(self._needed_by(column), []).append(column)
        lacking = [column for columns in missing.values() for column in columns]
        if not missing:
            return lacking
        given = [self._selection.columns.get(name, name) for name in names]
        for ours, theirs in self._selection.columns.items():
            if ours not in names:
                why = f"{self._renamed(ours)}: no column {_shown(theirs)}"
                self._note(where, f"{why}; {said}: {_listed(given)}", why)
                return lacking
        lacks = ", ".join(
            f"no {'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}{need}"
            for need, columns in missing.items()
        )
        likely = likely_columns(names)
        pairs = ",".join(f"{column}={likely[column]}" for column in lacking if column in likely)
        meant = "; `claimscore metrics list` says what each metric reads"
        of_two = "summary" in lacking and likely.get("summary") == "summary_a"
        other = " (or summary=summary_b)" * (of_two and "summary_b" in names)
        meant = (
            f"; is --columns {_shown(pairs)} meant{other}? (Python: columns=)" if pairs else meant
        )
        if pairs and not set(lacking).isdisjoint(self._types.names):  # earlier records have it
            meant = f"; is {_shown(next(iter(likely.values())))} meant?"
        self._note(where, f"{lacks}; {said}: {_listed(names) or 'nothing'}{meant}", lacks)
        return lacking

    def _needed_by(self, column: str) -> str:
        metrics = [m for name in ALTERNATIVES.get(column, (column,)) for m in self._metrics(name)]
        return f" (needed by {', '.join(metrics)})" if metrics else ""

    def _metrics(self, column: str) -> list[str]:
        return self._needs.get(column, [])

    def _check_header(self, file: InputFile) -> None:
        names = header(file)
        if names is None:
            return
        where = f"{file.name}, line 1" if self._cells else file.name
        absent = {ours for ours, name in self._selection.columns.items() if name not in names}
        for ours in absent:
            why = f"{self._renamed(ours)}: no column {_shown(self._selection.columns[ours])}"
            self._note(where, f"{why}; the columns are: {_listed(names)}", why)
        self._accepted = [pair for pair in self._accepted if absent.isdisjoint(pair[1])]
        lacking = self._note_missing(where, self._selection.names(names), "the columns are")
        self._accepted = [pair for pair in self._accepted if pair[0] not in lacking]

    def _check_directions(self) -> None:
        """`InputError` where a name of claimscore stands in the place of one of the input."""
        for ours, theirs in self._selection.columns.items():
            if ours not in {*KNOWN_COLUMNS, *self._needs} and theirs in KNOWN_COLUMNS:
                turned = self._renamed(theirs, ours)
                raise InputError(
                    f"{self._files[0].name}: {self._renamed(ours)}: claimscore's name stands "
                    f"first; is {turned} meant?"
                )

    def _renamed(self, ours: str, theirs: str = "") -> str:
        """An entry of `columns`, that of a name, as it is written in Python or typed."""
        theirs = theirs or self._selection.columns[ours]
        in_python = self._files[0].format == "rows"
        return f"columns={ {ours: theirs} }" if in_python else f"--columns {ours}={theirs}"

    def _check_duplicates(self) -> None:
        """Note the ids that stand twice. Eight bytes an id are in memory; only where two of these
        are equal, the input is read again."""
        hashes = np.sort(np.frombuffer(self._id_hashes, np.int64))  # others take 100 bytes an id
        repeated = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        if not repeated:
            return
        places: dict[str, str] = {}
        for file, line, record in self._selection.read(self._files):
            try:
                name = identifier(record.get("id"))
            except ValueError:  # noted before
                continue
            if hash(name) not in repeated:
                continue
            if name in places:
                why = f"id {_shown(name)} stands at {places[name]} already; every record needs an "
                self._note(place(file, line), f"{why}id of its own", "an id twice")
            places.setdefault(name, place(file, line))
