"""One matrix a record, all those of a chunk at once: flat arrays, and no loop over records.

A table has a row a cell: the record's id and the places of its row and column. Whatever the
order of the table, `arrange` puts the cells in the order of the records and says whose are not
complete; `reduce_runs` takes the minimum, mean or maximum of each row of each matrix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Requirements,
    Score,
    failure_reasons,
    scored,
    unscored,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Values = NDArray[np.float64]

_OPERATORS = {"max": np.maximum, "mean": np.add, "min": np.minimum}


class Shapes(NamedTuple):
    """How many rows and columns the matrix of each record has."""

    n_rows: Ints
    n_columns: Ints

    @property
    def sizes(self) -> Ints:
        return self.n_rows * self.n_columns

    @property
    def row_lengths(self) -> Ints:
        """The length of every row, record by record."""
        return np.repeat(self.n_columns, self.n_rows)

    @property
    def column_lengths(self) -> Ints:
        """The length of every column, record by record."""
        return np.repeat(self.n_rows, self.n_columns)

    def at(self, records: Ints | Bools) -> Shapes:
        return Shapes(self.n_rows[records], self.n_columns[records])


class Cells(NamedTuple):
    """Cells as a table has them: the number of the record, row, column, and values `[n, k]`.

    The number of a record that there is not is −1, and so is a place that is null.
    """

    record: Ints
    row: Ints
    column: Ints
    values: NDArray[Any]

    @classmethod
    def read(cls, ids: pl.Series, rows: pl.DataFrame) -> Cells:
        """From the columns `id`, `row`, `column`; all others are values."""
        row, column = (
            rows[name].cast(pl.Int64).fill_null(-1).to_numpy() for name in ("row", "column")
        )
        values = rows.drop("id", "row", "column").to_numpy(order="c")
        return cls(record_numbers(ids, rows["id"]), row, column, values)

    def shapes(self, n_records: int) -> Shapes:
        """The smallest matrices that have a place for every cell."""
        known = self.record >= 0
        n_rows, n_columns = (np.zeros(n_records, dtype=np.int64) for _ in range(2))
        np.maximum.at(n_rows, self.record[known], self.row[known] + 1)
        np.maximum.at(n_columns, self.record[known], self.column[known] + 1)
        return Shapes(n_rows, n_columns)


@dataclasses.dataclass(frozen=True, eq=False)
class Matrices:
    """The complete matrices of `records` (numbers, ascending), as `shapes` has them.

    `values` are those of all cells, record by record and row by row. Of every record there is,
    `n_found` is how many different cells it has; `complete` says that each is there once,
    and `finite` that no value is other than a number.
    """

    records: Ints
    shapes: Shapes
    values: NDArray[Any]
    n_found: Ints
    complete: Bools
    finite: Bools


def record_numbers(ids: pl.Series, of: pl.Series) -> Ints:
    """The place in `ids` of each id in `of`; −1 where it is not there."""
    runs = of.rle().struct
    numbers = runs.field("value").replace_strict(
        ids, np.arange(len(ids)), default=-1, return_dtype=pl.Int64
    )
    return np.repeat(numbers.to_numpy(), runs.field("len").to_numpy())


def count_rows(ids: pl.Series, of: pl.Series) -> Ints:
    """How often each of `ids` is in `of`."""
    numbers = record_numbers(ids, of)
    return np.bincount(numbers[numbers >= 0], minlength=len(ids))


def arrange(cells: Cells, shapes: Shapes) -> Matrices:
    """The matrices of the records that have cells, each once and each with numbers only."""
    sizes, starts = shapes.sizes, starts_of(shapes.sizes)
    record, row, column, _ = cells
    inside = (record >= 0) & (row >= 0) & (column >= 0)
    inside &= (row < shapes.n_rows[record]) & (column < shapes.n_columns[record])
    record = np.where(inside, record, 0)
    place = (starts[record] + row * shapes.n_columns[record] + column)[inside]

    times = np.bincount(place, minlength=sizes.sum())
    owner = np.repeat(np.arange(len(sizes)), sizes)
    n_found = np.bincount(owner[times > 0], minlength=len(sizes))
    complete = n_found == sizes
    complete[owner[times > 1]] = False
    complete[cells.record[~inside & (cells.record >= 0)]] = False

    values = np.zeros((len(owner), cells.values.shape[1]), dtype=cells.values.dtype)
    values[place] = cells.values[inside]
    finite = np.ones(len(sizes), dtype=np.bool_)
    finite[owner[~np.isfinite(values).all(axis=1)]] = False

    kept = complete & finite & (sizes > 0)
    return Matrices(
        np.flatnonzero(kept), shapes.at(kept), values[kept[owner]], n_found, complete, finite
    )


def starts_of(lengths: Ints) -> Ints:
    """Where each run begins, of runs of these lengths one after another."""
    starts: Ints = np.cumsum(lengths) - lengths
    return starts


def transposed(values: NDArray[Any], shapes: Shapes) -> NDArray[Any]:
    """The values column by column instead of row by row, record by record."""
    sizes = shapes.sizes
    place = np.arange(len(values)) - np.repeat(starts_of(sizes), sizes)
    column, row = np.divmod(place, np.repeat(shapes.n_rows, sizes))
    ordered: NDArray[Any] = values[
        np.repeat(starts_of(sizes), sizes) + row * np.repeat(shapes.n_columns, sizes) + column
    ]
    return ordered


def reduce_runs(values: NDArray[Any], lengths: Ints, operator: str) -> NDArray[Any]:
    """The `min`, `mean` or `max` of runs of these lengths (none is 0) one after another."""
    if not len(lengths):
        return values[:0]
    found: NDArray[Any] = _OPERATORS[operator].reduceat(values, starts_of(lengths))
    return found / lengths if operator == "mean" else found


def first_largest(values: NDArray[Any], lengths: Ints) -> Ints:
    """The place of the largest value within each run (none is empty); of equal ones the first."""
    runs = np.repeat(np.arange(len(lengths)), lengths)
    largest = np.flatnonzero(values == reduce_runs(values, lengths, "max")[runs])
    first: Ints = largest[np.flatnonzero(np.diff(runs[largest], prepend=-1))]
    return first - starts_of(lengths)


def split_runs(values: NDArray[Any] | pl.Series, lengths: Ints) -> list[list[Any]]:
    """Each run as a list of Python's own values."""
    items, ends = pl.Series(values).to_list(), np.cumsum(lengths).tolist()
    return [items[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]


def score_matrices(
    tables: ChunkTables,
    requires: Requirements,
    matrices: Matrices,
    counts: Sequence[dict[str, object]],
    found: Iterable[tuple[float, dict[str, object]]],
    missing: Callable[[int], str],
) -> list[Score]:
    """One score a record, in order.

    `found` are value and components of each complete matrix, `counts` the components that every
    record has. `missing` says of the number of a record without one why that is so; a failed stage
    goes before.
    """
    by_number = dict(zip(matrices.records.tolist(), found, strict=True))
    failed = failure_reasons(tables, requires)
    scores = []
    for number, (record, own) in enumerate(zip(tables.records["id"], counts, strict=True)):
        reason = failed.get(record) or (None if number in by_number else missing(number))
        if reason:
            scores.append(unscored(record, reason, own))
        else:
            value, components = by_number[number]
            scores.append(scored(record, value, own | components))
    return scores
