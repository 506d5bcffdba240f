"""One page for every evaluation and comparison: its sections, with figures, tables and notes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from claimscore import __version__
from claimscore.evaluation.result import Mark, Section
from claimscore.report.html_page import minus, write_page

#: A figure draws so many values; the table has all.
MAX_MARKS = 80

#: A cell of a column of numbers.
_NUMBER = re.compile(r"(none|not defined|nan|-)?$|([<≤\[] ?)?[+−±-]?\.?\d")
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")

#: A word of a cell and its mark: `ins`, `del` or none.
Word = tuple[str, str]


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
        figures.append(_figure(title, marks, section.line, f"cs-figure-{len(figures)}"))
    rows = [[[("", cell)] for cell in row] for row in section.rows]
    if section.compares_texts:
        rows = [[*row[:-2], *_both_words(row[-2][0][1], row[-1][0][1])] for row in rows]
    return {
        "title": section.title,
        "head": _head(section),
        "header": section.header,
        "rows": rows,
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


def _figure(title: str, marks: Sequence[Mark], line: float, place: str) -> dict[str, Any]:
    """A line a value, on an axis that holds every value, every interval and `line`."""
    drawn = marks[:MAX_MARKS]
    ends = [line, *(end for mark in drawn for end in mark[1:4] if end is not None)]
    low, high = min(ends), max(ends)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    left_out = f"The first {len(drawn)} of {len(marks)}; all are in the table."
    return {
        "kind": "intervals",
        "title": title,
        "name": title,
        "description": "; ".join(f"{mark.label} {mark.text}" for mark in drawn),
        "hint": left_out if len(marks) > len(drawn) else "",
        "place": place,
        "marks": [mark._replace(text=minus(mark.text))._asdict() for mark in drawn],
        "domain": (low, high),
        "line": line,
    }


def _both_words(a: str, b: str) -> tuple[list[Word], list[Word]]:
    """Both texts, the words that only one has marked; a missing text is empty."""
    if not (a and b):
        return [("", a)], [("", b)]
    one, other = _WORDS.findall(a), _WORDS.findall(b)
    left: list[Word] = []
    right: list[Word] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, one, other, False).get_opcodes():
        same = kind == "equal"
        left.append(("" if same or i == j else "del", "".join(one[i:j])))
        right.append(("" if same or k == m else "ins", "".join(other[k:m])))
    return left, right
