"""The numbers of the overview: of every record of the run, however many there are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.report.record_texts import MAX_NOTE_CHARS, cut_off
from claimscore.report.report_tables import (
    BLOCK_ROWS,
    TEXT_COLUMNS,
    MetricFacts,
    ReportTables,
    score_blocks,
)
from claimscore.stats.bootstrap import MIN_VALUES

Codes: TypeAlias = NDArray[np.uint8]
Values: TypeAlias = NDArray[np.float64]

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


class _MetricSums:
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
    seen: dict[str, _MetricSums] = {facts.name: _MetricSums() for facts in tables.metrics}
    for rows in score_blocks(tables, "metric", "value", "reason", "signature"):
        for (name,), mine in rows.group_by("metric", maintain_order=True):
            seen.setdefault(str(name), _MetricSums()).add(mine)
    known = {facts.name: facts for facts in tables.metrics}
    facts = {name: known.get(name, MetricFacts(name)) for name in seen}
    histograms = _histograms(tables, {name: _bounds(facts[name], seen[name]) for name in seen})
    return [_overview(facts[name], found, histograms.get(name)) for name, found in seen.items()]


def _overview(facts: MetricFacts, seen: _MetricSums, histogram: Histogram | None) -> MetricOverview:
    return MetricOverview(
        facts,
        seen.n,
        seen.mean if seen.n else None,
        tuple(sorted(seen.nulls.items(), key=lambda item: (-item[1], item[0]))),
        tuple(sorted(seen.signatures)),
        histogram,
    )


def _bounds(facts: MetricFacts, seen: _MetricSums) -> tuple[float, float] | None:
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
        FailureGroup(stage, kind, n, n_records, cut_off(message, MAX_NOTE_CHARS))
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


# Groups

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
        values = _values(tables, name, len(found[0].codes))
        for of_column, levels in zip(metrics, found, strict=True):
            of_column[name] = tuple(_rows(levels, values))
    return [
        GroupTable(levels.column, _sizes(levels), of_column)
        for levels, of_column in zip(found, metrics, strict=True)
    ]


def _sizes(levels: _Levels) -> dict[str, int]:
    counts = np.bincount(levels.codes, minlength=NONE + 1).tolist()
    return {name: counts[code] for code, name in sorted(enumerate(levels.names), key=itemgetter(1))}


def _levels(records: pl.LazyFrame) -> list[_Levels]:
    """The columns to group by, `system` first. The records are read once, a batch at a time."""
    kinds = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
    named = [
        name
        for name, dtype in records.collect_schema().items()
        if name not in TEXT_COLUMNS and isinstance(dtype, kinds)
    ]
    first = records.head(_FIRST_RECORDS).select(pl.col(named).drop_nulls().n_unique())
    counts = first.collect(engine="streaming")
    named = [column.name for column in counts if column.item() <= MAX_LEVELS]
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
    few = sorted(
        (name for name in levels if len(levels[name]) >= 2), key=lambda name: name != "system"
    )
    return [
        _Levels(name, tuple(levels[name]), np.concatenate(codes[name]))
        for name in few[:MAX_GROUP_COLUMNS]
    ]


def _encoded(texts: pl.Series, levels: Mapping[str, int]) -> Codes:
    old, new = list(levels), list(levels.values())
    return texts.replace_strict(old, new, default=NONE, return_dtype=pl.UInt8).to_numpy()


def _values(tables: ReportTables, name: str, n: int) -> Values:
    """A metric's values by the position of their record, ``[n]``; NaN for null.

    All are NaN where the metric has not one score a record: to find a million ids among a million
    takes hundreds of megabytes.
    """
    values, end = np.full(n, np.nan), 0
    for rows in score_blocks(tables, "metric", "value"):
        mine = rows.filter(pl.col("metric") == name)["value"].to_numpy()
        if end + len(mine) > n:
            return np.full(n, np.nan)
        values[end : end + len(mine)] = mine
        end += len(mine)
    return values if end == n else np.full(n, np.nan)


def _rows(levels: _Levels, values: Values) -> Iterator[GroupRow]:
    """The figures of each level that has values, by its name."""
    has_value = ~np.isnan(values)
    for code, name in sorted(enumerate(levels.names), key=itemgetter(1)):
        mine = values[(levels.codes == code) & has_value]
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
    """The last digits depend on the order in which a library adds up: they are cut off."""
    return float(f"{value:.9g}")
