"""Any table as a stream of frames: files of the known formats, or a frame in memory.

`find_source` looks at the files, `digest` tells whether their content is still the same, and
`open` finds the columns' types and gives frames, one after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import polars as pl

from claimscore.errors import InputError
from claimscore.records.columns import CANONICAL, MAX_COLUMNS, Column, ValueKinds
from claimscore.records.files import Format, InputFile, find_files, spool_stdin
from claimscore.records.readers import file_errors, header, place, read
from claimscore.records.rows import rows_in_memory

#: Rows of a Parquet file that are read at a time, and rows of other files.
READ_ROWS, _PARSED_ROWS = 10_000, 1_000

#: Rows whose bytes make the digest of a frame in memory, at a time.
_DIGEST_ROWS = 10_000

#: A JSON object with more names than this is a dictionary of the user's, not a record.
MAX_FIELDS = 200

_I64 = 2**63
_EXACT_FLOAT = 2**53


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
class FrameSource:
    """A polars frame of the caller's."""

    frame: pl.DataFrame = dataclasses.field(repr=False)
    name: str = "the frame"

    def digest(self) -> str:
        """The same for the same columns and values, however they lie in memory."""
        digest = hashlib.sha256(str(self.frame.schema).encode())
        for rows in self.frame.iter_slices(_DIGEST_ROWS):
            buffer = io.BytesIO()
            try:
                rows.rechunk().write_parquet(buffer, compression="uncompressed")
            except pl.exceptions.PolarsError as exc:
                first = str(exc).strip().partition("\n")[0]
                raise InputError(f"{self.name}: not for Parquet: {first}") from exc
            digest.update(buffer.getbuffer())
        return digest.hexdigest()

    def open(self) -> InputTable:
        """The frame as a table."""
        frame = self.frame
        return InputTable(self.name, dict(frame.schema), frame.height, lambda: iter([frame]))


@dataclasses.dataclass(frozen=True)
class FileSource:
    """Files of one format, whose rows follow one another."""

    name: str
    files: tuple[InputFile, ...]

    def digest(self) -> str:
        """The same for the same content, whatever the files are called and however old they are."""
        digest = hashlib.sha256(self.files[0].format.encode())
        for file in self.files:
            digest.update(b"%d\n" % file.size)
            with file_errors(file), file.open() as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            file.check_unchanged()
        return digest.hexdigest()

    def open(self) -> InputTable:
        """Find the types; `InputError` names file, line and column of a value of no use."""
        return _OPENERS[self.files[0].format](self.name, self.files)


TableSource: TypeAlias = FrameSource | FileSource


def find_source(given: Any, spool: Path, stdin: BinaryIO | None = None) -> TableSource:
    """A file, a glob, rows in memory (`rows_in_memory`), or "-": JSONL on standard input, copied to
    the folder `spool`."""
    if isinstance(given, pl.DataFrame):
        return FrameSource(given)
    if not isinstance(given, str | Path):
        rows = rows_in_memory(given)
        return FrameSource(pl.concat(_open_rows(rows.name, (rows,)).frames()), rows.name)
    if str(given) != "-":
        return FileSource(str(given), find_files(str(given)))
    return FileSource("standard input", (spool_stdin(spool, stdin),))


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
            scan = pl.scan_parquet(file.where, glob=False)
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
        scan = pl.scan_parquet(file.where, glob=False).select(columns)
        with file_errors(file):
            if file.store is None:  # a stream of batches would run ahead of its reader
                yield from _slices(scan)
            else:  # and each slice would fetch its whole row group again
                yield from scan.collect_batches(chunk_size=READ_ROWS, maintain_order=True)
        file.check_unchanged()


def _slices(scan: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    start = 0
    while not (frame := scan.slice(start, READ_ROWS).collect()).is_empty():
        yield frame
        start += frame.height


# JSON and CSV: the type that all values of a column have in common


def _open_rows(name: str, files: tuple[InputFile, ...]) -> InputTable:
    cells, names = files[0].format in ("csv", "tsv"), header(files[0])
    types: dict[str, JsonType | ValueKinds] = {n: ValueKinds(cells=True) for n in names or ()}
    n_rows = 0
    for file in files:
        if header(file) != names:
            raise InputError(f"{file.name}, line 1: the columns are not those of {files[0].name}")
        for line, record in read(file):
            n_rows += 1
            for column, value in record.items():
                try:
                    if column not in types:
                        _check_new_column(column, types, place(file, line))
                        types[column] = JsonType()
                    types[column].see(value)
                except UnicodeEncodeError:
                    raise InputError(
                        f"{place(file, line)}: {json.dumps(column)} holds half of a surrogate "
                        "pair, which is not text; write the whole character"
                    ) from None
        file.check_unchanged()
    columns = [seen.column(column) for column, seen in types.items()]
    schema = {column.name: column.dtype for column in columns}
    return InputTable(name, schema, n_rows, lambda: _row_frames(files, columns, cells=cells))


def _row_frames(
    files: tuple[InputFile, ...], columns: list[Column], *, cells: bool
) -> Iterator[pl.DataFrame]:
    for file in files:
        file.check_unchanged()
        records = read(file)
        while rows := [record for _, record in itertools.islice(records, _PARSED_ROWS)]:
            values = ([row.get(column.name) for row in rows] for column in columns)
            if cells:
                values = ([cell or None for cell in column] for column in values)
            yield pl.DataFrame(
                [column.series(items) for column, items in zip(columns, values, strict=True)]
            )
        file.check_unchanged()


def _check_new_column(column: str, known: Collection[str], where: str) -> None:
    column.encode()
    if len(known) >= MAX_COLUMNS:
        raise InputError(
            f"{where}: more than {MAX_COLUMNS} different columns; put varying names into one object"
        )


class JsonType:
    """Sees values one by one and then knows a type that holds all of them exactly.

    Integers that a float cannot hold exactly have no common type with floats. Nulls have one with
    everything, and objects get the names of all of them.
    """

    __slots__ = ("_fields", "_item", "_kinds")

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._item: JsonType | None = None
        self._fields: dict[str, JsonType] = {}

    def see(self, value: Any) -> None:
        """Take note of one value of `json.loads`.

        Half of a surrogate pair, which is not text, raises `UnicodeEncodeError`.
        """
        kind = type(value).__name__
        if kind == "str":
            if not value.isascii():
                value.encode()
        elif kind == "int":
            if not -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
                kind = "wide" if -_I64 <= value < _I64 else "huge"
        elif kind == "list":
            self._item = self._item or JsonType()
            for item in value:
                self._item.see(item)
        elif kind == "dict":
            for name, item in value.items():
                self._field(name).see(item)
        elif kind == "NoneType":
            return
        self._kinds.add(kind)

    def _field(self, name: str) -> JsonType:
        field = self._fields.get(name)
        if field is None:
            name.encode()
            field = JsonType()
            if len(self._fields) <= MAX_FIELDS:
                self._fields[name] = field
        return field

    def column(self, name: str) -> Column:
        """The column of these values; JSON text where they have no common type."""
        dtype = self.dtype()
        return Column(name, dtype or pl.String(), None if dtype else CANONICAL)

    def dtype(self) -> pl.DataType | None:
        """The common type; None where the values have none and are kept as JSON text."""
        if self._kinds == {"list"} and self._item is not None:
            inner = self._item.dtype()
            return None if inner is None else pl.List(inner)
        if self._kinds == {"dict"}:
            types = {name: field.dtype() for name, field in self._fields.items()}
            known = {name: dtype for name, dtype in types.items() if dtype is not None}
            is_record = 0 < len(types) <= MAX_FIELDS and len(known) == len(types)
            return pl.Struct(known) if is_record else None
        if self._kinds <= {"str"}:
            return pl.String()
        if self._kinds <= {"int", "wide"}:
            return pl.Int64()
        if self._kinds <= {"int", "float"}:
            return pl.Float64()
        return pl.Boolean() if self._kinds == {"bool"} else None


_OPENERS: dict[Format, Callable[[str, tuple[InputFile, ...]], InputTable]] = {
    "parquet": _open_parquet,
    "jsonl": _open_rows,
    "json": _open_rows,
    "rows": _open_rows,
    "csv": _open_rows,
    "tsv": _open_rows,
}
