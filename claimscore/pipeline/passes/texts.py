"""Pairs of whole texts of two sides, of which each may have several texts a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import SIDE_COLUMNS


class TextPair(NamedTuple):
    """Two texts of one record; an index is the text's place on a side that may have several."""

    id: str
    first: str
    second: str
    first_index: int | None
    second_index: int | None


class _Placed(NamedTuple):
    place: int | None
    text: str


def text_pairs(records: pl.DataFrame, *, first: str, second: str) -> list[TextPair]:
    """Every text of one side with every text of the other, record by record; none is blank."""
    firsts, seconds = texts_of(records, first), texts_of(records, second)
    return [
        TextPair(record, one.text, other.text, one.place, other.place)
        for record in records["id"]
        for one in firsts.get(record, ())
        for other in seconds.get(record, ())
    ]


def texts_of(records: pl.DataFrame, side: str) -> dict[str, list[_Placed]]:
    """The texts of a side that are not blank, by record; places count the blank ones too."""
    all_texts: dict[str, list[str]] = {}
    for item in side_texts(records, (side,)):
        all_texts.setdefault(item.id, []).append(item.text)
    single = side in SIDE_COLUMNS
    return {
        record: [
            _Placed(None if single else index, text)
            for index, text in enumerate(texts)
            if text.strip()
        ]
        for record, texts in all_texts.items()
    }


def failed_side(sides: Sequence[str]) -> str | None:
    """The side that a failure is told of, so that it concerns the metrics of that side alone.

    That is the one which may have several texts. None where there is none: a failure between two
    single texts concerns every metric that needs the pass.
    """
    return next((side for side in reversed(sides) if side not in SIDE_COLUMNS), None)
