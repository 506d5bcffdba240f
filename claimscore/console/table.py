"""The printer of tables, facts and sentences on standard output; rich does the layout.

In a terminal nothing is wider than the window: the last column is broken at spaces, and where too
little is left for it each row is written by itself. A file or a pipe has no width: nothing is
broken there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from claimscore.console import harmless

#: The narrowest last column of a table that is still wrapped beside the others.
MIN_COLUMN_WIDTH = 24
#: The narrowest column of a table of numbers whose words are broken to fit.
MIN_BROKEN_WIDTH = 10
#: The narrowest text that is still wrapped beside its label.
MIN_TEXT_WIDTH = 14

#: Columns that no table needs: those of an output that is no terminal.
UNBOUNDED = 10_000


def terminal_width() -> int | None:
    """Columns of the terminal on standard output; None where it is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Labels and texts in two columns, or below each other where the window is too narrow.

    A fact without a label goes on with the one before it.
    """
    if _width() - max((len(label) for label, _ in facts), default=0) < MIN_TEXT_WIDTH:
        for label, text in facts:
            print(harmless(label))
            print_block(Padding(_text(text, overflow="fold"), (0, 0, 0, 2)))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in facts:
        table.add_row(_text(label), _text(text))
    print_block(table)


def print_text(text: str, style: str = "") -> None:
    """A sentence."""
    print_block(_text(text, style=style, overflow="fold"))


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, aligned, for people and for `cut`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for name in header[:-1]:
        table.add_column(_text(name), no_wrap=True)
    table.add_column(_text(header[-1]), overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    fixed = sum(max(map(len, column)) + 2 for column in list(zip(header, *rows, strict=True))[:-1])
    last = max(len(row[-1]) for row in (header, *rows))
    if _width() - fixed >= min(last, MIN_COLUMN_WIDTH):
        print_block(table)
        return
    for number, row in enumerate(rows):
        if number:
            print()
        print_facts([(name, cell) for name, cell in zip(header, row, strict=True) if cell])


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of numbers under a ruled header, the first column a name.

    Where the window is too narrow for it, cells are broken at spaces, then long words; where it is
    too narrow for that, a row is its name with the others in a sentence. Nothing is printed where
    there are no rows.
    """
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(header):
        table.add_column(_text(name), justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    console = _console()
    unbounded = console.options.update(max_width=UNBOUNDED)
    too_wide = max(0, console.measure(table, options=unbounded).maximum - console.width)
    widths: list[int] = []
    for of_column in reversed(list(zip(header, *rows, strict=True))):
        lines = [line for cell in of_column for line in cell.splitlines()]
        widest = max(map(len, lines), default=0)
        words = max((len(word) for line in lines for word in line.split()), default=0)
        widths.insert(0, widest - min(too_wide, widest - words))  # the last columns first
        too_wide -= widest - widths[0]
    while too_wide and max(widths) > MIN_BROKEN_WIDTH:
        widths[widths.index(max(widths))] -= 1
        too_wide -= 1
    if not too_wide:
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        print_block(table)
        return
    for row in rows:
        others = zip(header[1:], row[1:], strict=True)
        shown = ", ".join(f"{name} {' '.join(cell.split())}" for name, cell in others if cell)
        print_text(f"{row[0]}: {shown}")


def _text(text: str, **details: Any) -> Text:
    return Text(harmless(text), **details)


def _width() -> int:
    return terminal_width() or UNBOUNDED


def _console() -> Console:
    # with a height, too: rich takes every terminal that calls itself dumb for 80 columns wide
    return Console(width=_width(), height=25, highlight=False)


def print_block(renderable: RenderableType) -> None:
    """Anything of rich's, its lines without the blanks that fill them up."""
    console = _console()
    with console.capture() as lines:
        console.print(renderable)
    for line in lines.get().splitlines():
        print(line.rstrip())
