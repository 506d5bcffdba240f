"""The page: static parts made here, records drawn by the script from JSON inside the file.

Every text that comes from a record, a model or a setting goes through `text()` into HTML
or through `json_block()` into JSON, and nowhere else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from string import Template

from claimscore.atomic import atomic_path
from claimscore.report.data import (
    FailureGroup,
    Histogram,
    MetricOverview,
    RecordList,
    ReportTables,
    RunFacts,
    detail_blocks,
    failure_groups,
    overview,
)
from claimscore.report.markup import asset, count, json_block, policy, script, text

MAX_REASONS = 6
BASELINE_NOTICE = (
    "The claims of this run were made by a baseline of rules, not a language model (builtin). "
    "Scores that rest on claims compare with those of other builtin runs, not with published ones."
)

#: The page's script, put together from these files in this order.
SCRIPTS = ("page.js", "matrix.js", "facts.js", "report.js")


def write_report(tables: ReportTables, path: Path) -> None:
    """Write the report; the same tables give the same bytes.

    Details are written as they are read, block by block, and the file appears by rename
    when it is complete.
    """
    # A lone surrogate (only possible in settings) is written as its escape.
    with (
        atomic_path(path) as unfinished,
        unfinished.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.writelines(_parts(tables))


def _parts(tables: ReportTables) -> Iterator[str]:
    head, tail = asset("template.html").split("<!--DETAILS-->")
    metrics = overview(tables)
    listed = RecordList([metric.facts.name for metric in metrics])
    code = script(*SCRIPTS)
    yield Template(head).substitute(
        csp=text(policy(code)),
        generator=text(_generator(tables.run)),
        title=text(tables.run.title),
        css=asset("report.css"),
        lede=_lede(tables.run, metrics),
        notices=_notices(tables.run),
        facts=_facts(tables.run),
        scores=_scores(metrics),
        failures=_failures(failure_groups(tables)),
        records=_records_note(tables),
        settings=_settings(tables.run.settings),
    )
    for number, block in enumerate(detail_blocks(tables, listed)):
        yield f'<script type="application/json" id="cs-details-{number}">'
        yield json_block(block)
        yield "</script>\n"
    yield Template(tail).substitute(
        generator=text(_generator(tables.run)), list=json_block(listed.to_json()), js=code
    )


# Header ---------------------------------------------------------------------------------


def _generator(run: RunFacts) -> str:
    return f"claimscore {run.version}".strip()


def _lede(run: RunFacts, metrics: list[MetricOverview]) -> str:
    parts = [count(run.n_records, "record"), count(len(metrics), "metric")]
    if run.finished:
        parts.append(f"finished {run.finished}")
    return " · ".join(text(part) for part in parts)


def _notices(run: RunFacts) -> str:
    notices = ((BASELINE_NOTICE,) if run.is_baseline else ()) + run.notices
    return "\n".join(f'<p class="notice" role="note">{text(notice)}</p>' for notice in notices)


def _facts(run: RunFacts) -> str:
    facts: list[tuple[str, object]] = [("Input", run.input), ("Language model", run.llm)]
    facts += run.models.items()
    facts += run.counts.items()
    facts.append(("Version", _generator(run)))
    items = (
        f'<div><dt>{text(name)}</dt><dd dir="auto">{text(_shown(value))}</dd></div>'
        for name, value in facts
        if value is not None and value != ""
    )
    return f'<dl class="facts">{"".join(items)}</dl>'


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


# Scores ---------------------------------------------------------------------------------


def _scores(metrics: list[MetricOverview]) -> str:
    if not metrics:
        return '<p class="note">This run has no scores.</p>'
    rows = "".join(_score_row(metric) for metric in metrics)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of scores">'
        '<table class="metrics"><thead><tr><th scope="col">Metric</th>'
        '<th scope="col" class="num">Mean</th><th scope="col" class="num">95 % interval</th>'
        '<th scope="col" class="num">Records</th><th scope="col" class="num">Null</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<div class="figures">{"".join(map(_figure, metrics))}</div>'
        f"{_null_reasons(metrics)}"
        f"{_signatures(metrics)}"
    )


def _score_row(metric: MetricOverview) -> str:
    facts = metric.facts
    about = ". ".join(
        part.rstrip(".")
        for part in (facts.description, facts.higher_is and f"Higher is {facts.higher_is}")
        if part
    )
    about_html = f'<span class="about">{text(about)}.</span>' if about else ""
    half_width = facts.half_width if metric.n else None
    shown = "–" if half_width is None else f"± {half_width:,.2f}"
    nulls = sum(n for _, n in metric.nulls)
    return (
        f'<tr><th scope="row"><span class="name">{text(facts.name)}</span>{about_html}</th>'
        f'<td class="num mean">{_number(metric.mean)}</td><td class="num">{shown}</td>'
        f'<td class="num">{metric.n:,}</td><td class="num">{nulls:,}</td></tr>'
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _null_reasons(metrics: list[MetricOverview]) -> str:
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
    rows = "".join(
        f'<tr><td>{text(name)}</td><td class="num">{n:,}</td>'
        f'<td dir="auto">{text(reason)}</td></tr>'
        for name, n, reason in items
    )
    return (
        "<h3>Why values are null</h3>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Reasons of null values">'
        '<table class="plain"><thead><tr><th scope="col">Metric</th>'
        '<th scope="col" class="num">Records</th><th scope="col">Reason</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _signatures(metrics: list[MetricOverview]) -> str:
    rows = "".join(
        f'<div><dt>{text(metric.facts.name)}</dt><dd><code class="copyable">{text(signature)}'
        "</code></dd></div>"
        for metric in metrics
        for signature in metric.signatures
    )
    if not rows:
        return ""
    return (
        '<h3>Signatures</h3><p class="hint">Everything that changes a value, to stand beside it '
        f'in a paper.</p><dl class="signatures">{rows}</dl>'
    )


# Distributions --------------------------------------------------------------------------

_WIDTH, _BASE, _TOP, _LEFT, _RIGHT = 360.0, 128.0, 14.0, 6.0, 354.0


def _figure(metric: MetricOverview) -> str:
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
        f"<figure><figcaption>{name}</figcaption>{_histogram_svg(metric, metric.histogram)}"
        '<details class="numbers"><summary>As numbers</summary><table class="plain"><thead><tr>'
        '<th scope="col" class="num">Values</th><th scope="col" class="num">Records</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></details></figure>"
    )


def _bins(histogram: Histogram) -> Iterator[tuple[float, float, int]]:
    low, high, counts = histogram
    width = (high - low) / len(counts)
    for index, n in enumerate(counts):
        yield low + index * width, low + (index + 1) * width, n


def _tick(value: float) -> str:
    return f"{value:.6g}"


def _histogram_svg(metric: MetricOverview, histogram: Histogram) -> str:
    key = "h" + hashlib.sha256(metric.facts.name.encode("utf-8", "replace")).hexdigest()[:8]
    low, high, counts = histogram
    top = max(counts)

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_RIGHT - _LEFT)

    bars = "".join(
        f'<rect x="{x(start) + 1:.1f}" y="{_BASE - height:.1f}" '
        f'width="{x(end) - x(start) - 2:.1f}" height="{height:.1f}" rx="1.5"/>'
        for start, end, n in _bins(histogram)
        if n
        for height in [max(2.0, n / top * (_BASE - _TOP))]
    )
    ticks = "".join(
        f'<text x="{x(value):.1f}" y="146" text-anchor="{anchor}">{_tick(value)}</text>'
        for value, anchor in (
            (low, "start"),
            ((low + high) / 2, "middle"),
            (high, "end"),
        )
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} 152" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">Distribution of {text(metric.facts.name)}</title>'
        f'<desc id="{key}-d">{text(_described(metric, histogram))}</desc>'
        f'<g class="bars">{bars}</g>'
        f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{_BASE}" y2="{_BASE}"/>'
        f'{_mean_mark(metric, x)}<g class="ticks">{ticks}</g></svg>'
    )


def _mean_mark(metric: MetricOverview, x: Callable[[float], float]) -> str:
    if metric.mean is None or not math.isfinite(metric.mean):
        return ""
    at = x(metric.mean)
    half = metric.facts.half_width
    band = ""
    if half is not None:
        left, right = max(_LEFT, x(metric.mean - half)), min(_RIGHT, x(metric.mean + half))
        band = (
            f'<rect class="band" x="{left:.1f}" y="{_TOP - 6}" width="{right - left:.1f}" '
            f'height="{_BASE - _TOP + 6}"/>'
        )
    anchor, shift = ("end", -4) if at > _WIDTH * 0.7 else ("start", 4)
    return (
        f'{band}<line class="mean" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{_BASE}"/>'
        f'<text class="mean" x="{at + shift:.1f}" y="11" text-anchor="{anchor}">'
        f"mean {_number(metric.mean)}</text>"
    )


def _described(metric: MetricOverview, histogram: Histogram) -> str:
    """What a person would say about the picture: where values lie, and where most do."""
    peak = max(_bins(histogram), key=lambda found: found[2])
    used = [(low, high) for low, high, n in _bins(histogram) if n]
    return (
        f"{count(metric.n, 'value')} between {_tick(used[0][0])} and {_tick(used[-1][1])}, "
        f"mean {_number(metric.mean)}. Most, {peak[2]:,}, lie from {_tick(peak[0])} "
        f"to {_tick(peak[1])}."
    )


# Failures, records, settings ------------------------------------------------------------


def _failures(groups: list[FailureGroup]) -> str:
    if not groups:
        return '<p class="note good">Nothing failed.</p>'
    rows = "".join(
        f"<tr><td>{text(group.stage)}</td><td>{text(group.kind)}</td>"
        f'<td class="num">{group.n:,}</td>'
        f'<td class="num">{group.n_records:,}</td>'
        f'<td class="message" dir="auto">{text(group.message)}</td></tr>'
        for group in groups
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of failures">'
        '<table class="plain"><thead><tr><th scope="col">Stage</th><th scope="col">Kind</th>'
        '<th scope="col" class="num">Failures</th><th scope="col" class="num">Records</th>'
        f'<th scope="col">First message</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _records_note(tables: ReportTables) -> str:
    n, cap = tables.run.n_records, tables.max_details
    if n == 0:
        return '<p class="note">This run has no records.</p>'
    if n <= cap:
        return ""
    return (
        f'<p class="note">The list holds the first {cap:,} of {n:,} records, in the order of the '
        "input. The scores, distributions and failures above count all of them; the tables in "
        "the run directory hold every detail.</p>"
    )


def _settings(settings: Mapping[str, object]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th><td dir="auto">{text(value)}</td></tr>'
        for name, value in _flat(settings)
    )
    if not rows:
        return '<p class="note">No settings were recorded.</p>'
    return (
        "<details><summary>Every setting that determines a result</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of settings">'
        f'<table class="plain settings"><tbody>{rows}</tbody></table></div></details>'
    )


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)
