"""Sections as HTML tables, plain or as heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claimscore.evaluation.result import Section
from claimscore.report.markup import text

#: Rows of a section with this at the end of their name are not ours.
PUBLISHED = ", published"

LEVELS = 10


def section_html(section: Section, before: str = "") -> str:
    """Title, what comes before the table, the table, and the notes."""
    return (
        f'<div class="result"><h3>{text(section.title)}</h3>{before}'
        f"{table_html(section)}{notes_html(section.notes)}</div>"
    )


def table_html(section: Section, heat: Mapping[tuple[int, int], int] | None = None) -> str:
    """The table; `heat` gives cells (row, column) a level from 0 to `LEVELS`."""
    head = "".join(
        f'<th scope="col"{"" if place == 0 else num}>{text(name)}</th>'
        for num in [' class="num"']
        for place, name in enumerate(section.header)
    )
    rows = "".join(
        f'<tr{_row_class(row)}><th scope="row">{text(row[0])}</th>'
        + "".join(
            _cell(cell, (heat or {}).get((number, place)))
            for place, cell in enumerate(row[1:], start=1)
        )
        + "</tr>"
        for number, row in enumerate(section.rows)
    )
    kind = "plain result-table heat-table" if heat else "plain result-table"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(section.title)}">'
        f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row_class(row: Sequence[str]) -> str:
    return ' class="theirs"' if row[0].endswith(PUBLISHED) else ""


def _cell(cell: str, level: int | None) -> str:
    """A value, and its intervals in small beneath it."""
    value, *intervals = cell.split(" [")
    small = "".join(f'<span class="interval">[{text(found)}</span>' for found in intervals)
    heat = "" if level is None else f" h{level}"
    return f'<td class="num{heat}">{text(value)}{small}</td>'


def notes_html(notes: Sequence[str]) -> str:
    """Notes as sentences, a paragraph each."""
    return "".join(f'<p class="hint">{text(_sentence(note))}.</p>' for note in notes)


def _sentence(note: str) -> str:
    return note if note.startswith("p-value") else note[:1].upper() + note[1:]


def heat_levels(values: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], int]:
    """Each value's level between the smallest and the largest; all in the middle if equal."""
    low, high = min(values.values()), max(values.values())
    if high == low:
        return dict.fromkeys(values, LEVELS // 2)
    return {place: round((value - low) / (high - low) * LEVELS) for place, value in values.items()}


def collapsed(title: str, html: str) -> str:
    return f"<details><summary>{text(title)}</summary>{html}</details>"
