"""Inline SVG: values with intervals, and boxes. Colours follow the page's light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from claimscore.report.markup import text

#: Width of a chart in its own units; the page scales it.
WIDTH = 360.0
_LEFT, _RIGHT, _ROW, _TOP = 8.0, 352.0, 34.0, 8.0
MAX_ROWS = 80
_MAX_LABEL = 52

Bounds = tuple[float, float]


class Mark(NamedTuple):
    """A value with its interval, and a wider one where there is one."""

    label: str
    value: float | None
    interval: Bounds | None = None
    wider: Bounds | None = None
    published: bool = False


class Axis(NamedTuple):
    """The range of a chart, its ticks, and a value to compare with (no correlation, chance)."""

    low: float
    high: float
    ticks: tuple[float, ...]
    line: float | None = None


def find_axis(
    marks: Sequence[Mark], line: float | None = None, within: Bounds | None = None
) -> Axis:
    """An axis that holds every value, interval and the line, in round steps."""
    known = [
        number
        for mark in marks
        for number in (mark.value, *(mark.interval or ()), *(mark.wider or ()))
        if number is not None and math.isfinite(number)
    ]
    known += [] if line is None else [line]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    step = _step(high - low)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if within:
        first, last = max(first, round(within[0] / step)), min(last, round(within[1] / step))
    ticks = tuple(round(number * step, 10) for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks, line)


def _step(span: float) -> float:
    """At most six steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(span / 6))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 6)


def tick(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")


def interval_chart(title: str, marks: Sequence[Mark], axis: Axis, number: str) -> str:
    """A figure with a line a value: its name, a dot, and its interval as a bar.

    `number` is a format of a value such as `.3f`. Past `MAX_ROWS` rows the figure says what it
    leaves to the table.
    """
    shown = marks[:MAX_ROWS]
    base = _TOP + _ROW * len(shown)

    def x(value: float) -> float:
        return _LEFT + (value - axis.low) / (axis.high - axis.low) * (_RIGHT - _LEFT)

    body = _grid(axis, x, base) + "".join(
        _mark(mark, _TOP + _ROW * row, x, number) for row, mark in enumerate(shown)
    )
    more = (
        f'<p class="hint">The first {len(shown)} of {len(marks)}; all are in the table.</p>'
        if len(marks) > len(shown)
        else ""
    )
    described = "; ".join(f"{mark.label} {_said(mark, number)}" for mark in shown)
    return (
        f"<figure><figcaption>{text(title)}</figcaption>"
        f"{_svg(base + 22, title, described, body)}{more}</figure>"
    )


def _svg(height: float, title: str, described: str, body: str, width: float = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{text(title)}: {text(described)}">{body}</svg>'
    )


def _grid(axis: Axis, x: Callable[[float], float], base: float) -> str:
    ends = {axis.ticks[0]: "start", axis.ticks[-1]: "end"}
    lines = "".join(
        f'<line class="rule" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{base:.1f}"/>'
        f'<text x="{x(at):.1f}" y="{base + 16:.1f}" '
        f'text-anchor="{ends.get(at, "middle")}">{tick(at)}</text>'
        for at in axis.ticks
    )
    if axis.line is not None:
        at = x(axis.line)
        lines += f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{base:.1f}"/>'
    return lines


def _mark(mark: Mark, top: float, x: Callable[[float], float], number: str) -> str:
    y = top + 23
    label = mark.label if len(mark.label) <= _MAX_LABEL else mark.label[: _MAX_LABEL - 1] + "…"
    parts = [f'<text class="label" x="{_LEFT}" y="{top + 12:.1f}">{text(label)}</text>']
    value = "none" if mark.value is None else f"{mark.value:{number}}".replace("-", "−")
    parts.append(
        f'<text class="mean" x="{_RIGHT}" y="{top + 12:.1f}" text-anchor="end">{value}</text>'
    )
    for kind, bounds in (("wider", mark.wider), ("interval", mark.interval)):
        if bounds is not None:
            parts.append(
                f'<line class="{kind}" x1="{x(bounds[0]):.1f}" x2="{x(bounds[1]):.1f}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/>'
            )
    if mark.value is not None:
        parts.append(_point(x(mark.value), y, mark.published))
    return "".join(parts)


def _point(x: float, y: float, published: bool) -> str:
    if published:
        return f'<path class="theirs" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'
    return f'<circle class="ours" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _said(mark: Mark, number: str) -> str:
    if mark.value is None:
        return "none"
    bounds = mark.interval
    within = "" if bounds is None else f" ({bounds[0]:{number}} to {bounds[1]:{number}})"
    return f"{mark.value:{number}}{within}"


# Boxes


class Box(NamedTuple):
    """The values of a group; its mean and half an interval, ours and the published ones."""

    label: tuple[str, str]
    values: Sequence[float]
    mean: float | None = None
    half_width: float | None = None
    published_mean: float | None = None
    published_half_width: float | None = None


class FiveNumbers(NamedTuple):
    """Quartiles, whiskers (the last value within 1.5 interquartile ranges), and what is outside."""

    low: float
    first: float
    median: float
    third: float
    high: float
    outside: tuple[float, ...]


def five_numbers(values: Sequence[float]) -> FiveNumbers:
    """Tukey's box plot, quartiles by linear interpolation; of one value or more."""
    found = np.sort(np.asarray(values, dtype=np.float64))
    first, median, third = np.quantile(found, (0.25, 0.5, 0.75)).tolist()
    reach = 1.5 * (third - first)
    inside = found[(found >= first - reach) & (found <= third + reach)]
    low, high = min(inside[0], first), max(inside[-1], third)
    outside = found[(found < low) | (found > high)]
    return FiveNumbers(float(low), first, median, third, float(high), tuple(outside.tolist()))


_BOX_TOP, _BOX_BASE, _BOX_LEFT, _BOX_WIDTH = 10.0, 210.0, 34.0, 440.0


def box_chart(title: str, boxes: Sequence[Box]) -> str:
    """A figure with a box a group, our mean with its interval, and the published one beside."""
    ends = [
        Mark("", number)
        for box in boxes
        for number in (
            *box.values,
            *_around(box.mean, box.half_width),
            *_around(box.published_mean, box.published_half_width),
        )
    ]
    axis = find_axis(ends)

    def y(value: float) -> float:
        return _BOX_BASE - (value - axis.low) / (axis.high - axis.low) * (_BOX_BASE - _BOX_TOP)

    lines = "".join(
        f'<line class="rule" x1="{_BOX_LEFT}" x2="{_BOX_WIDTH}" y1="{y(at):.1f}" y2="{y(at):.1f}"/>'
        f'<text x="{_BOX_LEFT - 6}" y="{y(at) + 4:.1f}" text-anchor="end">{tick(at)}</text>'
        for at in axis.ticks
    )
    each = (_BOX_WIDTH - _BOX_LEFT) / max(1, len(boxes))
    body = lines + "".join(
        _box(box, _BOX_LEFT + each * (place + 0.5), min(44.0, each * 0.5), y)
        for place, box in enumerate(boxes)
    )
    described = "; ".join(_box_said(box) for box in boxes)
    return (
        f"<figure><figcaption>{text(title)}</figcaption>"
        f"{_svg(_BOX_BASE + 38, title, described, body, _BOX_WIDTH + 4)}</figure>"
    )


def _around(mean: float | None, half_width: float | None) -> tuple[float, ...]:
    if mean is None:
        return ()
    half = half_width or 0.0
    return mean - half, mean + half


def _box(box: Box, x: float, width: float, y: Callable[[float], float]) -> str:
    parts = [
        f'<text x="{x:.1f}" y="{_BOX_BASE + 16 + 14 * line:.1f}" '
        f'text-anchor="middle">{text(word)}</text>'
        for line, word in enumerate(box.label)
    ]
    left, right = x - width / 2, x + width / 2
    if box.values:
        found = five_numbers(box.values)
        parts += [
            f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{y(a):.1f}" y2="{y(b):.1f}"/>'
            for a, b in ((found.low, found.first), (found.third, found.high))
        ]
        parts.append(
            f'<rect class="box" x="{left:.1f}" y="{y(found.third):.1f}" width="{width:.1f}" '
            f'height="{y(found.first) - y(found.third):.1f}"/>'
        )
        parts.append(
            f'<line class="median" x1="{left:.1f}" x2="{right:.1f}" '
            f'y1="{y(found.median):.1f}" y2="{y(found.median):.1f}"/>'
        )
        parts += [
            f'<circle class="outside" cx="{x:.1f}" cy="{y(value):.1f}" r="2.5"/>'
            for value in found.outside
        ]
    parts.append(_mean(x, y, box.mean, box.half_width, False))
    parts.append(_mean(right + 7, y, box.published_mean, box.published_half_width, True))
    return "".join(parts)


def _mean(
    x: float,
    y: Callable[[float], float],
    mean: float | None,
    half_width: float | None,
    published: bool,
) -> str:
    if mean is None:
        return ""
    low, high = _around(mean, half_width)
    kind = "theirs-bar" if published else "interval-bar"
    return (
        f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}"/>'
        + _point(x, y(mean), published)
    )


def _box_said(box: Box) -> str:
    name = " ".join(box.label).strip()
    if box.mean is None:
        return f"{name}: no value"
    published = "" if box.published_mean is None else f", published {box.published_mean:.1f}"
    return f"{name}: mean {box.mean:.2f}{published}"


def legend(*kinds: str) -> str:
    """The legend of a chart; kinds are keys of `_LEGEND`."""
    items = "".join(
        f'<li><svg viewBox="0 0 26 14" class="key" aria-hidden="true">{_LEGEND[kind][0]}</svg>'
        f"{text(_LEGEND[kind][1])}</li>"
        for kind in kinds
    )
    return f'<ul class="legend">{items}</ul>'


_DOT, _DIAMOND = _point(13, 7, False), _point(13, 7, True)
_LEGEND = {
    "interval": (
        f'<line class="interval" x1="1" x2="25" y1="7" y2="7"/>{_DOT}',
        "value and 95 % interval",
    ),
    "corrected": ('<line class="wider" x1="1" x2="25" y1="7" y2="7"/>', "corrected interval"),
    "wider99": ('<line class="wider" x1="1" x2="25" y1="7" y2="7"/>', "99 % interval"),
    "published": (_DIAMOND, "published"),
    "box": (
        '<rect class="box" x="3" y="2" width="20" height="10"/>'
        '<line class="median" x1="3" x2="23" y1="7" y2="7"/>',
        "quartiles and median; whiskers to the last value within 1.5 of their distance",
    ),
    "mean": (
        f'<line class="interval-bar" x1="13" x2="13" y1="0" y2="14"/>{_DOT}',
        "mean and 95 % interval",
    ),
}
