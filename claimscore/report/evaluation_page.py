"""One page for every evaluation and comparison: its sections, with figures, tables and notes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from claimscore import __version__
from claimscore.evaluation.result import Section
from claimscore.metrics.support import VERDICTS
from claimscore.report.html_page import interval_figure, write_page

#: A cell of a column of numbers.
_NUMBER = re.compile(r"(none|not defined|nan|-)?$|([<≤\[] ?)?[+−±-]?\.?\d")


def write_evaluation_page(
    path: Path, title: str, command: str, signature: str, sections: Iterable[Section]
) -> None:
    """Write a page by rename when it is complete; the same values give the same bytes.

    `command` is as it was typed, `signature` has all settings that change the numbers.
    """
    figures: list[dict[str, Any]] = []
    values = {
        "kind": "evaluation",
        "title": title,
        "generator": f"claimscore {__version__}",
        "command": command,
        "signature": signature,
        "sections": [_shown(section, figures) for section in sections],
        "figures": figures,
    }
    write_page(path, "evaluation.html", "evaluation.js", ("page.css", "evaluation.css"), values)


def _shown(section: Section, figures: list[dict[str, Any]]) -> dict[str, Any]:
    """What the template needs of a section; its charts become figures of the page's script."""
    first = len(figures)
    for title, marks in section.charts.items():
        figures.append(interval_figure(f"cs-figure-{len(figures)}", title, marks, section.line))
    return {
        "title": section.title,
        "head": _head(section),
        "header": section.header,
        "rows": section.rows,
        "notes": section.notes,
        "compares_texts": section.compares_texts,
        "figures": figures[first:],
    }


def _head(section: Section) -> list[str]:
    """The header for the template's tables: a column of numbers ends in #, one of words not."""
    columns = list(zip(*section.rows, strict=True)) or [()] * len(section.header)
    numbers = [
        bool(n and cells) and all(map(_NUMBER.match, cells)) for n, cells in enumerate(columns)
    ]
    return [
        title + ("#" if number else " ")
        for title, number in zip(section.header, numbers, strict=True)
    ]


# A page in which a person labels claims, and which saves them as CSV


def write_label_page(rows: pl.DataFrame, policy: str, path: Path) -> None:
    """Write the page of a table that `label_items.draw` made; it works from a disk.

    `policy` is the text that the labels are to follow.
    """
    digest = hashlib.sha256(rows.write_json().encode()).hexdigest()[:16]
    values = {
        "kind": "labels",
        "title": "Label the claims",
        "generator": f"claimscore {__version__}",
        "metric": rows["metric"][0],
        "n": rows.height,
        "verdicts": VERDICTS,
        "rules": policy.splitlines(),
        "items": {"key": digest, "columns": rows.columns, "rows": rows.rows()},
    }
    write_page(path, "label.html", "label.js", ("page.css", "label.css"), values, charts=False)
