"""Evaluations and comparisons on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from claimscore.console.table import plain, print_block, print_table, print_text
from claimscore.evaluation.compare.comparison_tables import (
    method_notes,
    move_cells,
    noise_section,
    sections_of,
    source_lines,
    verdict_lines,
)

if TYPE_CHECKING:
    from claimscore.evaluation.compare.comparison import Comparison, RecordDetail, RunComparison
    from claimscore.evaluation.compare.nli_cells import Flip, RecordCells
    from claimscore.evaluation.result import EvaluationResult, Section

#: So many records are shown with their claims, so many flipped labels of each.
MAX_RECORDS, MAX_FLIPS = 5, 5

_SIGNS = {"vanished": "−", "appeared": "+", "changed": "~", "normalised": "≈"}


def print_result(result: EvaluationResult, as_json: bool, page: Path | None = None) -> None:
    """The result's sections, or one JSON object."""
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False))
        return
    _print_sections(result.sections())
    _print_page(page)


def print_comparison(found: Comparison, page: Path | None = None) -> None:
    """The runs, then run by run the differences and the records that moved most."""
    for line in source_lines(found):
        print(plain(line))
    print()
    for run in found.runs:
        print_text(plain(f"{run.b.label} against {run.a.label}"), "bold")
        for line in verdict_lines(found, run):
            print_text(plain(line))
    print()
    _print_sections([noise_section(found)] if found.noise else [])
    for run in found.runs:
        _print_sections(sections_of(found, run))
        _print_records(run)
    for note in method_notes(found):
        print_text(plain(note))
    _print_page(page)


def _print_sections(sections: Iterable[Section]) -> None:
    """Each section as a table, intervals under their values, with its notes beneath."""
    for section in sections:
        print_text(plain(section.title), "bold")
        rows = [[plain(cell).replace(" [", "\n[") for cell in row] for row in section.rows]
        print_table([plain(name) for name in section.header], rows)
        for note in section.notes:
            print_text(plain(note))
        print()


def _print_page(page: Path | None) -> None:
    if page is not None:
        print(f"page: {plain(str(page))}")


def _print_records(run: RunComparison) -> None:
    for record in run.records[:MAX_RECORDS]:
        print_text(_title(record, run), "bold")
        if record.texts:
            print_text(plain(f"  other texts: {', '.join(record.texts)}"))
        table = _units(record)
        if table.row_count:
            print_block(table)
        for cells in record.cells:
            for line in _cell_lines(cells, run):
                print_text(f"  {plain(line)}")
        print()
    more = len(run.records) - MAX_RECORDS
    if more > 0:
        print_text(f"{more:,} more records that moved are in --json and --html")
        print()


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
