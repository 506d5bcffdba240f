"""The overview's sections: tables as HTML, and what the script draws its figures from.

Every text goes through `text()`, and nowhere else into the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from claimscore.report.data import ReportTables, RunFacts
from claimscore.report.groups import GroupRow, GroupTable
from claimscore.report.markup import count, text
from claimscore.report.overview import (
    FailureGroup,
    Histogram,
    MetricOverview,
)

MAX_REASONS = 6
BASELINE_NOTICE = (
    "The claims of this run were made by a baseline of rules, not a language model (builtin). "
    "Scores that rest on claims compare with those of other builtin runs, not with published ones."
)


def table(name: str, head: Sequence[str], rows: Iterable[str], kind: str = "plain") -> str:
    """A table that can scroll, be read aloud by its name, and be taken away as CSV.

    A head that ends in `#` is of numbers. `rows` are markup.
    """
    cells = "".join(
        f'<th scope="col"{_NUM if title.endswith("#") else ""}>{text(title.rstrip("#"))}</th>'
        for title in head
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {text(name)}">'
        f'<table class="{kind}" data-csv="{text(name)}"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


_NUM = ' class="num"'


def _row(first: str, numbers: Sequence[str], last: Sequence[str] = ()) -> str:
    """A row named by its first cell; texts as they are, to be escaped here."""
    return (
        f'<tr><th scope="row" dir="auto">{text(first)}</th>'
        + "".join(f"<td{_NUM}>{text(number)}</td>" for number in numbers)
        + "".join(f'<td class="message" dir="auto">{text(value)}</td>' for value in last)
        + "</tr>"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}".replace("-", "−")


def _half(value: float | None) -> str:
    return "–" if value is None else f"± {value:,.2f}"


def _tick(value: float) -> str:
    return f"{value:.6g}"


# Header ---------------------------------------------------------------------------------


def lede(run: RunFacts, metrics: Sequence[MetricOverview]) -> str:
    """The lines under the title."""
    parts = [count(run.n_records, "record"), count(len(metrics), "metric")]
    if run.finished:
        parts.append(f"finished {run.finished}")
    return " · ".join(text(part) for part in parts)


def notices(run: RunFacts) -> str:
    """The warnings before the numbers."""
    said = ((BASELINE_NOTICE,) if run.is_baseline else ()) + run.notices
    return "\n".join(f'<p class="notice" role="note">{text(notice)}</p>' for notice in said)


def facts(run: RunFacts) -> str:
    """The run's input, requests and models."""
    named: list[tuple[str, object]] = [("Input", run.input), ("Language model", run.llm)]
    named += run.models.items()
    named += run.counts.items()
    named.append(("Version", f"claimscore {run.version}".strip()))
    items = (
        f'<div><dt>{text(name)}</dt><dd dir="auto">{text(_shown(value))}</dd></div>'
        for name, value in named
        if value is not None and value != ""
    )
    return f'<dl class="facts">{"".join(items)}</dl>'


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def truncated(run: RunFacts) -> str:
    """Which metrics read texts that were longer than their model takes."""
    if not run.truncated:
        return ""
    rows = (
        _row(name, [f"{found['rows']:,}", f"{found['records']:,}"])
        for name, found in run.truncated.items()
    )
    return (
        '<h3>Texts that were cut</h3><p class="hint">Texts that were longer than the model reads; '
        "what was cut off had no part in the score.</p>"
        + table("Texts that were cut", ("Metric", "Rows with a cut text#", "Records#"), rows)
    )


# Scores ---------------------------------------------------------------------------------


def scores(metrics: Sequence[MetricOverview]) -> str:
    """The metrics in a table, a place for the figure of each, and why values are null."""
    if not metrics:
        return '<p class="note">This run has no scores.</p>'
    head = ("Metric", "Mean#", "95 % interval#", "Records#", "Null#")
    figures = "".join(_figure(place, metric) for place, metric in enumerate(metrics))
    return (
        table("Scores", head, map(_score_row, metrics), "metrics")
        + f'<div class="figures">{figures}</div>'
        + _null_reasons(metrics)
    )


def _score_row(metric: MetricOverview) -> str:
    known = metric.facts
    about = ". ".join(
        part.rstrip(".")
        for part in (known.description, known.higher_is and f"Higher is {known.higher_is}")
        if part
    )
    about_html = f'<span class="about">{text(about)}.</span>' if about else ""
    nulls = sum(n for _, n in metric.nulls)
    half = known.half_width if metric.n else None
    mean = "" if metric.mean is None else f' data-value="{metric.mean!r}"'
    width = "" if half is None else f' data-value="{half!r}"'
    return (
        f'<tr><th scope="row"><span class="name">{text(known.name)}</span>{about_html}</th>'
        f'<td class="num mean"{mean}>{_number(metric.mean)}</td>'
        f'<td class="num"{width}>{_half(half)}</td>'
        f'<td class="num" data-value="{metric.n}">{metric.n:,}</td>'
        f'<td class="num" data-value="{nulls}">{nulls:,}</td></tr>'
    )


def _null_reasons(metrics: Sequence[MetricOverview]) -> str:
    """Why values are null: the most frequent reasons of each metric."""
    items = []
    for metric in metrics:
        for reason, n in metric.nulls[:MAX_REASONS]:
            items.append((metric.facts.name, n, reason))
        rest = metric.nulls[MAX_REASONS:]
        if rest:
            n = sum(n for _, n in rest)
            items.append((metric.facts.name, n, count(len(rest), "other reason")))
    if not items:
        return ""
    rows = (_row(name, [f"{n:,}"], [reason]) for name, n, reason in items)
    return "<h3>Why values are null</h3>" + table(
        "Reasons of null values", ("Metric", "Records#", "Reason"), rows
    )


def _figure(place: int, metric: MetricOverview) -> str:
    """The frame of a distribution, with its numbers; the script draws the picture."""
    name = text(metric.facts.name)
    if metric.histogram is None:
        nothing = '<p class="note">No values to show.</p>'
        return f"<figure><figcaption>{name}</figcaption>{nothing}</figure>"
    rows = "".join(
        f'<tr><td class="num">{_tick(low)} to {_tick(high)}</td><td class="num">{n:,}</td></tr>'
        for low, high, n in _bins(metric.histogram)
        if n
    )
    return (
        f"<figure><figcaption>{name}</figcaption>"
        f'<div id="cs-histogram-{place}" class="drawn"></div>'
        f'<p class="sr">{text(_described(metric, metric.histogram))}</p>'
        '<details class="numbers"><summary>As numbers</summary><table class="plain"><thead><tr>'
        f'<th scope="col"{_NUM}>Values</th><th scope="col"{_NUM}>Records</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></details></figure>"
    )


def _bins(histogram: Histogram) -> Iterator[tuple[float, float, int]]:
    low, high, counts = histogram
    width = (high - low) / len(counts)
    for index, n in enumerate(counts):
        yield low + index * width, low + (index + 1) * width, n


def _described(metric: MetricOverview, histogram: Histogram) -> str:
    """The picture in words: where values lie, and where most do."""
    peak = max(_bins(histogram), key=lambda found: found[2])
    used = [(low, high) for low, high, n in _bins(histogram) if n]
    return (
        f"{count(metric.n, 'value')} between {_tick(used[0][0])} and {_tick(used[-1][1])}, "
        f"mean {_number(metric.mean)}. Most, {peak[2]:,}, lie from {_tick(peak[0])} "
        f"to {_tick(peak[1])}."
    )


# Groups ---------------------------------------------------------------------------------


def groups(tables: Sequence[GroupTable]) -> str:
    """A section a column: the means by its levels, and places for the figures."""
    return "\n".join(_group_section(place, found) for place, found in enumerate(tables))


def _group_section(place: int, found: GroupTable) -> str:
    head = ["Group", "Records#"]
    head += [f"{name}{part}#" for name in found.metrics for part in ("", " ±")]
    by_level = {name: {row.level: row for row in rows} for name, rows in found.metrics.items()}
    rows = (
        _row(level, [f"{n:,}", *_group_cells(level, by_level.values())])
        for level, n in found.sizes.items()
    )
    title = f"By {found.column}"
    return (
        f'<section id="by-{place}" aria-labelledby="by-{place}-title">'
        f'<h2 id="by-{place}-title" dir="auto">{text(title)}</h2>'
        f'<div class="figures wide" id="cs-groups-{place}"></div>'
        '<p class="hint">Dot and bar: the mean and its 95 % interval. Box: the middle half of the '
        "values and their median. Line: from the lowest to the highest.</p>"
        + table(f"Scores by {found.column}", head, rows, "plain by")
        + "</section>"
    )


def _group_cells(level: str, by_level: Iterable[Mapping[str, GroupRow]]) -> Iterator[str]:
    for rows in by_level:
        row = rows.get(level)
        yield _number(row.mean if row else None)
        yield _number(row.half_width if row else None)


def figures(metrics: Sequence[MetricOverview], tables: Sequence[GroupTable]) -> dict[str, Any]:
    """The charts that the script draws, with the id of the place of each."""
    return {
        "metrics": [
            {
                "place": f"cs-histogram-{place}",
                "name": metric.facts.name,
                "mean": metric.mean,
                "half": metric.facts.half_width,
                "histogram": metric.histogram and metric.histogram._asdict(),
                "description": metric.histogram and _described(metric, metric.histogram),
            }
            for place, metric in enumerate(metrics)
        ],
        "groups": [
            {
                "place": f"cs-groups-{place}",
                "name": name,
                "column": found.column,
                "groups": [
                    {
                        ("half" if key == "half_width" else key): v
                        for key, v in row._asdict().items()
                    }
                    for row in rows
                ],
            }
            for place, found in enumerate(tables)
            for name, rows in found.metrics.items()
        ],
    }


# The rest -------------------------------------------------------------------------------


def failures(found: Sequence[FailureGroup]) -> str:
    """Failures by stage and kind."""
    if not found:
        return '<p class="note good">Nothing failed.</p>'
    rows = (
        f'<tr><th scope="row">{text(group.stage)}</th><td>{text(group.kind)}</td>'
        f"<td{_NUM}>{group.n:,}</td><td{_NUM}>{group.n_records:,}</td>"
        f'<td class="message" dir="auto">{text(group.message)}</td></tr>'
        for group in found
    )
    head = ("Stage", "Kind", "Failures#", "Records#", "First message")
    return table("Failures", head, rows)


def records_note(tables: ReportTables) -> str:
    """The records that the list leaves out."""
    n, cap = tables.run.n_records, tables.max_details
    if n == 0:
        return '<p class="note">This run has no records.</p>'
    if n <= cap:
        return ""
    return (
        f'<p class="note">Here are the first {cap:,} of {n:,} records, in the order of the '
        "input; what is filtered and drawn here is of these. The overview counts all of them; the "
        "tables in the run directory hold every detail.</p>"
    )


def settings(values: Mapping[str, object]) -> str:
    """All settings by their dotted names."""
    rows = "".join(
        f'<tr><th scope="row" dir="auto">{text(name)}</th><td dir="auto">{text(value)}</td></tr>'
        for name, value in _flat(values)
    )
    if not rows:
        return '<p class="note">No settings were recorded.</p>'
    return (
        "<details><summary>Every setting that determines a result</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Table: Settings">'
        f'<table class="plain settings" data-csv="Settings"><tbody>{rows}</tbody></table></div>'
        "</details>"
    )


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)
