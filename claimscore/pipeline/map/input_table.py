"""Any table as a stream of frames: files of the known formats, or rows in memory.

`find_source` looks at the files, `digest` tells whether their content is still the same, and
`open` finds the columns' types and gives frames, one after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from claimscore.atomic import atomic_path
from claimscore.errors import InputError
from claimscore.pipeline.map.table_prompt import ERROR_COLUMN, KEY_COLUMN
from claimscore.records.columns import ValueKinds, check_room
from claimscore.records.files import InputFile, find_files, input_file, spool_stdin
from claimscore.records.readers import (
    Record,
    file_errors,
    header,
    place,
    read,
    rows_in_memory,
)

#: Rows of a Parquet file that are read at a time, and rows of other files.
READ_ROWS, _PARSED_ROWS = 10_000, 1_000

#: The key of a map's settings in the Parquet metadata of its file.
METADATA_KEY = "claimscore.map"


@dataclasses.dataclass(frozen=True)
class InputTable:
    """Rows whose types are known; few of them are in memory at a time."""

    name: str
    schema: dict[str, pl.DataType]
    n_rows: int
    frames: Callable[[], Iterator[pl.DataFrame]] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if not self.n_rows:
            raise InputError(f"{self.name}: the input is empty; there are no rows in it")

    def chunks(self, size: int) -> Iterator[pl.DataFrame]:
        """Frames of `size` rows in the input's order, the last one with the rest."""
        return regrouped(self.frames(), size)

    def head(self, limit: int | None) -> InputTable:
        """The first rows, with the types that all of them have."""
        if limit is None or limit >= self.n_rows:
            return self
        return dataclasses.replace(self, n_rows=limit, frames=lambda: _first(self.frames(), limit))


def _first(frames: Iterable[pl.DataFrame], left: int) -> Iterator[pl.DataFrame]:
    for frame in frames:
        yield frame.head(left)
        left -= frame.height
        if left <= 0:
            return


def regrouped(frames: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """The same rows in frames of exactly `size`; the last one may have fewer."""
    waiting: list[pl.DataFrame] = []
    height = 0
    for frame in frames:
        waiting.append(frame)
        height += frame.height
        if height < size:
            continue
        rows = pl.concat(waiting)
        whole = height - height % size
        yield from (rows.slice(start, size) for start in range(0, whole, size))
        waiting, height = [rows.slice(whole)], height - whole
    if height:
        yield pl.concat(waiting)


@dataclasses.dataclass(frozen=True)
class TableSource:
    """Files of one format, whose rows follow one another."""

    name: str
    files: tuple[InputFile, ...]

    def digest(self) -> str:
        """The same for the same content, whatever the files are called and however old they are."""
        digest = hashlib.sha256(self.files[0].format.encode())
        for file in self.files:
            digest.update(b"%d\n" % file.size)
            with file_errors(file), file.path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            file.check_unchanged()
        return digest.hexdigest()

    def open(self) -> InputTable:
        """Find the types; `InputError` names file, line and column of a value of no use.

        The bookkeeping columns of a finished map get the name of its prompt, as in a chain.
        """
        opened = _open_parquet if self.files[0].format == "parquet" else _open_rows
        table = opened(self.name, self.files)
        if not {KEY_COLUMN, ERROR_COLUMN} <= table.schema.keys():
            return table
        prompt = _prompt_of(self.files[0])
        names = {name: f"{prompt}.{name}" for name in (KEY_COLUMN, ERROR_COLUMN)}
        for name in names.values():
            if name in table.schema:
                raise InputError(f"{self.name}: the map that wrote it read a file with {name} too")
        return dataclasses.replace(
            table,
            schema={names.get(name, name): dtype for name, dtype in table.schema.items()},
            frames=lambda: (frame.rename(names) for frame in table.frames()),
        )


def _prompt_of(file: InputFile) -> str:
    """The name of the prompt that made a file of a map; `input` where it no longer says so."""
    if file.format == "parquet":
        with contextlib.suppress(KeyError, ValueError, TypeError, pl.exceptions.PolarsError):
            facts = json.loads(pl.read_parquet_metadata(file.path)[METADATA_KEY])
            return str(facts["settings"]["prompt"]["name"])
    return "input"


def find_source(given: Any, spool: Path, stdin: BinaryIO | None = None) -> TableSource:
    """A file, a glob, rows in memory (`rows_in_memory`), or "-": JSONL on standard input. What is
    no file yet is copied to the folder `spool`."""
    if isinstance(given, pl.DataFrame):
        return _written(given, "the frame", spool)
    if not isinstance(given, str | Path):
        rows = rows_in_memory(given)
        return _written(pl.concat(_open_rows(rows.name, (rows,)).frames()), rows.name, spool)
    if str(given) != "-":
        return TableSource(str(given), find_files(str(given), spool))
    return TableSource("standard input", (spool_stdin(spool, stdin),))


def _written(frame: pl.DataFrame, name: str, spool: Path) -> TableSource:
    """A frame as a file: the same bytes for the same values, however they lie in memory."""
    path = spool / "frame.parquet"
    with atomic_path(path) as new:
        try:
            frame.rechunk().write_parquet(new)
        except pl.exceptions.PolarsError as exc:
            first = str(exc).strip().partition("\n")[0]
            raise InputError(f"{name}: not for Parquet: {first}") from exc
    return TableSource(name, (input_file(path, name),))


@contextlib.contextmanager
def scratch_source(given: Any, stdin: BinaryIO | None = None) -> Iterator[TableSource]:
    """The same for callers that keep nothing: a copy of standard input goes with the block."""
    with tempfile.TemporaryDirectory(prefix="claimscore-") as folder:
        yield find_source(given, Path(folder), stdin)


# Parquet: types as they are


def _open_parquet(name: str, files: tuple[InputFile, ...]) -> InputTable:
    schema: dict[str, pl.DataType] | None = None
    n_rows = 0
    for file in files:
        header(file)  # a file that is not Parquet is refused in the words of the readers
        with file_errors(file):
            scan = pl.scan_parquet(file.path, glob=False)
            columns = dict(scan.collect_schema())
            n_rows += scan.select(pl.len()).collect().item()
        schema = columns if schema is None else schema
        for column in (*schema, *columns):
            if columns.get(column) != schema.get(column):
                here, there = _type_name(columns.get(column)), _type_name(schema.get(column))
                raise InputError(
                    f"{file.name}: column {column} is {here}, and {there} in {files[0].name}; "
                    "files of one input have the same columns"
                )
    types = schema or {}
    return InputTable(name, types, n_rows, lambda: _parquet_frames(files, list(types)))


def _type_name(dtype: pl.DataType | None) -> str:
    return "absent" if dtype is None else f"of type {dtype}"


def _parquet_frames(files: tuple[InputFile, ...], columns: list[str]) -> Iterator[pl.DataFrame]:
    for file in files:
        file.check_unchanged()
        scan = pl.scan_parquet(file.path, glob=False).select(columns)
        with file_errors(file):
            yield from _slices(scan)
        file.check_unchanged()


def _slices(scan: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    start = 0
    while not (frame := scan.slice(start, READ_ROWS).collect()).is_empty():
        yield frame
        start += frame.height


# JSON and CSV: the type that all values of a column have in common; lists and objects are JSON text


def _open_rows(name: str, files: tuple[InputFile, ...]) -> InputTable:
    types: dict[str, ValueKinds] = {}
    n_rows, cells = 0, files[0].format in ("csv", "tsv")
    for file in files:
        for line, record in read(file):
            n_rows += 1
            for column, value in record.items():
                if column not in types:
                    check_room(types, place(file, line))
                    types[column] = ValueKinds(cells=cells)
                if value is not None:
                    types[column].see(value)
        file.check_unchanged()
    columns = [seen.column(column) for column, seen in types.items()]

    def frames() -> Iterator[pl.DataFrame]:
        for file in files:
            file.check_unchanged()
            records = read(file)
            while rows := [record for _, record in itertools.islice(records, _PARSED_ROWS)]:
                yield pl.DataFrame(
                    [column.series(_values(rows, column.name, cells)) for column in columns]
                )
            file.check_unchanged()

    return InputTable(name, {column.name: column.dtype for column in columns}, n_rows, frames)


def _values(rows: list[Record], name: str, cells: bool) -> Iterator[Any]:
    """The values of a column; an empty cell is null."""
    values = (row.get(name) for row in rows)
    return (value or None for value in values) if cells else values
