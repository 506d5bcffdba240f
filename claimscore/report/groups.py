"""The scores by the records' columns of few different texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.metrics.bootstrap import MIN_VALUES
from claimscore.report.data import TEXT_COLUMNS, ReportTables, finite

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


def group_tables(tables: ReportTables, names: list[str]) -> list[GroupTable]:
    """The scores by the records' columns of few different texts, `system` first."""
    if tables.records is None:
        return []
    records = tables.records.lazy()
    return [_group_table(tables, records, column, names) for column in _group_columns(records)]


def _group_columns(records: pl.LazyFrame) -> list[str]:
    kinds = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
    named = [
        name
        for name, dtype in records.collect_schema().items()
        if name not in TEXT_COLUMNS and isinstance(dtype, kinds)
    ]
    named = [name for name, n in _distinct(records.head(_FIRST_RECORDS), named) if n <= MAX_LEVELS]
    few = [name for name, n in _distinct(records, named) if 2 <= n <= MAX_LEVELS]
    return sorted(few, key=lambda name: name != "system")[:MAX_GROUP_COLUMNS]


def _distinct(records: pl.LazyFrame, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """How many different values each column has, nulls left out."""
    if not names:
        return iter(())
    counts = records.select(pl.col(names).drop_nulls().n_unique()).collect(engine="streaming")
    return zip(names, counts.row(0), strict=True)


def _group_table(
    tables: ReportTables, records: pl.LazyFrame, column: str, names: list[str]
) -> GroupTable:
    level = pl.col(column).cast(pl.String).alias("level")
    sizes = (
        records.select(level)
        .drop_nulls()
        .group_by("level")
        .len("n")
        .sort("level")
        .collect(engine="streaming")
    )
    metrics = {
        name: tuple(map(GroupRow._make, _by_level(values).iter_rows()))
        for name, values in _values(tables, records, level, names)
    }
    return GroupTable(column, dict(sizes.iter_rows()), metrics)


def _values(
    tables: ReportTables, records: pl.LazyFrame, level: pl.Expr, names: list[str]
) -> Iterator[tuple[str, pl.LazyFrame]]:
    """Each metric's values with the level of their record.

    Where the scores of a metric are in the order of the records, as a run writes them, both are
    laid beside each other: to find a million ids among a million takes hundreds of megabytes.
    """
    scores = finite(tables.scores.lazy())
    in_order = None
    if tables.scores_in_order:
        in_order = records.select(level.cast(pl.Categorical())).collect(engine="streaming")
    for name in names:
        mine = scores.filter(pl.col("metric") == name)
        if in_order is not None:
            values = mine.select("value").collect(engine="streaming")
            if values.height == in_order.height:
                yield name, pl.concat([in_order, values], how="horizontal").lazy()
                continue
        levels = records.select(pl.col("id").cast(pl.String), level)
        yield name, mine.select("id", "value").join(levels, on="id").drop("id")


def _by_level(values: pl.LazyFrame) -> pl.DataFrame:
    """The figures of `GroupRow`, by level."""
    value = pl.col("value")
    return (
        values.drop_nulls()
        .group_by(level=pl.col("level").cast(pl.String))
        .agg(
            n=pl.len(),
            mean=value.mean(),
            half_width=1.96 * value.std(ddof=0) / pl.len().sqrt(),
            low=value.min(),
            q1=value.quantile(0.25, "linear"),
            median=value.median(),
            q3=value.quantile(0.75, "linear"),
            high=value.max(),
        )
        .with_columns(half_width=pl.when(pl.col("n") >= MIN_VALUES).then(pl.col("half_width")))
        # Sums over groups are added up in any order: their last digits are no one's.
        .with_columns(pl.col("mean", "half_width").round_sig_figs(9))
        .sort("level")
        .collect()
    )
