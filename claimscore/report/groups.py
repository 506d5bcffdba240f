"""The scores by the records' columns of few different texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.report.data import BLOCK_ROWS, TEXT_COLUMNS, ReportTables, finite, score_blocks
from claimscore.stats.bootstrap import MIN_VALUES

Codes: TypeAlias = NDArray[np.uint8]
Values: TypeAlias = NDArray[np.float64]

#: The code of a record without a text in a column.
NONE = 255

#: A column of texts is grouped by where it has from two to so many different ones.
MAX_LEVELS = 30
MAX_GROUP_COLUMNS = 6

#: A column that has more in its first records is not looked at further: counting a million
#: different texts means holding them.
_FIRST_RECORDS = 10_000


class GroupRow(NamedTuple):
    """The scores of one metric in one group.

    `half_width` is that of the 95% interval, 1.96 · sd / √n with the sd of the values as they are
    (what the bootstrap of the whole comes to with many samples); None for fewer than `MIN_VALUES`.
    """

    level: str
    n: int
    mean: float
    half_width: float | None
    low: float
    q1: float
    median: float
    q3: float
    high: float


class GroupTable(NamedTuple):
    """One column of the records: how many records each level has, and its scores by metric."""

    column: str
    sizes: dict[str, int]
    metrics: dict[str, tuple[GroupRow, ...]]


class _Levels(NamedTuple):
    """A column with few different texts: these, and the place of each record's among them.

    ``[n]`` as `records`; `NONE` where a record has none.
    """

    column: str
    names: tuple[str, ...]
    codes: Codes


def group_tables(tables: ReportTables, names: list[str]) -> list[GroupTable]:
    """The scores by the records' columns of few different texts, `system` first."""
    if tables.records is None:
        return []
    records = tables.records.lazy()
    found = _levels(records)
    metrics: list[dict[str, tuple[GroupRow, ...]]] = [{} for _ in found]
    for name in names if found else ():
        values = _in_order(tables, name, len(found[0].codes))
        for of_column, levels in zip(metrics, found, strict=True):
            if values is None:
                values_, codes = _joined(tables, records, levels, name)
                of_column[name] = tuple(_rows(levels.names, codes, values_))
            else:
                of_column[name] = tuple(_rows(levels.names, levels.codes, values))
    return [
        GroupTable(levels.column, _sizes(levels), of_column)
        for levels, of_column in zip(found, metrics, strict=True)
    ]


def _sizes(levels: _Levels) -> dict[str, int]:
    counts = np.bincount(levels.codes, minlength=NONE + 1).tolist()
    return {name: counts[code] for code, name in sorted(enumerate(levels.names), key=_by_name)}


def _by_name(item: tuple[int, str]) -> str:
    return item[1]


def _levels(records: pl.LazyFrame) -> list[_Levels]:
    """The columns to group by, `system` first. The records are read once, a batch at a time."""
    kinds = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
    named = [
        name
        for name, dtype in records.collect_schema().items()
        if name not in TEXT_COLUMNS and isinstance(dtype, kinds)
    ]
    named = [name for name, n in _distinct(records.head(_FIRST_RECORDS), named) if n <= MAX_LEVELS]
    if not named:
        return []
    levels: dict[str, dict[str, int]] = {name: {} for name in named}
    codes: dict[str, list[Codes]] = {name: [] for name in named}
    texts = records.select(pl.col(named).cast(pl.String))
    for batch in texts.collect_batches(chunk_size=BLOCK_ROWS, maintain_order=True):
        for name in list(levels):
            for text in batch[name].drop_nulls().unique(maintain_order=True).to_list():
                levels[name].setdefault(text, len(levels[name]))
            if len(levels[name]) > MAX_LEVELS:
                del levels[name], codes[name]
            else:
                codes[name].append(_encoded(batch[name], levels[name]))
    few = sorted((name for name in levels if len(levels[name]) >= 2), key=_system_first)
    return [
        _Levels(name, tuple(levels[name]), np.concatenate(codes[name]))
        for name in few[:MAX_GROUP_COLUMNS]
    ]


def _system_first(name: str) -> bool:
    return name != "system"


def _encoded(texts: pl.Series, levels: Mapping[str, int]) -> Codes:
    old, new = list(levels), list(levels.values())
    return texts.replace_strict(old, new, default=NONE, return_dtype=pl.UInt8).to_numpy()


def _distinct(records: pl.LazyFrame, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """How many different values each column has, nulls left out."""
    if not names:
        return iter(())
    counts = records.select(pl.col(names).drop_nulls().n_unique()).collect(engine="streaming")
    return zip(names, counts.row(0), strict=True)


def _in_order(tables: ReportTables, name: str, n: int) -> Values | None:
    """A metric's values, ``[n]``, NaN for null; None where it has not one a record, in order.

    As a run writes them they are laid beside the records: to find a million ids among a million
    takes hundreds of megabytes.
    """
    if not tables.scores_in_order:
        return None
    values, end = np.full(n, np.nan), 0
    for rows in score_blocks(tables, "metric", "value"):
        mine = rows.filter(pl.col("metric") == name)["value"].to_numpy()
        if end + len(mine) > n:
            return None
        values[end : end + len(mine)] = mine
        end += len(mine)
    return values if end == n else None


def _joined(
    tables: ReportTables, records: pl.LazyFrame, levels: _Levels, name: str
) -> tuple[Values, Codes]:
    """A metric's values and the codes of their records, found by id."""
    mine = finite(tables.scores.lazy()).filter(pl.col("metric") == name).select("id", "value")
    of_records = records.select(
        pl.col("id").cast(pl.String), level=pl.col(levels.column).cast(pl.String)
    )
    found = mine.join(of_records, on="id").collect(engine="streaming")
    known = {text: code for code, text in enumerate(levels.names)}
    return found["value"].cast(pl.Float64).to_numpy(), _encoded(found["level"], known)


def _rows(names: Sequence[str], codes: Codes, values: Values) -> Iterator[GroupRow]:
    """The figures of each level that has values, by its name."""
    has_value = ~np.isnan(values)
    for code, name in sorted(enumerate(names), key=_by_name):
        mine = values[(codes == code) & has_value]
        if not mine.size:
            continue
        low, q1, median, q3, high = np.quantile(mine, (0, 0.25, 0.5, 0.75, 1)).tolist()
        half_width = 1.96 * float(mine.std()) / math.sqrt(mine.size)
        yield GroupRow(
            name,
            mine.size,
            _rounded(float(mine.mean())),
            _rounded(half_width) if mine.size >= MIN_VALUES else None,
            low,
            q1,
            median,
            q3,
            high,
        )


def _rounded(value: float) -> float:
    """The last digits depend on the order in which a library adds up: they are no one's."""
    return float(f"{value:.9g}")
