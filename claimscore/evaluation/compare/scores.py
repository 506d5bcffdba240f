"""The scores of two runs, metric by metric and record by record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.evaluation.compare.source import Source
from claimscore.stats.paired import (
    EQUAL_WITHIN,
    Difference,
    Verdict,
    holm,
    paired_difference,
    verdict,
)

#: One row a shared record: both values, and why a value is null or missing.
PAIRED_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "a": pl.Float64(),
    "b": pl.Float64(),
    "difference": pl.Float64(),
    "a_reason": pl.String(),
    "b_reason": pl.String(),
}

#: The reason of a record that has no row of the metric at all.
NO_ROW = "no row of this metric"
NO_REASON = "no reason given"

#: So many different reasons are counted by name, the most frequent first.
MAX_REASONS = 5


class Nulls(NamedTuple):
    """Shared records without a value: in the first run, in the second, in either."""

    a: int
    b: int
    either: int
    reasons_a: Mapping[str, int]
    reasons_b: Mapping[str, int]


class MetricDifference(NamedTuple):
    """A metric over all shared records, or over a group of them.

    The `holm` values are the p-values corrected for the whole table that the row stands in.
    """

    metric: str
    group: str | None
    difference: Difference
    nulls: Nulls
    holm_bootstrap: float | None = None
    holm_sign: float | None = None
    holm_wilcoxon: float | None = None
    verdict: Verdict = "too few"


class Move(NamedTuple):
    """A record whose score of a metric moved."""

    metric: str
    id: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


@dataclasses.dataclass(frozen=True, slots=True)
class Paired:
    """The two runs' values of a metric; `rows` as `PAIRED_SCHEMA`, sorted by id."""

    metric: str
    rows: pl.DataFrame


def paired_scores(a: Source, b: Source, metric: str, ids: pl.Series) -> Paired:
    """The values of a metric over the shared ids, which are sorted."""
    rows = pl.DataFrame({"id": ids})
    for source, name in ((a, "a"), (b, "b")):
        values = source.values(metric).with_columns(
            pl.when(pl.col("value").is_null()).then(pl.col("reason").fill_null(NO_REASON)),
            there=True,
        )
        renamed = values.rename({"value": name, "reason": f"{name}_reason", "there": f"{name}_"})
        if ids.equals(renamed["id"]):  # a join of a million ids takes a hundred megabytes
            rows = rows.hstack(renamed.drop("id"))
        else:
            rows = rows.join(renamed, on="id", how="left", maintain_order="left")
        rows = rows.with_columns(
            pl.when(f"{name}_").then(f"{name}_reason").otherwise(pl.lit(NO_ROW))
        )
    rows = rows.with_columns(difference=pl.col("b") - pl.col("a"))
    return Paired(metric, rows.select(PAIRED_SCHEMA.keys()))


def metric_difference(
    paired: Paired, samples: int, seed: int, group: str | None = None
) -> MetricDifference:
    """Statistics of the records that have a value in both runs, and why others have none."""
    both = paired.rows.drop_nulls("difference")
    difference = paired_difference(
        both["a"].to_numpy(), both["b"].to_numpy(), samples=samples, seed=seed
    )
    return MetricDifference(paired.metric, group, difference, _nulls(paired.rows))


def _nulls(rows: pl.DataFrame) -> Nulls:
    return Nulls(
        rows["a"].null_count(),
        rows["b"].null_count(),
        rows["difference"].null_count(),
        _reasons(rows["a_reason"]),
        _reasons(rows["b_reason"]),
    )


def _reasons(reasons: pl.Series) -> dict[str, int]:
    """How often each reason is given, without what is particular to one record."""
    counts = reasons.drop_nulls().str.split(":").list.first().value_counts()
    ranked = sorted(counts.iter_rows(), key=lambda item: (-item[1], item[0]))
    others = sum(n for _, n in ranked[MAX_REASONS:])
    return dict(ranked[:MAX_REASONS]) | ({"other reasons": others} if others else {})


def by_group(
    paired: Paired, groups: pl.DataFrame, samples: int, seed: int
) -> Iterator[MetricDifference]:
    """A metric in each group: numbers by size, then names, records without one last."""
    rows = paired.rows.join(groups, on="id", how="left", maintain_order="left")
    names = sorted(rows["group"].unique().to_list(), key=_group_order)
    for name in names:
        of_group = rows.filter(pl.col("group").eq_missing(pl.lit(name, pl.String)))
        shown = "(none)" if name is None else name
        yield metric_difference(Paired(paired.metric, of_group.drop("group")), samples, seed, shown)


def _group_order(name: str | None) -> tuple[int, float, str]:
    if name is None:
        return (2, 0.0, "")
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)


def corrected(rows: Sequence[MetricDifference]) -> list[MetricDifference]:
    """The rows with their p-values corrected by Holm's method, each test for itself."""
    bootstrap = holm([row.difference.p_bootstrap for row in rows])
    sign = holm([row.difference.p_sign for row in rows])
    ranks = holm([row.difference.p_wilcoxon for row in rows])
    return [
        row._replace(
            holm_bootstrap=p, holm_sign=q, holm_wilcoxon=r, verdict=verdict(row.difference, p)
        )
        for row, p, q, r in zip(rows, bootstrap, sign, ranks, strict=True)
    ]


def most_moved(paired: Paired, top: int) -> list[Move]:
    """The records whose score moved most, the largest difference first; of equals by id."""
    size = pl.col("difference").abs()
    rows = (
        paired.rows.filter(size > EQUAL_WITHIN)
        .sort(size.round(9), "id", descending=[True, False])
        .head(top)
    )
    return [Move(paired.metric, *values) for values in rows.select("id", "a", "b").iter_rows()]
