"""What every evaluation returns: tables for programs and files, sections for people."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from claimscore import __version__
from claimscore.atomic import atomic_path, os_errors, write_text
from claimscore.csv_text import csv_text
from claimscore.stats.bootstrap import Array, percentile_bounds

Row = Mapping[str, Any]

#: Hears how many of how many are done: rows that a model judges, or steps of a training.
OnCount = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Show nothing."""


class Mark(NamedTuple):
    """A line of an interval chart; `text` is the value as the table has it."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    text: str


class Section(NamedTuple):
    """One titled table of text; `notes` say what its numbers are, or all there is to say.

    `charts` are drawn on the page, by title, beside `line`: the value to compare with. Where
    `compares_texts`, the last two columns are texts as they are.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    notes: tuple[str, ...] = ()
    charts: Mapping[str, Sequence[Mark]] = MappingProxyType({})
    line: float = 0.0
    compares_texts: bool = False


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation gives: tables for programs, sections for people.

    `tables` have the rows behind the numbers, by the names of their files and in JSON; `facts` are
    values beside them. `name` is the name of the files that a page is written to, `title` their
    heading, `config` the settings.
    """

    name: str
    title: str
    config: Any
    tables: Mapping[str, pl.DataFrame]
    facts: Mapping[str, Any]
    sections: Sequence[Section]

    def to_json(self) -> dict[str, Any]:
        """Facts and tables as plain values, a table as a list of its rows."""
        return {**self.facts, **{name: rows.to_dicts() for name, rows in self.tables.items()}}

    def signature(self) -> str:
        """All settings that change the numbers, in one line."""
        return signature(self.name, dataclasses.asdict(self.config))

    def write(self, out: Path) -> None:
        """Write every table as Parquet and CSV into the folder `out`."""
        with os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        for name, frame in self.tables.items():
            with atomic_path(out / f"{name}.parquet") as unfinished:
                frame.write_parquet(unfinished)
            write_text(out / f"{name}.csv", csv_text(frame))


#: Settings that do not change the numbers: a signature leaves them out.
_NO_SETTINGS = frozenset(("tables", "table", "scores", "ratings", "labels", "run", "encoders"))


def signature(name: str, settings: Mapping[str, object]) -> str:
    """The name of an evaluation, its settings and the version, in one line."""
    chosen = [
        f"{key}:{_setting(value)}" for key, value in settings.items() if key not in _NO_SETTINGS
    ]
    return "|".join([name, *chosen, f"claimscore:{__version__}"])


def _setting(value: object) -> str:
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def interval_columns(*names: str) -> dict[str, pl.DataType]:
    """The columns of values with their intervals: each name, with `_low` and with `_high`."""
    return {f"{name}{end}": pl.Float64() for name in names for end in ("", "_low", "_high")}


def with_interval(name: str, value: float, draws: Array) -> dict[str, float | None]:
    """A value and the percentiles of its draws as those columns; None where undefined."""
    low, high = percentile_bounds(draws)
    return {name: None if math.isnan(value) else value, f"{name}_low": low, f"{name}_high": high}


def percent_cell(row: Row, name: str) -> str:
    """A value of those columns in percent with its interval; empty where there is none."""
    value, low, high = (row[name + end] for end in ("", "_low", "_high"))
    bounds = "" if low is None else f" [{percent(low)}–{percent(high)}]"
    return "" if value is None else percent(value) + bounds


def percent_mark(label: str, row: Row, name: str) -> Mark:
    """The same as a line of a chart."""
    value, low, high = (
        None if row[name + end] is None else 100 * row[name + end] for end in ("", "_low", "_high")
    )
    return Mark(label, value, low, high, percent(row[name]) or "none")


def percent(value: float | None) -> str:
    """A fraction in percent with one digit; empty where there is none."""
    return "" if value is None else f"{100 * value:.1f}"


def fixed(value: float | None, digits: int, missing: str = "") -> str:
    """A number with that many digits after the point."""
    return missing if value is None else f"{value:.{digits}f}"
