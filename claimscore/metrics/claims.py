"""Claims of a record: which of them count, and the matrix of what was judged about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.base import option
from claimscore.text import claim_key

Shape = tuple[int, int]


class Cells(NamedTuple):
    """The cells of one record by row and column: two places ``[n]``, and values ``[n, k]``.

    Its table has a row a cell, in any order. A place that is null is −1.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    values: NDArray[Any]

    @property
    def shape(self) -> Shape:
        """Rows and columns of the smallest matrix that has a place for every cell."""
        return int(self.row.max(initial=-1)) + 1, int(self.column.max(initial=-1)) + 1

    def matrix(self, shape: Shape) -> NDArray[Any] | None:
        """The values ``[row, column, k]``; None unless each cell of that shape is there once and
        has finite values."""
        if len(self.row) != shape[0] * shape[1] or not np.isfinite(self.values).all():
            return None
        rows, columns = np.indices(shape)
        if (self.row != rows.ravel()).any() or (self.column != columns.ravel()).any():
            return None
        return self.values.reshape(*shape, self.values.shape[1])


def cells_by_record(rows: pl.DataFrame) -> dict[str, Cells]:
    """The cells of each record from the columns `id`, `row` and `column`; all others are values."""
    places = pl.col("row", "column").cast(pl.Int64).fill_null(-1)
    ordered = rows.with_columns(places).sort("id", "row", "column")
    runs = ordered["id"].rle().struct.unnest()
    row, column = ordered["row"].to_numpy(), ordered["column"].to_numpy()
    values = ordered.drop("id", "row", "column").to_numpy(order="c")
    cells, start = {}, 0
    for n, record in runs.iter_rows():
        rows_of = slice(start, start + n)
        cells[record] = Cells(row[rows_of], column[rows_of], values[rows_of])
        start += n
    return cells


#: Of a record that is not in the table.
NO_CELLS = Cells(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 1)))


# Claims that a side has more than once

T = TypeVar("T")

EACH, ONCE = "each", "once"


def repeats_option(default: str) -> Any:
    """The field `repeats` of a metric's options, with one of `each` and `once` as its default."""
    help = "Whether a claim or fact that its side has more than once counts each time or once."
    return option(default, help, (EACH, ONCE))


class Counted(NamedTuple):
    """The places of the claims that count, how many claims there are and how many repeat others."""

    places: list[int]
    n: int
    n_repeats: int

    def by_claim(self, values: Sequence[T]) -> list[T | None]:
        """A value for every claim, from those of the claims that count; None for the others."""
        by_place = dict(zip(self.places, values, strict=True))
        return [by_place.get(place) for place in range(self.n)]


def counted(texts: Sequence[str], repeats: str) -> Counted:
    """Which of a side's claims count; the claims of all its texts stand together.

    A claim is a repeat where its `claim_key` is that of an earlier one. With `once` a repeat does
    not count, neither by itself nor as something that others are compared with.
    """
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(claim_key(text), place)
    places = list(first.values()) if repeats == ONCE else list(range(len(texts)))
    return Counted(places, len(texts), len(texts) - len(first))
