"""The page of an evaluation: sections of blocks, with figures, tables and notes."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import polars as pl

from claimscore import __version__
from claimscore.evaluation.result import Section
from claimscore.report.html_page import write_page
from claimscore.runs import damage_as_error

JSON = dict[str, Any]
Bounds = tuple[float, float]

#: Levels of a heat map, beside the lowest.
LEVELS = 10

#: A figure draws so many values; the table has all.
MAX_ROWS = 80

#: A cell of a column of numbers.
_NUMBER = re.compile(r"(none|not defined|nan|-)?$|([<≤] ?)?[+−±-]?\.?\d")

#: Settings that do not change the numbers: a signature leaves them out.
_NO_SETTINGS = frozenset(
    ("tables", "table", "scores", "ratings", "ratings_file", "out", "run", "encoders")
)


# Figures


class Mark(NamedTuple):
    """A value with its interval, and a wider one where there is one."""

    label: str
    value: float | None
    interval: Bounds | None = None
    wider: Bounds | None = None
    published: bool = False

    def said(self, digits: int) -> str:
        """The value and its interval as text."""
        if self.value is None:
            return f"{self.label} none"
        spec = f".{digits}f"
        bounds = (
            "" if self.interval is None else " ({:{s}} to {:{s}})".format(*self.interval, s=spec)
        )
        return f"{self.label} {self.value:{spec}}{bounds}"


@dataclasses.dataclass(frozen=True)
class Chart:
    """A figure that the page's script draws: `data` is what it needs besides the place."""

    title: str
    description: str
    data: JSON
    hint: str = ""


def interval_charts(
    of_title: Mapping[str, Sequence[Mark]],
    line: float,
    digits: int,
    within: Bounds | None = None,
) -> tuple[Chart, ...]:
    """A chart a title, with a line a value, all on one axis.

    `line` is the value to compare with (no correlation, chance), `within` the range that values
    cannot leave.
    """
    every = [mark for marks in of_title.values() for mark in marks]
    return tuple(
        _interval_chart(title, marks, _axis(every, line), line, digits, within)
        for title, marks in of_title.items()
    )


def _axis(marks: Iterable[Mark], line: float) -> Bounds:
    """The range of an axis: it holds every value, interval and the line."""
    known = [line] + [
        number
        for mark in marks
        for number in (mark.value, *(mark.interval or ()), *(mark.wider or ()))
        if number is not None and math.isfinite(number)
    ]
    low, high = min(known), max(known)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    return low, high


def _interval_chart(
    title: str,
    marks: Sequence[Mark],
    axis: Bounds,
    line: float,
    digits: int,
    within: Bounds | None,
) -> Chart:
    shown = marks[:MAX_ROWS]
    rows = [
        dict(
            zip(("low", "high"), mark.interval or (None, None), strict=True),
            label=mark.label,
            value=mark.value,
            wide_low=mark.wider and mark.wider[0],
            wide_high=mark.wider and mark.wider[1],
            published=mark.published,
        )
        for mark in shown
    ]
    left_out = f"The first {len(shown)} of {len(marks)}; all are in the table."
    return Chart(
        title,
        "; ".join(mark.said(digits) for mark in shown),
        {
            "kind": "intervals",
            "marks": rows,
            "domain": axis,
            "within": within,
            "line": line,
            "digits": digits,
        },
        left_out if len(marks) > len(shown) else "",
    )


class Box(NamedTuple):
    """The values of a group; its mean and half an interval, ours and the published ones."""

    level: str
    values: Sequence[float]
    mean: float | None = None
    half_width: float | None = None
    published: float | None = None
    published_half: float | None = None


def box_chart(title: str, boxes: Sequence[Box]) -> Chart:
    """A chart with Tukey's box of each group, its mean, and the published mean."""
    said = [
        f"{box.level}: no value"
        if box.mean is None
        else f"{box.level}: mean {box.mean:.2f}"
        + ("" if box.published is None else f", published {box.published:.1f}")
        for box in boxes
    ]
    groups = [{**box._asdict(), "n": len(box.values), **tukey_box(box.values)} for box in boxes]
    for group in groups:
        del group["values"]
    return Chart(title, "; ".join(said), {"kind": "boxes", "groups": groups})


def tukey_box(values: Sequence[float]) -> JSON:
    """Quartiles, whiskers (the last value within 1.5 interquartile ranges), and values outside.

    Quartiles are by linear interpolation. Without values there is nothing but `outside`.
    """
    if not values:
        return dict.fromkeys(("low", "q1", "median", "q3", "high")) | {"outside": []}
    found = np.sort(np.asarray(values, dtype=np.float64))
    q1, median, q3 = np.quantile(found, (0.25, 0.5, 0.75)).tolist()
    reach = 1.5 * (q3 - q1)
    inside = found[(found >= q1 - reach) & (found <= q3 + reach)]
    low, high = float(min(inside[0], q1)), float(max(inside[-1], q3))
    outside = found[(found < low) | (found > high)].tolist()
    return {"low": low, "q1": q1, "median": median, "q3": q3, "high": high, "outside": outside}


# Sections

#: A word of a cell and its mark: `ins`, `del`, `b` or none.
Word = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a section; its fields are shown in this order, and empty ones are left out.

    With a `summary` all of it is folded away. `legend` are kinds of the template's legend.
    `cell_levels` make the table a heat map: (row, column) -> 0 to `LEVELS`. `words` are the rows
    of a table whose cells are marked words, under `header`. Sentences of `says` and `notes` lack
    their end.
    """

    summary: str = ""
    is_open: bool = False
    notices: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    title: str = ""
    lead: str = ""
    legend: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    scale: Bounds | None = None
    header: tuple[str, ...] = ()
    rows: Sequence[Sequence[str]] = ()
    cell_levels: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    words: Sequence[Sequence[Sequence[Word]]] = ()
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    def head(self) -> list[str]:
        """The header for the template's tables: a column of numbers ends in #, one of words not."""
        columns = list(zip(*self.rows, strict=True))
        numbers = [n > 0 and all(map(_NUMBER.match, cells)) for n, cells in enumerate(columns)]
        numbers = numbers or [False] * len(self.header)
        return [
            title + ("#" if number else " ")
            for title, number in zip(self.header, numbers, strict=True)
        ]


def section_block(section: Section, **more: Any) -> Block:
    """A section of the evaluation's results as a block: title, table and notes."""
    block = Block(
        title=section.title, header=section.header, rows=section.rows, notes=section.notes
    )
    return dataclasses.replace(block, **more)


def heat_levels(values: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], int]:
    """Each value's level between the smallest and the largest; all in the middle if equal."""
    low, high = min(values.values()), max(values.values())
    if high == low:
        return dict.fromkeys(values, LEVELS // 2)
    return {place: round((value - low) / (high - low) * LEVELS) for place, value in values.items()}


# The page


class SourceLink(NamedTuple):
    """A table that was evaluated; `href` leads from the page to the report of a run."""

    what: str
    name: str
    is_run: bool = False
    href: str | None = None


class PageSection(NamedTuple):
    """A section of the page with its anchor."""

    name: str
    title: str
    blocks: Sequence[Block]


def write_evaluation_page(
    path: Path,
    *,
    title: str,
    lede: Sequence[str],
    command: str,
    name: str,
    settings: Mapping[str, object],
    sources: Sequence[SourceLink],
    sections: Sequence[PageSection],
    signatures: Iterable[tuple[str, str]] = (),
) -> None:
    """Write a page; the same values give the same bytes, by rename when it is complete.

    `command` is as it was typed, `name` and `settings` make the signature of the evaluation.
    """
    places: dict[int, str] = {}
    figures: list[JSON] = []
    for chart in _charts(block for section in sections for block in section.blocks):
        places[id(chart)] = f"cs-figure-{len(figures)}"
        said = {"title": chart.title, "name": chart.title, "description": chart.description}
        figures.append({**said, "place": places[id(chart)], **chart.data})
    values = {
        "kind": "evaluation",
        "title": title,
        "generator": f"claimscore {__version__}",
        "lede": lede,
        "command": command,
        "signature": _signature(name, settings),
        "sources": sources,
        "sections": sections,
        "signatures": list(signatures),
        "place_of": lambda chart: places[id(chart)],
        "figures": figures,
        "levels": LEVELS,
    }
    styles = ("page.css", "evaluation.css")
    write_page(path, "evaluation.html", "evaluation.js", styles, values)


def _charts(blocks: Iterable[Block]) -> Iterator[Chart]:
    for block in blocks:
        yield from block.charts
        yield from _charts(block.blocks)


def _signature(name: str, settings: Mapping[str, object]) -> str:
    """All settings that change an evaluation's numbers, in one line."""
    chosen = [
        f"{key}:{_shown(value)}" for key, value in settings.items() if key not in _NO_SETTINGS
    ]
    return "|".join([name, *chosen, f"claimscore:{__version__}"])


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def find_sources(tables: Iterable[str | SourceLink], page: Path) -> list[SourceLink]:
    """The tables of a command as they were named, linked from `page` where they have a report."""
    return [
        name
        if isinstance(name, SourceLink)
        else SourceLink("Run", name, True, run_link(Path(name), page))
        if Path(name).is_dir()
        else SourceLink("Table", name)
        for name in tables
    ]


def run_link(run: Path | str, page: Path) -> str | None:
    """The address of a run's report as seen from the page; None without a report on a disk."""
    report = run / "report.html" if isinstance(run, Path) else None
    if report is None or not report.is_file():
        return None
    try:
        path = os.path.relpath(report.resolve(), page.parent.resolve())
        return quote(Path(path).as_posix())
    except (ValueError, UnicodeEncodeError):  # another drive; a name that is no text
        return None


def run_signatures(runs: Iterable[Path], scores: Sequence[str]) -> list[tuple[str, str]]:
    """Name and signature of each score that a run has, without repetition."""
    found: dict[tuple[str, str], None] = {}
    for run in runs:
        path = run / "scores.parquet"
        if not path.is_file():
            continue
        with damage_as_error(run):
            known = pl.scan_parquet(path, glob=False).select("metric", "signature").unique()
            of_metric: dict[str, list[str]] = {}
            for metric, signature in (
                known.drop_nulls().sort("metric", "signature").collect().rows()
            ):
                of_metric.setdefault(metric, []).append(signature)
        for score in scores:
            metric = score if score in of_metric else score.rpartition(".")[0]
            found |= {(score, signature): None for signature in of_metric.get(metric, [])}
    return list(found)
