"""What is evaluated: a run directory, or its scores as a Parquet file; or a table of scores and
ratings, a file or a run directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
SYSTEM = "system"

#: Groups of more values than this are no groups.
MAX_GROUPS = 100

_NEEDED = {"id": pl.String, "metric": pl.String, "value": pl.Float64}
_OPTIONAL = ("reason", "signature", "components")
_VALUES = {"id": pl.String(), "value": pl.Float64(), "reason": pl.String()}


def finite_number(text: str) -> float | None:
    """A number that a person wrote; None for anything else, NaN, and what is beyond `LARGEST`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) <= LARGEST else None


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """One side of a comparison; `directory` is None for a file of scores.

    `metrics` are those that have scores, with all their signatures; `n_records` counts the
    records, `notices` say what is unfinished.
    """

    label: str
    path: Path | str
    scores: pl.LazyFrame | None
    directory: RunDirectory | None
    settings: Mapping[str, Any]
    metrics: Mapping[str, tuple[str, ...]]
    ids: pl.Series
    notices: tuple[str, ...] = ()

    @property
    def n_records(self) -> int:
        return self.ids.len()

    def values(self, metric: str) -> pl.DataFrame:
        """Id, value and reason of every row of a metric, sorted by id; none where it has none.

        `InputError` where a record has two rows, or a value is no finite number.
        """
        if self.scores is None or metric not in self.metrics:
            return pl.DataFrame(schema=_VALUES)
        with damage_as_error(self.path):
            rows = (
                self.scores.filter(pl.col("metric") == metric).select(*_VALUES).sort("id").collect()
            )
        twice = rows.filter(pl.col("id") == pl.col("id").shift())  # sorted: equals are neighbours
        if twice.height:
            raise InputError(f"{self.path}: record {twice['id'][0]} has two rows of {metric}")
        if not rows["value"].drop_nulls().is_finite().all():
            raise InputError(f"{self.path}: metric {metric} holds NaN or infinity")
        if (rows["value"].abs() > LARGEST).any():
            raise InputError(f"{self.path}: metric {metric} holds a score beyond {LARGEST:g}")
        return rows

    def table(self, name: str) -> pl.LazyFrame | None:
        """A table of the run; None where there is none, or no row of it."""
        if self.directory is None or not self.directory.manifest.counts().get(name):
            return None
        return self.directory.scan(name)

    def record_columns(self) -> list[str]:
        """The columns of the records, without the id."""
        records = self.table("records")
        if records is None:
            return []
        return [name for name in records.collect_schema().names() if name != "id"]


def open_run(label: str, path: Path | str) -> ComparedRun:
    """Read what a path names; `ConfigError` where it is no run directory and no file of scores."""
    if _is_run(path):
        return _read_run(label, path)
    if isinstance(path, Path) and not path.exists():
        raise ConfigError(f"{path}: there is no such run directory or file of scores")
    scores = _scan_scores(path)
    with damage_as_error(path):
        ids = scores.select(pl.col("id").unique().sort()).collect().to_series()
        metrics = _metrics(scores)
    if ids.null_count() or None in metrics:
        raise InputError(f"{path}: a row has no id or no metric")
    return ComparedRun(label, path, scores, None, {}, metrics, ids)


def _is_run(path: Path | str) -> bool:
    """Whether this is a folder, not a file; of an address, whether it is not called as one."""
    return path.is_dir() if isinstance(path, Path) else not path.endswith(".parquet")


def _read_run(label: str, path: Path | str) -> ComparedRun:
    directory = RunDirectory.reader(path)
    with damage_as_error(path):
        settings = directory.settings
        ids, scores = pl.Series("id", [], dtype=pl.String), None
        if directory.manifest.counts().get("records"):
            ids = directory.scan("records").select(pl.col("id").sort()).collect().to_series()
        if directory.scores() is not None:
            scores = _scan_scores(directory.path / "scores.parquet")
        metrics = _metrics(scores) if scores is not None else {}
        notices = tuple(_notices(directory, settings, scores, ids.len()))
    return ComparedRun(label, path, scores, directory, settings, metrics, ids, notices)


def _scan_scores(path: Path | str) -> pl.LazyFrame:
    """The columns of scores, all but the value as texts; `InputError` where they are none."""
    try:
        rows = pl.scan_parquet(path, glob=False)
        columns = rows.collect_schema()
    except (OSError, pl.exceptions.PolarsError):
        raise InputError(
            f"{path}: not a Parquet file; name a run directory, or the scores.parquet of one"
        ) from None
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise InputError(
            f"{path}: no column {missing[0]}; a file of scores has id, metric and value"
        )
    if not (columns["value"].is_numeric() or columns["value"] == pl.Null):
        raise InputError(f"{path}: column value holds {columns['value']}, not numbers")
    optional = [
        pl.col(name).cast(pl.String) if name in columns else pl.lit(None, pl.String).alias(name)
        for name in _OPTIONAL
    ]
    return rows.select(*(pl.col(name).cast(dtype) for name, dtype in _NEEDED.items()), *optional)


def _metrics(scores: pl.LazyFrame) -> dict[str, tuple[str, ...]]:
    """The metrics in the order of their first rows, each with its signatures."""
    rows = (
        scores.select("metric", "signature")
        .with_row_index("row")
        .group_by("metric", "signature")
        .agg(pl.col("row").min())
        .sort("row")
        .collect(engine="streaming")
    )
    signatures_of: dict[str, list[str]] = {}
    for metric, signature, _ in rows.iter_rows():
        signatures_of.setdefault(metric, []).extend([] if signature is None else [signature])
    return {metric: tuple(sorted(signatures)) for metric, signatures in signatures_of.items()}


def _notices(
    directory: RunDirectory,
    settings: Mapping[str, Any],
    scores: pl.LazyFrame | None,
    n_records: int,
) -> Iterator[str]:
    """The parts of a run that are not there yet."""
    if directory.is_locked:
        yield "a process is at work in it; what was finished before is compared"
    total = settings.get("records", {}).get("count")
    if total is not None and n_records < total:
        yield f"unfinished: {n_records:,} of its {total:,} records are read"
    if scores is None:
        yield "unfinished: it has no scores yet; run it to the end first"
        return
    scored = scores.select(pl.col("id").n_unique()).collect().item()
    if scored < n_records:
        yield f"unfinished: {scored:,} of its {n_records:,} records have scores"


def groups(column: str, sources: Sequence[ComparedRun], ids: pl.Series) -> pl.DataFrame:
    """Id and group of each of the ids: the column's value in the first source that has it.

    A missing value is null. `ConfigError` where no source has the column, and where its values
    are lists or too many.
    """
    source = next((source for source in sources if column in source.record_columns()), None)
    if source is None:
        known = {name: None for source in sources for name in source.record_columns()}
        there = f"; there are: {', '.join(known)}" if known else ": only run directories have them"
        raise ConfigError(f"--by {column}: the records have no such column{there}")
    records = source.table("records")
    assert records is not None
    with damage_as_error(source.path):
        if records.collect_schema()[column].is_nested():
            raise ConfigError(f"--by {column}: holds lists or fields, not one value a record")
        value = pl.col(column).cast(pl.String).alias("group")
        rows = records.select("id", value).filter(pl.col("id").is_in(ids.implode())).collect()
    if rows["group"].n_unique() > MAX_GROUPS:
        raise ConfigError(
            f"--by {column}: it has {rows['group'].n_unique():,} values; groups are at most "
            f"{MAX_GROUPS}"
        )
    return rows


# A table of scores and ratings


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
        return _run_table(path, names)
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


def _run_table(path: Path | str, wanted: Sequence[str]) -> RatedTable:
    run = open_run("A", path)
    records = run.table("records")
    if run.scores is None or records is None:
        raise ConfigError(f"{path}: the run has no scores yet; run it to the end first")
    columns = run.record_columns()
    with damage_as_error(path):
        others = [name for name in wanted if name in columns and name not in run.metrics]
        frame = records.select(ID, *others).collect()
        for name in wanted:
            values = _metric_values(run.scores, name, run.metrics)
            if values is not None:
                frame = frame.join(values.collect(), on=ID, how="left", maintain_order="left")
    return RatedTable(str(path), frame, (*run.metrics, ID, *columns))


def _metric_values(scores: pl.LazyFrame, name: str, known: Container[str]) -> pl.LazyFrame | None:
    """Id and value of a metric, or of one of its components, under the asked-for name."""
    if name in known:
        return scores.filter(pl.col("metric") == name).select(ID, pl.col("value").alias(name))
    metric, dot, component = name.rpartition(".")
    if not dot or metric not in known:
        return None
    part = pl.col("components").str.json_path_match(f"$['{component}']").cast(pl.Float64)
    return scores.filter(pl.col("metric") == metric).select(ID, part.alias(name))


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


def grid(table: RatedTable, columns: Sequence[str], case: str | None) -> Grid:
    """Rows of a table as a grid; without `case` every row is a case of one system, by its number.

    `InputError` where a case has two rows of one system.
    """
    values = {name: table.numbers(name).to_numpy() for name in columns}
    height = table.frame.height
    if case is None:
        cases = tuple(f"row {row + 1}" for row in range(height))
        return Grid(cases, ("",), {name: v.reshape(-1, 1) for name, v in values.items()})
    of_case, cases = _codes(table.texts(case))
    of_system, systems = _codes(table.texts(SYSTEM))
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
