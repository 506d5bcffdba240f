"""The page of a run: an overview of every record, and the first records with their details."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from claimscore.claim_checks import CHECKS
from claimscore.report.html_page import count, decimal, interval_figure, packed_json, write_page
from claimscore.report.overview import (
    GroupRow,
    GroupTable,
    Histogram,
    MetricOverview,
    failure_groups,
    group_tables,
    overview,
)
from claimscore.report.record_details import RecordIndex, detail_blocks
from claimscore.report.report_tables import ReportTables, RunFacts
from claimscore.stats.bootstrap import interval_text

JSON = dict[str, Any]

MAX_REASONS = 6


def write_report(tables: ReportTables, path: Path) -> None:
    """Write the report; the same tables give the same bytes.

    Details are written as they are read, block by block, and the file appears by rename when it is
    complete.
    """
    metrics = overview(tables)
    names = [metric.facts.name for metric in metrics]
    groups = group_tables(tables, names)
    ranges = {metric.facts.name: metric.facts.range for metric in metrics}
    index = RecordIndex(names, [one.facts.worst_end == "highest" for one in metrics])
    run = tables.run
    values = {
        "kind": "report",
        "title": run.title,
        "generator": f"claimscore {run.version}".strip(),
        "run": run,
        "facts": _facts(run),
        "metrics": [
            (metric, histogram_figure(f"cs-histogram-{place}", metric))
            for place, metric in enumerate(metrics)
        ],
        "null_reasons": list(_null_reasons(metrics)),
        "groups": [
            {
                "column": table.column,
                "head": [f"{name}#" for name in table.metrics],
                "rows": list(_group_rows(table, ranges)),
                "figures": list(_group_figures(f"cs-groups-{place}", table, ranges)),
            }
            for place, table in enumerate(groups)
        ],
        "checks": list(_checks(run.claim_checks)),
        "failures": failure_groups(tables),
        "signatures": [(m.facts.name, signature) for m in metrics for signature in m.signatures],
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


def _null_reasons(metrics: Sequence[MetricOverview]) -> Iterator[tuple[str, int, str]]:
    """Why values are null: the most frequent reasons of each metric."""
    for metric in metrics:
        for reason, n in metric.nulls[:MAX_REASONS]:
            yield metric.facts.name, n, reason
        rest = metric.nulls[MAX_REASONS:]
        if rest:
            yield metric.facts.name, sum(n for _, n in rest), count(len(rest), "other reason")


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


def histogram_figure(place: str, metric: MetricOverview) -> JSON | None:
    """The distribution of a metric; None where it has no values."""
    if metric.histogram is None:
        return None
    bins = _bins(metric.histogram)
    peak = max(bins, key=lambda found: found[2])
    used = [(low, high) for low, high, n in bins if n]
    return {
        "kind": "histogram",
        "place": place,
        "title": metric.facts.name,
        "name": f"Distribution of {metric.facts.name}",
        "description": (
            f"{count(metric.n, 'value')} between {used[0][0]:.6g} and {used[-1][1]:.6g}, mean "
            f"{decimal(metric.mean)}. Most, {peak[2]:,}, lie from {peak[0]:.6g} to {peak[1]:.6g}."
        ),
        "bins": bins,
        "mean": metric.mean,
        "interval": metric.facts.interval,
    }


def _bins(histogram: Histogram) -> list[tuple[float, float, int]]:
    low, high, counts = histogram
    width = (high - low) / len(counts)
    return [(low + at * width, low + (at + 1) * width, n) for at, n in enumerate(counts)]


#: The range of each metric.
_Ranges = Mapping[str, tuple[float, float] | None]


def _group_figures(place: str, table: GroupTable, ranges: _Ranges) -> Iterator[JSON]:
    for number, (name, rows) in enumerate(table.metrics.items()):
        if rows:
            marks = [
                (
                    row.level,
                    row.mean,
                    *(_bounds(row, ranges[name]) or (None, None)),
                    decimal(row.mean),
                )
                for row in rows
            ]
            figure = interval_figure(f"{place}-{number}", name, marks)
            yield figure | {"name": f"{name} by {table.column}"}


def _bounds(row: GroupRow, within: tuple[float, float] | None) -> tuple[float, float] | None:
    """The interval of a group's mean, within the metric's range; None for too few values."""
    if row.half_width is None:
        return None
    low, high = within or (-math.inf, math.inf)
    return max(low, row.mean - row.half_width), min(high, row.mean + row.half_width)


def _group_rows(
    table: GroupTable, ranges: _Ranges
) -> Iterator[tuple[str, int, list[tuple[str, str]]]]:
    """Of each level its records, and the mean and interval of each metric, within its range."""
    by_level = {name: {row.level: row for row in rows} for name, rows in table.metrics.items()}
    for level, n in table.sizes.items():
        cells = []
        for name, rows in by_level.items():
            row = rows.get(level)
            bounds = _bounds(row, ranges[name]) if row else None
            interval = interval_text(*bounds) if bounds else ""
            cells.append((decimal(row.mean if row else None), interval))
        yield level, n, cells
