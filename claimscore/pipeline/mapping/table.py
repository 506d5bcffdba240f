"""Any table as a stream of frames: files of the known formats, or a frame in memory.

`find_source` looks at what was named, `Source.digest` says whether it is what it was,
`Source.open` finds the columns' types and gives frames, one after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import polars as pl

from claimscore.atomic import atomic_file
from claimscore.errors import InputError
from claimscore.pipeline.mapping.json_types import Shape
from claimscore.records.columns import CANONICAL, Column, TypeFinder
from claimscore.records.files import Format, InputFile, find_files, input_file
from claimscore.records.readers import file_errors, header, place, read

#: Rows of a Parquet file that are read at a time.
READ_ROWS = 10_000

#: More different columns than this in JSON objects are no columns.
MAX_COLUMNS = 10_000

#: Rows whose bytes make the digest of a frame in memory, at a time.
_DIGEST_ROWS = 10_000


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows whose types are known; few of them are in memory at a time."""

    name: str
    schema: dict[str, pl.DataType]
    n_rows: int
    frames: Callable[[], Iterator[pl.DataFrame]] = dataclasses.field(repr=False)

    def chunks(self, size: int) -> Iterator[pl.DataFrame]:
        """Frames of `size` rows in the input's order, the last one with the rest."""
        return regrouped(self.frames(), size)


class Source(Protocol):
    """What was named as input, before anything of it was read."""

    @property
    def name(self) -> str:
        """For messages."""

    def digest(self) -> str:
        """The same for the same content, whatever it is called and however old it is."""

    def open(self) -> Table:
        """Find the types; `InputError` names file, line and column of what cannot be used."""


def find_source(
    given: str | Path | pl.DataFrame, spool: Path, stdin: BinaryIO | None = None
) -> Source:
    """A file, a glob, a frame, or "-": JSONL on standard input, copied to the folder `spool`."""
    if isinstance(given, pl.DataFrame):
        return FrameSource(given)
    if str(given) != "-":
        return FileSource(str(given), find_files(str(given)))
    target = spool / "stdin.jsonl"
    with atomic_file(target) as stream:
        shutil.copyfileobj(stdin or sys.stdin.buffer, stream, 1 << 20)
    return FileSource("standard input", (input_file(target, name="standard input"),))


@contextlib.contextmanager
def scratch_source(
    given: str | Path | pl.DataFrame, stdin: BinaryIO | None = None
) -> Iterator[Source]:
    """The same for whoever keeps nothing: a copy of standard input goes when the block ends."""
    with tempfile.TemporaryDirectory(prefix="claimscore-") as folder:
        yield find_source(given, Path(folder), stdin)


@dataclasses.dataclass(frozen=True)
class FrameSource:
    """A polars frame of the caller's."""

    frame: pl.DataFrame = dataclasses.field(repr=False)
    name: str = "the frame"

    def digest(self) -> str:
        digest = hashlib.sha256(str(self.frame.schema).encode())
        for part in self.frame.iter_slices(_DIGEST_ROWS):
            digest.update(self._bytes(part.rechunk()))
        return digest.hexdigest()

    def _bytes(self, part: pl.DataFrame) -> memoryview:
        """The rows as Parquet, which depends on the values alone, not on how they lie."""
        buffer = io.BytesIO()
        try:
            part.write_parquet(buffer, compression="uncompressed")
        except pl.exceptions.PolarsError as exc:
            raise InputError(f"{self.name}: not for Parquet: {_first_line(exc)}") from exc
        return buffer.getbuffer()

    def open(self) -> Table:
        frame = self.frame
        return _not_empty(Table(self.name, dict(frame.schema), frame.height, lambda: iter([frame])))


@dataclasses.dataclass(frozen=True)
class FileSource:
    """Files of one format, whose rows follow one another."""

    name: str
    files: tuple[InputFile, ...]

    def digest(self) -> str:
        digest = hashlib.sha256(self.files[0].format.encode())
        for file in self.files:
            digest.update(b"%d\n" % file.size)
            with file_errors(file), file.open() as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            file.check_unchanged()
        return digest.hexdigest()

    def open(self) -> Table:
        return _not_empty(_OPENERS[self.files[0].format](self.name, self.files))


def _not_empty(table: Table) -> Table:
    if not table.n_rows:
        raise InputError(f"{table.name}: the input is empty; there are no rows in it")
    return table


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


# Parquet: types as they are


def _open_parquet(name: str, files: tuple[InputFile, ...]) -> Table:
    schemas, n_rows = [], 0
    for file in files:
        header(file)  # a file that is no Parquet is refused in the words of the readers
        with file_errors(file):
            scan = pl.scan_parquet(file.where, glob=False)
            schemas.append(dict(scan.collect_schema()))
            n_rows += scan.select(pl.len()).collect().item()
    for file, schema in zip(files, schemas, strict=True):
        _same_schema(files[0], schemas[0], file, schema)
    return Table(name, schemas[0], n_rows, lambda: _parquet_frames(files, list(schemas[0])))


def _same_schema(
    first: InputFile,
    wanted: dict[str, pl.DataType],
    file: InputFile,
    schema: dict[str, pl.DataType],
) -> None:
    for column in (*wanted, *schema):
        here, there = schema.get(column), wanted.get(column)
        if here != there:
            raise InputError(
                f"{file.name}: column {column} is {_type_name(here)}, and {_type_name(there)} in "
                f"{first.name}; files of one input have the same columns"
            )


def _type_name(dtype: pl.DataType | None) -> str:
    return "absent" if dtype is None else f"of type {dtype}"


def _parquet_frames(files: tuple[InputFile, ...], columns: list[str]) -> Iterator[pl.DataFrame]:
    for file in files:
        file.check_unchanged()
        scan = pl.scan_parquet(file.where, glob=False).select(columns)
        with file_errors(file):
            yield from _slices(scan) if file.remote is None else _batches(scan)
        file.check_unchanged()


def _slices(scan: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """One by one: a stream of batches would run ahead of whoever takes them."""
    start = 0
    while not (frame := scan.slice(start, READ_ROWS).collect()).is_empty():
        yield frame
        start += frame.height


def _batches(scan: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """A stream all the same: each slice would fetch its whole row group again."""
    return iter(scan.collect_batches(chunk_size=READ_ROWS, maintain_order=True))


# JSONL: the type that all values of a column have in common


def _open_json(name: str, files: tuple[InputFile, ...]) -> Table:
    shapes: dict[str, Shape] = {}
    n_rows = 0
    for file in files:
        for line, record in read(file):
            n_rows += 1
            for column, value in record.items():
                try:
                    _shape(shapes, column, file, line).see(value)
                except UnicodeEncodeError:
                    raise InputError(
                        f"{place(file, line)}: {json.dumps(column)} holds half of a surrogate "
                        "pair, which is not text; write the whole character"
                    ) from None
        file.check_unchanged()
    columns = [_json_column(column, shape) for column, shape in shapes.items()]
    schema = {column.name: column.dtype for column in columns}
    return Table(name, schema, n_rows, lambda: _record_frames(files, columns))


def _shape(shapes: dict[str, Shape], column: str, file: InputFile, line: int) -> Shape:
    found = shapes.get(column)
    if found is None:
        column.encode()
        if len(shapes) >= MAX_COLUMNS:
            raise InputError(
                f"{place(file, line)}: more than {MAX_COLUMNS} different columns; put varying "
                "names into one object"
            )
        found = shapes[column] = Shape()
    return found


def _json_column(name: str, shape: Shape) -> Column:
    dtype = shape.dtype()
    return Column(name, pl.String(), CANONICAL) if dtype is None else Column(name, dtype)


# CSV: numbers and truth values where all cells look so, text otherwise


def _open_csv(name: str, files: tuple[InputFile, ...]) -> Table:
    names = header(files[0]) or []
    # Names mean nothing here (`id`, `sources` are columns like others): numbers stand for them.
    finder = TypeFinder(cells=True)
    numbers = [str(number) for number in range(len(names))]
    for number in numbers:
        finder.add_name(number)
    n_rows = 0
    for file in files:
        if header(file) != names:
            raise InputError(f"{file.name}, line 1: the columns are not those of {files[0].name}")
        for _, record in read(file):
            n_rows += 1
            finder.see({n: cell for n, cell in zip(numbers, record.values(), strict=True) if cell})
        file.check_unchanged()
    found = {column.name: column for column in finder.columns()}
    columns = [found[number]._replace(name=names[int(number)]) for number in numbers]
    schema = {column.name: column.dtype for column in columns}
    return Table(name, schema, n_rows, lambda: _record_frames(files, columns))


def _record_frames(files: tuple[InputFile, ...], columns: list[Column]) -> Iterator[pl.DataFrame]:
    rows: list[dict[str, Any]] = []
    empty_is_null = files[0].format != "jsonl"
    for file in files:
        file.check_unchanged()
        for _, record in read(file):
            rows.append(record)
            if len(rows) == 1_000:
                yield _frame(rows, columns, empty_is_null)
                rows = []
        file.check_unchanged()
    if rows:
        yield _frame(rows, columns, empty_is_null)


def _frame(rows: list[dict[str, Any]], columns: list[Column], empty_is_null: bool) -> pl.DataFrame:
    def values(name: str) -> list[Any]:
        found = [row.get(name) for row in rows]
        return [value or None for value in found] if empty_is_null else found

    return pl.DataFrame([column.series(values(column.name)) for column in columns])


_OPENERS: dict[Format, Callable[[str, tuple[InputFile, ...]], Table]] = {
    "parquet": _open_parquet,
    "jsonl": _open_json,
    "csv": _open_csv,
    "tsv": _open_csv,
}


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]
