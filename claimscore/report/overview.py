"""The numbers of the overview: of every record of the run, however many there are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np
import polars as pl

from claimscore.report.data import MetricFacts, ReportTables, score_blocks
from claimscore.report.texts import MAX_NOTE_CHARS, cut

#: A value this close to the end of a metric's range lies on it: single precision ends there.
ROUNDING = 1e-3

#: Of a histogram.
BINS = 20


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


class _Seen:
    """The sums of a metric so far. Memory does not grow with the scores."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.low, self.high = math.inf, -math.inf
        self.nulls: Counter[str] = Counter()
        self.signatures: set[str] = set()

    def add(self, rows: pl.DataFrame) -> None:
        values = rows["value"].drop_nulls()
        if values.len():
            mean, low, high = cast("tuple[float, ...]", (values.mean(), values.min(), values.max()))
            self.n += values.len()
            self.mean += (mean - self.mean) * values.len() / self.n
            self.low, self.high = min(self.low, low), max(self.high, high)
        reasons = rows.filter(pl.col("value").is_null())["reason"].fill_null("no reason given")
        for reason, n in reasons.str.split(":").list.first().value_counts().iter_rows():
            self.nulls[reason] += n
        self.signatures.update(rows["signature"].drop_nulls().unique().to_list())


def overview(tables: ReportTables) -> list[MetricOverview]:
    """Every metric that the run asked for or that has scores, in that order."""
    seen: dict[str, _Seen] = {facts.name: _Seen() for facts in tables.metrics}
    for rows in score_blocks(tables, "metric", "value", "reason", "signature"):
        for (name,), mine in rows.group_by("metric", maintain_order=True):
            seen.setdefault(str(name), _Seen()).add(mine)
    known = {facts.name: facts for facts in tables.metrics}
    facts = {name: known.get(name, MetricFacts(name)) for name in seen}
    histograms = _histograms(tables, {name: _bounds(facts[name], seen[name]) for name in seen})
    return [_overview(facts[name], found, histograms.get(name)) for name, found in seen.items()]


def _overview(facts: MetricFacts, seen: _Seen, histogram: Histogram | None) -> MetricOverview:
    return MetricOverview(
        facts,
        seen.n,
        seen.mean if seen.n else None,
        tuple(sorted(seen.nulls.items(), key=lambda item: (-item[1], item[0]))),
        tuple(sorted(seen.signatures)),
        histogram,
    )


def _bounds(facts: MetricFacts, seen: _Seen) -> tuple[float, float] | None:
    """A metric's range; the data's where that is wider or unbounded; None without values."""
    if not seen.n:
        return None
    low, high = seen.low, seen.high
    bounds = facts.range or (-math.inf, math.inf)
    low = bounds[0] if abs(low - bounds[0]) < ROUNDING else low
    high = bounds[1] if abs(high - bounds[1]) < ROUNDING else high
    low = min(low, bounds[0]) if math.isfinite(bounds[0]) else low
    high = max(high, bounds[1]) if math.isfinite(bounds[1]) else high
    if (low, high) != bounds:
        step = _nice_step((high - low) or abs(high) or 1.0)
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        high = high if high > low else low + step
    return low, high


def _histograms(
    tables: ReportTables, bounds: Mapping[str, tuple[float, float] | None]
) -> dict[str, Histogram]:
    """Equally wide bins over the bounds of each metric that has values."""
    ends = {name: found for name, found in bounds.items() if found is not None}
    counts = {name: np.zeros(BINS, np.int64) for name in ends}
    for rows in score_blocks(tables, "metric", "value"):
        for (metric,), mine in rows.drop_nulls("value").group_by("metric"):
            low, high = ends[name := str(metric)]
            place = np.floor((mine["value"].to_numpy() - low) / (high - low) * BINS)
            counts[name] += np.bincount(place.clip(0, BINS - 1).astype(np.intp), minlength=BINS)
    return {name: Histogram(*ends[name], tuple(counts[name].tolist())) for name in ends}


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
