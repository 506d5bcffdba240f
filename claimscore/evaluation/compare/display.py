"""A comparison on a terminal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from claimscore.evaluation.compare.comparison import Comparison, RecordDetail, RunComparison
from claimscore.evaluation.compare.comparison_tables import (
    method_notes,
    move_cells,
    sections_of,
    source_lines,
)
from claimscore.evaluation.compare.nli_cells import Flip, RecordCells
from claimscore.evaluation.display import PIPED_WIDTH
from claimscore.evaluation.result import Section

#: So many records are shown with their claims, so many flipped labels of each.
MAX_RECORDS, MAX_FLIPS = 5, 5

#: Columns that no table needs.
UNBOUNDED = 10_000

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SIGNS = {"vanished": "−", "appeared": "+", "changed": "~", "normalised": "≈"}


def print_comparison(found: Comparison, page: Path | None = None) -> None:
    """The runs, then run by run the differences and the records that moved most."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=False, width=PIPED_WIDTH)
    elif console.is_dumb_terminal:  # rich takes every one for 80 columns wide
        columns, lines = shutil.get_terminal_size()
        console = Console(highlight=False, soft_wrap=False, width=columns, height=lines)
    for line in source_lines(found):
        console.print(Text(plain(line)), soft_wrap=True)
    console.print()
    for run in found.runs:
        for section in sections_of(found, run):
            _print_section(console, section)
        _print_records(console, run)
    for note in method_notes(found):
        console.print(Text(plain(note)))
    if page is not None:
        console.print(Text(f"page: {plain(str(page))}"), soft_wrap=True)


def plain(text: str) -> str:
    """One line that does nothing to a terminal, wherever it comes from."""
    return _CONTROL.sub(" ", text)


def _print_section(console: Console, section: Section) -> None:
    """A table, or a line a row where the terminal is too narrow for it; then the notes."""
    console.print(Text(plain(section.title), style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(section.header):
        table.add_column(Text(plain(column)), justify="right" if place else "left", no_wrap=True)
    for row in section.rows:
        table.add_row(*(Text(plain(cell).replace(" [", "\n[")) for cell in row))
    unbounded = console.options.update(max_width=UNBOUNDED)
    if section.rows and console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
    else:
        for row in section.rows:
            cells = zip(section.header[1:], row[1:], strict=True)
            shown = ", ".join(f"{name} {cell}".strip() for name, cell in cells)
            console.print(Text(plain(f"{row[0]}: {shown}")))
    for note in section.notes:
        console.print(Text(plain(note)))
    console.print()


def _print_records(console: Console, run: RunComparison) -> None:
    for record in run.records[:MAX_RECORDS]:
        console.print(Text(_title(record, run), style="bold"))
        if record.texts:
            console.print(Text(plain(f"  other texts: {', '.join(record.texts)}")))
        table = _units(record)
        if table.row_count:
            console.print(table)
        for cells in record.cells:
            for line in _cell_lines(cells, run):
                console.print(Text(f"  {plain(line)}"))
        console.print()
    more = len(run.records) - MAX_RECORDS
    if more > 0:
        console.print(Text(f"{more:,} more records that moved are in --json and --html"))
        console.print()


def _title(record: RecordDetail, run: RunComparison) -> str:
    moves = "; ".join(
        f"{move.metric} {a} to {b} ({difference})"
        for move in record.moves
        for a, b, difference in [move_cells(move)]
    )
    return plain(f"{record.id}, {run.a.label} to {run.b.label}: {moves}")


def _units(record: RecordDetail) -> Table:
    """Claims and facts that are not the same in both; `~` were reworded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for rows in record.units.values():
        for row in rows.iter_rows(named=True):
            sign = _SIGNS.get(row["kind"])
            if sign is not None:
                texts = (plain(row[name] or "") for name in ("a", "b"))
                table.add_row(sign, row["side"], *map(Text, texts))
    return table


def _cell_lines(cells: RecordCells, run: RunComparison) -> Iterator[str]:
    for flip in cells.flips[:MAX_FLIPS]:
        yield flip_line(flip)
    more = len(cells.flips) - MAX_FLIPS
    if more > 0:
        yield f"{more:,} more labels flipped"
    for source, labels in ((run.a, cells.only_a), (run.b, cells.only_b)):
        if labels:
            counts = ", ".join(f"{n:,} {label}" for label, n in labels.items())
            yield f"pairs of texts only in {source.label}: {counts}"


def flip_line(flip: Flip) -> str:
    """The pair of texts and both labels in one line."""
    cell = flip.cell
    words = " (reworded)" if flip.reworded else ""
    return (
        f"{flip.a.label} to {flip.b.label}{words}: {cell.premise_side} “{cell.premise}” → "
        f"{cell.hypothesis_side} “{cell.hypothesis}”"
    )
