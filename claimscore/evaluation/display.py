"""Sections on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from claimscore.evaluation.result import EvaluationResult, Section

#: Columns where the output is no terminal: a file is not folded.
PIPED_WIDTH = 200


def print_result(result: EvaluationResult, as_json: bool, page: Path | None = None) -> None:
    """The result's sections, or one JSON object."""
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False))
    else:
        print_sections(result.sections(), page)


def print_sections(sections: Iterable[Section], page: Path | None = None) -> None:
    """Each section as a table with its notes beneath; then where the page is."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=False, width=PIPED_WIDTH)
    for section in sections:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for position, column in enumerate(section.header):
            table.add_column(column, justify="right" if position else "left", overflow="fold")
        for row in section.rows:
            table.add_row(row[0], *(cell.replace(" [", "\n[") for cell in row[1:]))
        console.print(section.title, markup=False)
        console.print(table, markup=False)
        for note in section.notes:
            console.print(note, markup=False)
        console.print()
    if page is not None:
        console.print(f"page: {page}", markup=False, soft_wrap=True)
