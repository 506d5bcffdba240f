"""Evaluations and comparisons on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.console import plain
from claimscore.console.table import print_rows, print_table, print_text

if TYPE_CHECKING:
    from claimscore.evaluation.result import Section


def print_lines(lines: Sequence[str]) -> None:
    """What is to be known first, and a few lines more."""
    for number, line in enumerate(lines):
        print_text(plain(line), "" if number else "bold")


def print_sections(sections: Iterable[Section], page: Path | None = None) -> None:
    """Each section as a table, intervals under their values, with its notes beneath."""
    for section in sections:
        print_text(plain(section.title), "bold")
        header = [plain(name) for name in section.header]
        rows = [[plain(cell) for cell in row] for row in section.rows]
        if section.compares_texts:
            print_rows(header, rows)
        else:
            print_table(header, [[cell.replace(" [", "\n[") for cell in row] for row in rows])
        for note in section.notes:
            print_text(plain(note))
        print()
    if page is not None:
        print(f"page: {plain(str(page))}")
