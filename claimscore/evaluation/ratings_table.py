"""The tables that are evaluated: a file of scores and ratings, or a run directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import path_or_address
from claimscore.errors import ConfigError, InputError
from claimscore.records.columns import ColumnError, TypeFinder, parse_record
from claimscore.records.files import find_files
from claimscore.records.readers import Record, place, read
from claimscore.runs import RunDirectory, damage_as_error

#: Numbers beyond this cannot be squared and summed.
LARGEST = 1e100

RATINGS = "ratings"
ID = "id"


def finite_number(text: str) -> float | None:
    """A number that a person wrote; None for anything else, NaN, and what is beyond `LARGEST`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) <= LARGEST else None


class RatedTable(NamedTuple):
    """The wanted columns of a table, and the names of all that it has."""

    name: str
    frame: pl.DataFrame
    columns: tuple[str, ...]

    def has(self, column: str) -> bool:
        return self._expression(column) is not None

    def texts(self, column: str) -> pl.Series:
        """A column as texts; `InputError` where there is none, or a value is missing.

        A list of texts is one, joined by empty lines.
        """
        values = self._column(column)
        if values.null_count():
            raise InputError(f"{self.name}: column {column} has {values.null_count()} empty values")
        if values.dtype == pl.List(pl.String):
            return values.list.join("\n\n")
        return values.cast(pl.String)

    def numbers(self, column: str) -> pl.Series:
        """A column as floats, null where a value is missing.

        A name is a column (or a metric of a run), else a field of `ratings`; `ratings.NAME` is
        always the field, and `METRIC.COMPONENT` a component of a run's metric. `InputError`
        where there is none of that name, or it holds something else than finite numbers up to
        `LARGEST`.
        """
        values = self._column(column)
        if not (values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null)):
            raise InputError(f"{self.name}: column {column} holds {values.dtype}, not numbers")
        numbers = values.cast(pl.Float64)
        if not numbers.drop_nulls().is_finite().all():
            raise InputError(
                f"{self.name}: column {column} holds NaN or infinity; leave the value empty "
                "where it is missing"
            )
        if (numbers.abs() > LARGEST).any():
            raise InputError(f"{self.name}: column {column} holds a number beyond {LARGEST:g}")
        return numbers

    def labels(self, column: str) -> pl.Series:
        """A column of labels, 0 or 1 in every row; `InputError` for anything else."""
        labels = self.numbers(column)
        if not labels.is_in([0.0, 1.0]).all() or labels.null_count():
            raise InputError(f"{self.name}: column {column} must hold 0 or 1 in every row")
        return labels.cast(pl.Int8)

    def _column(self, column: str) -> pl.Series:
        expression = self._expression(column)
        if expression is None:
            known = ", ".join(self.columns)
            raise InputError(f"{self.name}: no column {column}; there are: {known}")
        return self.frame.select(expression.alias(column)).to_series()

    def _expression(self, column: str) -> pl.Expr | None:
        if column in self.frame.columns:
            return pl.col(column)
        field = column.removeprefix(f"{RATINGS}.")
        ratings = self.frame.schema.get(RATINGS)
        if isinstance(ratings, pl.Struct) and field in [f.name for f in ratings.fields]:
            return pl.col(RATINGS).struct.field(field)
        return None


def read_table(source: str, wanted: Iterable[str]) -> RatedTable:
    """The columns of `wanted` that the table has, and `ratings`, in the table's order.

    `source` is a JSONL, CSV, TSV or Parquet file, a pattern, or a run directory, whose metrics
    are columns beside those of its records.
    """
    path = path_or_address(source)
    names = tuple(dict.fromkeys([*wanted, RATINGS]))
    if path.is_dir() if isinstance(path, Path) else RunDirectory.is_at(path):
        return _read_run(path, names)
    return _read_files(source, names)


def _read_files(source: str, wanted: Sequence[str]) -> RatedTable:
    files = find_files(source)
    cells = files[0].format in ("csv", "tsv")
    types = TypeFinder(cells=cells)
    seen: dict[str, None] = {}
    rows: list[Record] = []
    for file in files:
        for line, record in read(file):
            seen.update(dict.fromkeys(record))
            given = {name: record[name] for name in wanted if name in record}
            for name in types.new_names(given):
                types.add_name(name)
            try:
                rows.append(parse_record(given, cells=cells))
            except ColumnError as exc:
                raise InputError(f"{place(file, line)}: {exc.column} {exc}") from None
            types.see(rows[-1])
    if not rows:
        raise InputError(f"{source}: the table is empty; there are no rows in it")
    columns = [column for column in types.columns() if column.name in types.names]
    series = [column.series([row.get(column.name) for row in rows]) for column in columns]
    return RatedTable(source, pl.DataFrame(series), tuple(seen))


def _read_run(path: Path | str, wanted: Sequence[str]) -> RatedTable:
    directory = RunDirectory.reader(path)
    if not (directory.path / "scores.parquet").exists():
        raise ConfigError(f"{path}: the run has no scores yet; run it to the end first")
    with damage_as_error(path):
        scores = pl.scan_parquet(directory.path / "scores.parquet", glob=False)
        metrics = scores.select(pl.col("metric").unique(maintain_order=True)).collect()
        known = metrics.to_series().to_list()
        records = directory.scan("records")
        columns = records.collect_schema().names()
        others = [name for name in wanted if name in columns and name not in (*known, "id")]
        frame = records.select("id", *others).collect()
        for name in wanted:
            values = _metric_values(scores, name, known)
            if values is not None:
                frame = frame.join(values.collect(), on="id", how="left", maintain_order="left")
    return RatedTable(str(path), frame, (*known, *columns))


def _metric_values(scores: pl.LazyFrame, name: str, known: Sequence[str]) -> pl.LazyFrame | None:
    """Id and value of a metric, or of one of its components, under the asked-for name."""
    if name in known:
        return scores.filter(pl.col("metric") == name).select("id", pl.col("value").alias(name))
    metric, dot, component = name.rpartition(".")
    if not dot or metric not in known:
        return None
    part = pl.col("components").str.json_path_match(f"$['{component}']").cast(pl.Float64)
    return scores.filter(pl.col("metric") == metric).select("id", part.alias(name))


class Grid(NamedTuple):
    """Columns as arrays [case, system], NaN where a value is missing."""

    cases: tuple[str, ...]
    systems: tuple[str, ...]
    arrays: dict[str, NDArray[np.float64]]

    def without_incomplete_cases(self) -> Grid:
        """The cases in which every column has a value for every system."""
        whole = ~np.any([np.isnan(a).any(axis=1) for a in self.arrays.values()], axis=0)
        cases = tuple(case for case, kept in zip(self.cases, whole, strict=True) if kept)
        return Grid(cases, self.systems, {name: a[whole] for name, a in self.arrays.items()})

    def first_missing(self) -> tuple[str, str, str] | None:
        """Column, case and system of a missing value."""
        for name, array in self.arrays.items():
            missing = np.argwhere(np.isnan(array))
            if missing.size:
                case, system = missing[0]
                return name, self.cases[case], self.systems[system]
        return None


def grid(table: RatedTable, columns: Sequence[str], case: str | None, system: str | None) -> Grid:
    """Rows of a table as a grid; without `case` every row is a case of one system, by its number.

    `InputError` where a case has two rows of one system.
    """
    values = {name: table.numbers(name).to_numpy() for name in columns}
    height = table.frame.height
    if case is None:
        cases = tuple(f"row {row + 1}" for row in range(height))
        return Grid(cases, ("",), {name: v.reshape(-1, 1) for name, v in values.items()})
    of_case, cases = _codes(table.texts(case))
    of_system, systems = _codes(table.texts(system or "system"))
    cells = of_case * len(systems) + of_system
    unique, counts = np.unique(cells, return_counts=True)
    if (counts > 1).any():
        twice = int(unique[counts > 1][0])
        place = f"case {cases[twice // len(systems)]} and system {systems[twice % len(systems)]}"
        raise InputError(f"{table.name}: more than one row has {place}")
    arrays = {}
    for name, column in values.items():
        array = np.full(len(cases) * len(systems), np.nan)
        array[cells] = column
        arrays[name] = array.reshape(len(cases), len(systems))
    return Grid(cases, systems, arrays)


def _codes(column: pl.Series) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Each value as the number of its first appearance, and the values in that order."""
    names = column.unique(maintain_order=True)
    codes = column.replace_strict(names, range(names.len()), return_dtype=pl.Int64)
    return codes.to_numpy(), tuple(names)
