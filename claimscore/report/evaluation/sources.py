"""The evaluated files, and run directories with their reports and signatures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import polars as pl

from claimscore.runs import damage_as_error

REPORT = "report.html"


class Source(NamedTuple):
    """A table that was evaluated; `href` leads from the page to the report of a run."""

    what: str
    name: str
    is_run: bool = False
    href: str | None = None


def find_sources(tables: Iterable[str], page: Path) -> list[Source]:
    """The tables of a command as they were named, linked from `page` where they have a report."""
    return [
        Source("Run", name, True, run_link(Path(name), page))
        if Path(name).is_dir()
        else Source("Table", name)
        for name in tables
    ]


def run_link(run: Path | str, page: Path) -> str | None:
    """The address of a run's report as seen from the page; None where there is no report on a
    disk."""
    if isinstance(run, str):
        return None
    report = run / REPORT
    if not report.is_file():
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
