"""The numbers of the overview: of every record of the run, however many there are."""

from __future__ import annotations

import math
from typing import NamedTuple

import polars as pl

from claimscore.report.data import (
    MetricFacts,
    ReportTables,
    finite,
)
from claimscore.report.texts import MAX_NOTE_CHARS, cut

#: A value this close to the end of a metric's range lies on it: single precision ends there.
ROUNDING = 1e-3


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
