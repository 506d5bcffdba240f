"""The numbers of the overview: of every record of the run, however many there are."""

from __future__ import annotations

import math
from typing import NamedTuple

import polars as pl

from claimscore.metrics.bootstrap import MIN_VALUES
from claimscore.report.data import (
    TEXT_COLUMNS,
    MetricFacts,
    ReportTables,
    finite,
)
from claimscore.report.texts import MAX_NOTE_CHARS, cut

#: A value this close to the end of a metric's range lies on it: single precision ends there.
ROUNDING = 1e-3

#: A column of texts is grouped by where it has from two to so many different ones.
MAX_LEVELS = 30
MAX_GROUP_COLUMNS = 6


class Histogram(NamedTuple):
    """Counts of equally wide bins from `low` to `high`; the last bin is closed."""

    low: float
    high: float
    counts: tuple[int, ...]


class MetricOverview(NamedTuple):
    """One row of the overview; `nulls` are (reason, records), most frequent first, where a
    reason is what stands before the colon: what comes after is of one record.
    """

    facts: MetricFacts
    n: int
    mean: float | None
    nulls: tuple[tuple[str, int], ...]
    signatures: tuple[str, ...]
    histogram: Histogram | None


class FailureGroup(NamedTuple):
    """How often a stage failed in one way, with the first message."""

    stage: str
    kind: str
    n: int
    n_records: int
    message: str


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


def overview(tables: ReportTables) -> list[MetricOverview]:
    """Every metric that the run asked for or that has scores, in that order."""
    scores = finite(tables.scores.lazy())
    present: list[str] = (
        scores.select(pl.col("metric").unique(maintain_order=True)).collect()["metric"].to_list()
    )
    known = {facts.name: facts for facts in tables.metrics}
    names = [*known, *(name for name in present if name not in known)]
    return [_metric(scores, known.get(name, MetricFacts(name))) for name in names]


def _metric(scores: pl.LazyFrame, facts: MetricFacts) -> MetricOverview:
    mine = scores.filter(pl.col("metric") == facts.name)
    value = pl.col("value")
    n, mean, low, high = (
        mine.select(n=value.count(), mean=value.mean(), low=value.min(), high=value.max())
        .collect()
        .row(0)
    )
    nulls = (
        mine.filter(value.is_null())
        .group_by(reason=pl.col("reason").fill_null("no reason given").str.split(":").list.first())
        .len("n")
        .sort(["n", "reason"], descending=[True, False])
        .collect()
        .rows()
    )
    signatures = (
        mine.select(pl.col("signature").drop_nulls().unique().sort()).collect()["signature"]
    ).to_list()
    histogram = _histogram(mine, facts, low, high) if n else None
    return MetricOverview(facts, n, mean, tuple(nulls), tuple(signatures), histogram)


def _histogram(mine: pl.LazyFrame, facts: MetricFacts, low: float, high: float) -> Histogram:
    """Twenty bins over the metric's range; over the data's where that is wider or unbounded."""
    bounds = facts.range or (-math.inf, math.inf)
    low = bounds[0] if abs(low - bounds[0]) < ROUNDING else low
    high = bounds[1] if abs(high - bounds[1]) < ROUNDING else high
    low = min(low, bounds[0]) if math.isfinite(bounds[0]) else low
    high = max(high, bounds[1]) if math.isfinite(bounds[1]) else high
    if (low, high) != bounds:
        step = _nice_step((high - low) or abs(high) or 1.0)
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        high = high if high > low else low + step
    bins = 20
    position = ((pl.col("value") - low) / (high - low) * bins).floor().clip(0, bins - 1)
    found = (
        mine.filter(pl.col("value").is_not_null())
        .group_by(bin=position.cast(pl.Int32))
        .len("n")
        .collect()
    )
    counts = dict(found.rows())
    return Histogram(low, high, tuple(counts.get(index, 0) for index in range(bins)))


def _nice_step(span: float) -> float:
    """A tenth of the span or more, rounded up to 1, 2 or 5 times a power of ten."""
    raw = span / 10
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def failure_groups(tables: ReportTables) -> list[FailureGroup]:
    """Failures by stage and kind, most frequent first."""
    return [
        FailureGroup(stage, kind, n, n_records, cut(message, MAX_NOTE_CHARS))
        for stage, kind, n, n_records, message in tables.failures.lazy()
        .group_by(
            stage=pl.col("stage").fill_null("unknown"),
            kind=pl.col("kind").fill_null("unknown"),
            maintain_order=True,
        )
        .agg(
            n=pl.len(),
            n_records=pl.col("id").n_unique(),
            message=pl.col("message").first().fill_null(""),
        )
        .sort(["n", "stage", "kind"], descending=[True, False, False])
        .collect()
        .rows()
    ]


def group_tables(tables: ReportTables, names: list[str]) -> list[GroupTable]:
    """The scores by the records' columns of few different texts, `system` first."""
    if tables.records is None:
        return []
    records = tables.records.lazy()
    return [_group_table(tables, records, column, names) for column in _group_columns(records)]


def _group_columns(records: pl.LazyFrame) -> list[str]:
    schema = records.collect_schema()
    kinds = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
    named = [
        name
        for name, dtype in schema.items()
        if name not in TEXT_COLUMNS and isinstance(dtype, kinds)
    ]
    if not named:
        return []
    counts = records.select(pl.col(named).drop_nulls().n_unique()).collect().row(0)
    few = [name for name, n in zip(named, counts, strict=True) if 2 <= n <= MAX_LEVELS]
    return sorted(few, key=lambda name: name != "system")[:MAX_GROUP_COLUMNS]


def _group_table(
    tables: ReportTables, records: pl.LazyFrame, column: str, names: list[str]
) -> GroupTable:
    levels = records.select(pl.col("id").cast(pl.String), level=pl.col(column).cast(pl.String))
    sizes = levels.drop_nulls("level").group_by("level").len("n").sort("level").collect()
    value = pl.col("value")
    found = (
        finite(tables.scores.lazy())
        .filter(value.is_not_null())
        .join(levels.drop_nulls("level"), on="id")
        .group_by("metric", "level")
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
    metrics = {
        name: tuple(map(GroupRow._make, found.filter(metric=name).drop("metric").iter_rows()))
        for name in names
    }
    return GroupTable(column, dict(sizes.iter_rows()), metrics)
