"""Records in memory: frames and lists of the caller's, as an input like a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.errors import InputError
from claimscore.records.files import InputFile

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
            record[str(column)] = _plain_value(value)
        except TypeError as exc:
            raise InputError(f"{name}, row {number}: {column} holds {exc}") from None
    return record


def _plain_value(value: Any) -> Any:
    """A value that JSON knows; `TypeError` names the type of another one."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, float):
        return None if value != value else float(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, str | int):  # of a class of its own, such as numpy's or an enumeration's
        return str.__str__(value) if isinstance(value, str) else int(value)
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
