"""Readers: a file, or rows in memory, as a stream of (line or row, record). They know formats, not
columns.

Nothing here holds more than one record (JSONL, CSV) or one batch of rows (Parquet); only a JSON
array is read whole.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import polars as pl

from claimscore.atomic import reason
from claimscore.errors import InputError
from claimscore.records.files import Format, InputFile

PARQUET_BATCH_ROWS = 2_000

_BOM = b"\xef\xbb\xbf"

#: Formats whose records start on a line of their own.
_BY_LINE = {"jsonl", "csv", "tsv"}

Record = dict[str, Any]


class Located(NamedTuple):
    """A record and the line it starts on (JSONL, CSV) or its row (Parquet, JSON), from 1."""

    line: int
    record: Record


def place(file: InputFile, line: int) -> str:
    """`pairs.jsonl, line 3`: how every message names a record."""
    return f"{file.name}, {'line' if file.format in _BY_LINE else 'row'} {line}"


def read(file: InputFile) -> Iterator[Located]:
    """The file's records in order."""
    return _READERS[file.format](file)


def header(file: InputFile) -> list[str] | None:
    """Column names where the format states them ahead of the records, else None."""
    if file.format in ("jsonl", "json", "rows"):
        return None
    if file.format == "parquet":
        with file_errors(file):
            return pl.scan_parquet(file.path, glob=False).collect_schema().names()
    with file_errors(file), _open_text(file) as text:
        return _csv_header(file, _csv_rows(file, text))


@contextlib.contextmanager
def file_errors(file: InputFile) -> Iterator[None]:
    """Map what the system, gzip and polars say of a file to an `InputError` that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise InputError(f"{file.name}: broken gzip file: {exc}") from exc
    except OSError as exc:
        raise InputError(f"{file.name}: {reason(exc)}") from exc
    except pl.exceptions.PolarsError as exc:
        first = str(exc).strip().partition("\n")[0]
        raise InputError(f"{file.name}: not a readable Parquet file: {first}") from exc


@contextlib.contextmanager
def _open(file: InputFile) -> Iterator[BinaryIO]:
    with contextlib.ExitStack() as stack:
        raw: BinaryIO = stack.enter_context(file.path.open("rb", buffering=1 << 20))
        if file.compressed:
            raw = stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20))
        yield raw


# JSONL


def _no_repeats(pairs: list[tuple[str, Any]]) -> Record:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {json.dumps(repeated)} occurs twice in one object")
    return value


#: Half of a surrogate pair, which Python's texts may hold and UTF-8 may not; as JSON escapes it.
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_IS_HALF = "half of a surrogate pair, which is no text; write the whole character, or U+FFFD"

_COMPACT = json.JSONEncoder(ensure_ascii=False).encode

_DECODER = json.JSONDecoder(object_pairs_hook=_no_repeats)


def decode_json(text: str) -> Any:
    """A JSON value; `ValueError` says what is broken and at which character."""
    try:
        value = _DECODER.decode(text)
        if _ESCAPED_HALF.search(text) and _HALF.search(_COMPACT(value)):
            raise ValueError(_IS_HALF)
        return value
    except json.JSONDecodeError as exc:
        raise ValueError(f"{exc.msg} at character {exc.pos + 1}") from exc
    except RecursionError:
        raise ValueError("objects are nested too deeply") from None


def _read_jsonl(file: InputFile) -> Iterator[Located]:
    with file_errors(file), _open(file) as stream:
        for line, raw in enumerate(stream, start=1):
            if line == 1:
                raw = raw.removeprefix(_BOM)
            if not raw or raw.isspace():
                continue
            try:
                record = decode_json(raw.decode("utf-8"))
            except UnicodeDecodeError:
                raise _locate_bad_utf8(file) from None
            except ValueError as exc:
                hint = _array_hint(line, raw)
                raise InputError(f"{place(file, line)}: broken JSON: {exc}{hint}") from None
            if type(record) is not dict:
                raise InputError(
                    f"{place(file, line)}: a JSON {_json_kind(record)}, not an object"
                    f"{_array_hint(line, raw)}"
                )
            yield Located(line, record)


def _read_json(file: InputFile) -> Iterator[Located]:
    """The objects of one array, which is read whole."""
    with file_errors(file), _open(file) as stream:
        raw = stream.read()
    try:
        records = decode_json(raw.removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError:
        raise _locate_bad_utf8(file) from None
    except ValueError as exc:
        raise InputError(
            f"{file.name}: broken JSON: {exc}; a file with one object a line is named .jsonl"
        ) from None
    if type(records) is not list:
        kind = "object" if type(records) is dict else _json_kind(records)
        raise InputError(
            f"{file.name}: a JSON {kind}, not an array of records; one object a line is .jsonl"
        )
    for row, record in enumerate(records, start=1):
        if type(record) is not dict:
            raise InputError(f"{place(file, row)}: a JSON {_json_kind(record)}, not an object")
        yield Located(row, record)


def _json_kind(value: object) -> str:
    kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _array_hint(line: int, raw: bytes) -> str:
    if line == 1 and raw.lstrip().startswith(b"["):
        return "; JSONL has one object a line; a file with an array is named .json"
    return ""


# CSV


@contextlib.contextmanager
def _open_text(file: InputFile) -> Iterator[TextIO]:
    with _open(file) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as text:
        yield text


def _csv_rows(file: InputFile, text: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Rows with the physical line each starts on; blank lines are left out."""
    rows = None
    while True:
        line = rows.line_num + 1 if rows else 1
        try:
            rows = rows or _csv_reader(file, text)
            row = next(rows)
        except StopIteration:
            return
        except UnicodeDecodeError:
            raise _locate_bad_utf8(file) from None
        except csv.Error as exc:
            raise InputError(
                f"{place(file, line)}: broken CSV in the record that starts here: {exc}; a field "
                'with quotes or line breaks stands in "...", a quote within it is written ""'
            ) from None
        if row:
            yield line, row


def _locate_bad_utf8(file: InputFile) -> InputError:
    """Reads the bytes again to name line and offset."""
    offset = 0
    with _open(file) as stream:
        for line, raw in enumerate(stream, start=1):
            if line == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
                return InputError(f"{file.name}, line 1: the file is UTF-16; save it as UTF-8")
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError as exc:
                return InputError(
                    f"{file.name}, line {line}: not UTF-8: byte 0x{raw[exc.start]:02x} at offset "
                    f"{offset + exc.start} of the file; save the file as UTF-8"
                )
            offset += len(raw)
    return InputError(f"{file.name}: not UTF-8; save the file as UTF-8")


def _csv_reader(file: InputFile, text: TextIO) -> Any:
    """A reader; semicolons stand between the columns where the header has no comma."""
    csv.field_size_limit(sys.maxsize)  # a long document is no error
    first = next(text, "")
    separator = ";" if ";" in first and "," not in first else ","
    lines = itertools.chain([first], text)
    return csv.reader(lines, delimiter="\t" if file.format == "tsv" else separator, strict=True)


def _csv_header(file: InputFile, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    line, names = next(rows, (1, []))
    names = [name.strip() for name in names]
    if not names:
        raise InputError(f"{file.name}: the file is empty; there are no records in it")
    for position, name in enumerate(names, start=1):
        if not name:
            raise InputError(
                f"{place(file, line)}: column {position} of the header has no name; "
                "the first line must name every column"
            )
        if names.count(name) > 1:
            raise InputError(
                f"{place(file, line)}: the header names column {json.dumps(name)} twice"
            )
    return names


def _read_csv(file: InputFile) -> Iterator[Located]:
    with file_errors(file), _open_text(file) as text:
        rows = _csv_rows(file, text)
        names = _csv_header(file, rows)
        for line, row in rows:
            if len(row) != len(names):
                raise InputError(
                    f"{place(file, line)}: {len(row)} fields where the header names "
                    f"{len(names)} columns; a field with commas or line breaks needs quotes"
                )
            yield Located(line, dict(zip(names, row, strict=True)))


# Parquet


def _read_parquet(file: InputFile) -> Iterator[Located]:
    row = 0
    with file_errors(file):
        scan = pl.scan_parquet(file.path, glob=False)
        plain = scan.select(plain_columns(scan.collect_schema()))
        for frame in plain.collect_batches(chunk_size=PARQUET_BATCH_ROWS, maintain_order=True):
            for record in frame.iter_rows(named=True):
                row += 1
                yield Located(row, record)


# Rows in memory: frames and lists of the caller's, as an input like a file

#: What may be given in place of the name of a file.
ACCEPTED = (
    "a path, a polars or pandas DataFrame, a Dataset of Hugging Face, an Arrow table, or a list of "
    "dicts"
)


@dataclasses.dataclass(frozen=True, slots=True)
class InputRows(InputFile):
    """Rows in memory in the place of an input file."""

    records: Callable[[], Iterable[dict[str, Any]]] = dataclasses.field(kw_only=True, repr=False)

    def check_unchanged(self) -> None:
        """The rows are those that were given."""


def rows_in_memory(data: Any) -> InputRows:
    """The rows of a frame, a data set or a list of dicts.

    Missing values of pandas and numpy (NaN, NaT, NA) are null, dates are ISO 8601 text. The index
    of a pandas frame without a column `id` is that column, if its labels differ.
    `InputError` names what is accepted, or the row and column of a value of no use.
    """
    if isinstance(data, InputRows):
        return data
    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    package = type(data).__module__.partition(".")[0]
    if package == "pandas" and hasattr(data, "columns"):
        rows, labels = data.to_dict("records"), list(map(str, data.index))
        if "id" not in data.columns and len({*labels}) == len(labels):
            rows = [{"id": label, **row} for label, row in zip(labels, rows, strict=True)]
        return _listed("the DataFrame", rows)
    if not isinstance(data, pl.DataFrame) and hasattr(data, "__arrow_c_stream__"):
        data = pl.DataFrame(data)
    if isinstance(data, pl.DataFrame):
        frame = data.select(plain_columns(data.schema))
        return _rows("the DataFrame", frame.height, lambda: frame.iter_rows(named=True))
    if isinstance(data, Mapping) and package == "datasets":
        names = ", ".join(map(repr, data))
        raise InputError(f"the data has several splits; give one of them: data[{names}]")
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise InputError(f"the data is of the type {type(data).__name__}; accepted: {ACCEPTED}")
    return _listed("the data", data)


def _rows(name: str, height: int, records: Callable[[], Iterable[dict[str, Any]]]) -> InputRows:
    return InputRows(Path(), name, "rows", height, "", records=records)


def _listed(name: str, data: Iterable[Any]) -> InputRows:
    rows = [_record(name, number, row) for number, row in enumerate(data, start=1)]
    return _rows(name, len(rows), lambda: map(dict, rows))


def _record(name: str, number: int, row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(
            f"{name}, row {number}: of the type {type(row).__name__}, not a dict; accepted: "
            f"{ACCEPTED}"
        )
    record: dict[str, Any] = {}
    for column, value in row.items():
        try:
            record[_plain_value(str(column))] = _plain_value(value)
        except TypeError as exc:
            shown = column if str(column).isprintable() else ascii(column)
            raise InputError(f"{name}, row {number}: {shown} holds {exc}") from None
    return record


def _plain_value(value: Any) -> Any:
    """A value that JSON knows; `TypeError` names the type of another one."""
    if value is None or type(value) in (int, bool):
        return value
    if isinstance(value, str):  # also of a class of its own, such as numpy's or an enumeration's
        text = str.__str__(value)
        if not text.isascii() and _HALF.search(text):
            raise TypeError(_IS_HALF)
        return text
    if isinstance(value, float):
        return None if value != value else float(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "tolist"):
        return _plain_value(value.tolist())
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"a {type(value).__name__}, which is no text, number, list or dict")


def plain_columns(schema: Mapping[str, pl.DataType]) -> Iterator[pl.Expr]:
    """The columns with values that JSON knows: dates, decimals and categories as text."""
    return (_plain(name, dtype) for name, dtype in schema.items())


def _plain(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column with values that JSON knows: dates, decimals and categories as text."""
    column = pl.col(name)
    if isinstance(dtype, pl.Binary):
        return column.bin.encode("base64")
    if isinstance(dtype, pl.Duration):
        return column.dt.to_string("iso")
    if dtype.is_temporal() or isinstance(dtype, pl.Decimal | pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    return column


def _read_rows(file: InputFile) -> Iterator[Located]:
    assert isinstance(file, InputRows), "the format of rows in memory"
    for row, record in enumerate(file.records(), start=1):
        yield Located(row, record)


_READERS: dict[Format, Callable[[InputFile], Iterator[Located]]] = {
    "jsonl": _read_jsonl,
    "json": _read_json,
    "csv": _read_csv,
    "tsv": _read_csv,
    "parquet": _read_parquet,
    "rows": _read_rows,
}
