"""The page of a run: an overview of every record, and the first records with their details."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup

from claimscore.claim_checks import CHECKS
from claimscore.console import many, shared_notes
from claimscore.report.html_page import decimal, interval_figure, packed_json, write_page
from claimscore.report.record_details import RecordIndex, detail_blocks
from claimscore.report.report_tables import (
    TEXT_COLUMNS,
    ReportTables,
    RunFacts,
    values_of,
)
from claimscore.stats.bootstrap import MIN_VALUES, Array, interval_text

#: A value this close to the end of a metric's range lies on it: single precision ends there.
ROUNDING = 1e-3

#: Of a histogram.
BINS = 20


#: The low and the high end of a range; infinite where it has none.
Bounds = tuple[float, float]


def range_of(metric: Mapping[str, Any]) -> Bounds:
    """The range of a metric of `summary.json`, where an infinite bound is null."""
    low, high = metric["range"]
    return -math.inf if low is None else low, math.inf if high is None else high


def scale(metric: Mapping[str, Any]) -> str:
    """What the values may be, and which way is which: `0 to 1, higher is more faithful`."""
    low, high = range_of(metric)
    if math.isinf(low):
        named = "" if math.isinf(high) else f"up to {high:g}, "
    else:
        named = f"from {low:g} on, " if math.isinf(high) else f"{low:g} to {high:g}, "
    return f"{named}higher is {metric['higher_is']}"


def histogram_bins(values: Array, bounds: Bounds) -> list[tuple[float, float, int]]:
    """From, to and count of equally wide bins: over the bounds of a metric, and over its values
    where these go beyond or it has no bound."""
    values = values.copy()
    for bound in bounds:
        values[(values > bound - ROUNDING) & (values < bound + ROUNDING)] = bound
    ends = [*filter(math.isfinite, bounds), values.min(), values.max()]
    counts, edges = np.histogram(values, BINS, (min(ends), max(ends)))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True))


# Groups

#: A column of texts is grouped by where it has from two to so many different ones, each in two
#: records on average.
MAX_LEVELS = 30
MAX_GROUP_COLUMNS = 6

#: A column that has more in its first records is not looked at further: counting a million
#: different texts means holding them.
_FIRST_RECORDS = 10_000


class GroupRow(NamedTuple):
    """The scores of one metric in one group.

    `interval` is the 95% interval of the mean, ± 1.96 · sd / √n with the sd of the values as they
    are (what the bootstrap of the whole comes to with many samples), within the range of the
    metric; None for fewer than `MIN_VALUES`.
    """

    level: str
    n: int
    mean: float
    interval: Bounds | None


class GroupTable(NamedTuple):
    """One column of the records: how many records each level has, and its scores by metric."""

    column: str
    sizes: dict[str, int]
    metrics: dict[str, tuple[GroupRow, ...]]


def group_tables(tables: ReportTables) -> list[GroupTable]:
    """The scores by the records' columns of few different texts, `system` first."""
    levels = None if tables.records is None else _levels(tables.records.lazy())
    if levels is None:
        return []
    metrics: dict[str, dict[str, tuple[GroupRow, ...]]] = {column: {} for column in levels.columns}
    for name, metric in tables.metrics.items():
        values, bounds = values_of(tables, name), range_of(metric)
        for column, of_metric in metrics.items():
            # Scores lie in the order of the records: no join, which takes hundreds of megabytes.
            one_a_record = len(values) == levels.height
            rows = _level_rows(levels[column], values, bounds) if one_a_record else ()
            of_metric[name] = tuple(rows)
    return [
        GroupTable(column, dict(_by_level(levels.lazy(), column, pl.len())), of_metric)
        for column, of_metric in metrics.items()
    ]


def _levels(records: pl.LazyFrame) -> pl.DataFrame | None:
    """The columns to group by, `system` first; None where there is none."""
    kinds = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
    named = [
        name
        for name, dtype in records.collect_schema().items()
        if name not in TEXT_COLUMNS and isinstance(dtype, kinds)
    ]
    for some in (records.head(_FIRST_RECORDS), records):
        column = pl.col(named)
        levels = column.drop_nulls().n_unique()
        repeated = pl.when(column.count() >= 2 * levels).then(levels).otherwise(0)
        counts = some.select(repeated).collect(engine="streaming")
        named = [column.name for column in counts if column.item() <= MAX_LEVELS]
    named = sorted((n for n in named if counts[n].item() >= 2), key=lambda name: name != "system")
    if not named:
        return None
    texts = records.select(pl.col(named[:MAX_GROUP_COLUMNS]).cast(pl.String).cast(pl.Categorical))
    return texts.collect(engine="streaming")


def _by_level(frame: pl.LazyFrame, column: str, *figures: pl.Expr) -> list[tuple[Any, ...]]:
    """Figures of each level of a column, by its name."""
    level = pl.col(column).cast(pl.String)
    levels = frame.drop_nulls(column).group_by(column).agg(*figures).with_columns(level)
    return levels.sort(column).collect().rows()


def _level_rows(levels: pl.Series, values: pl.Series, bounds: Bounds) -> Iterator[GroupRow]:
    """The figures of each level that has values, by its name."""
    value = pl.col("value")
    frame = pl.LazyFrame({"level": levels, "value": values}).drop_nulls()
    figures = (pl.len(), value.mean().alias("mean"), value.std(ddof=0).alias("std"))
    for level, n, mean, deviation in _by_level(frame, "level", *figures):
        mean, half_width = _rounded(mean), _rounded(1.96 * deviation / math.sqrt(n))
        interval = max(bounds[0], mean - half_width), min(bounds[1], mean + half_width)
        yield GroupRow(level, n, mean, interval if n >= MIN_VALUES else None)


def _rounded(value: float) -> float:
    """The last digits depend on the order in which a library adds up: they are cut off."""
    return float(f"{value:.9g}")


# The numbers of the overview: of every record of the run, however many there are

JSON = dict[str, Any]

MAX_REASONS = 6


def write_report(tables: ReportTables, path: Path) -> None:
    """Write the report; the same tables give the same bytes.

    Details are written as they are read, block by block, and the file appears by rename when it is
    complete.
    """
    metrics, groups, run = tables.metrics, group_tables(tables), tables.run
    down = [one["worst_end"] == "highest" for one in metrics.values()]
    index = RecordIndex([*metrics], down, threshold=tables.threshold)
    signatures = [(name, metric["signature"]) for name, metric in metrics.items()]
    verdicts, notes = shared_notes({name: metric["verdict"] for name, metric in metrics.items()})
    values = {
        "notes": notes,
        "kind": "report",
        "title": run.title,
        "generator": f"claimscore {run.version}".strip(),
        "run": run,
        "facts": _facts(run),
        "metrics": [
            (
                {**metric, "name": name, "verdict": verdicts[name], "scale": scale(metric)},
                histogram_figure(f"cs-histogram-{n}", name, metric, values_of(tables, name)),
            )
            for n, (name, metric) in enumerate(metrics.items())
        ],
        "null_reasons": list(_null_reasons(metrics)),
        "groups": [
            {
                "column": table.column,
                "head": [f"{name}#" for name in table.metrics],
                "rows": list(_group_rows(table)),
                "figures": list(_group_figures(f"cs-groups-{place}", table)),
            }
            for place, table in enumerate(groups)
        ],
        "checks": list(_checks(run.claim_checks)),
        "failures": tables.failures,
        "signatures": signatures,
        "settings": list(_flat(run.settings)),
        "max_details": tables.max_details,
        "details": _details(tables, index),
        "index": index,
    }
    write_page(path, "run.html", "run.js", ("page.css", "run.css"), values)


def _details(tables: ReportTables, index: RecordIndex) -> Iterator[tuple[str, Markup]]:
    """The blocks of records by their names, each made when it is asked for."""
    for number, block in enumerate(detail_blocks(tables, index)):
        yield f"cs-texts-{number}", packed_json(block.texts)
        yield f"cs-more-{number}", packed_json(block.more)


def _facts(run: RunFacts) -> list[tuple[str, str]]:
    """The run's input, requests and models."""
    version = f"claimscore {run.version}".strip()
    named: dict[str, object] = {"Input": run.input, "Language model": run.llm}
    named |= {**run.models, **run.counts, "Version": version}
    return [(name, _shown(value)) for name, value in named.items() if value not in (None, "")]


def _checks(counts: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """What each check of the claims found: how many, and their share in percent."""
    for name, n in counts.get("found", {}).items():
        check = CHECKS[name]
        yield f"{check.of.capitalize()} that {check.says}", n, 100 * n / (counts[check.of] or 1)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _null_reasons(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, int, str]]:
    """Why values are null: the most frequent reasons of each metric."""
    for name, metric in metrics.items():
        ranked = sorted(metric["reasons"].items(), key=lambda item: (-item[1], item[0]))
        for reason, n in ranked[:MAX_REASONS]:
            yield name, n, reason
        if rest := ranked[MAX_REASONS:]:
            yield name, sum(n for _, n in rest), many(len(rest), "other reason")


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """All settings by their dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            yield f"{prefix}{name}", ", ".join(map(str, value))
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


# What the page's script draws


def histogram_figure(
    place: str, name: str, metric: Mapping[str, Any], values: pl.Series
) -> JSON | None:
    """The distribution of a metric; None where it has no values."""
    if not metric["n"]:
        return None
    bins = histogram_bins(values.drop_nulls().to_numpy(), range_of(metric))
    mean = metric["mean"]
    peak = max(bins, key=lambda one: one[2])
    used = [(low, high) for low, high, n in bins if n]
    return {
        "kind": "histogram",
        "place": place,
        "title": name,
        "name": f"Distribution of {name}",
        "description": (
            f"{many(metric['n'], 'value')} between {used[0][0]:.6g} and {used[-1][1]:.6g}, mean "
            f"{decimal(mean)}. Most, {peak[2]:,}, lie from {peak[0]:.6g} to {peak[1]:.6g}."
        ),
        "bins": bins,
        "mean": mean,
        "interval": None if metric["low"] is None else (metric["low"], metric["high"]),
    }


def _group_figures(place: str, table: GroupTable) -> Iterator[JSON]:
    for number, (name, rows) in enumerate(table.metrics.items()):
        if rows:
            marks = [
                (row.level, row.mean, *(row.interval or (None, None)), decimal(row.mean))
                for row in rows
            ]
            figure = interval_figure(f"{place}-{number}", name, marks)
            yield figure | {"name": f"{name} by {table.column}"}


def _group_rows(table: GroupTable) -> Iterator[tuple[str, int, list[tuple[str, str]]]]:
    """Of each level its records, and the mean and interval of each metric."""
    by_level = [{row.level: row for row in rows} for rows in table.metrics.values()]
    for level, n in table.sizes.items():
        cells = []
        for rows in by_level:
            row = rows.get(level)
            interval = interval_text(*row.interval) if row and row.interval else ""
            cells.append((decimal(row.mean if row else None), interval))
        yield level, n, cells
