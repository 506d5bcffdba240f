"""The index of a page: one line a record, by which a reader filters, sorts and draws."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from claimscore.report.data import TEXT_COLUMNS

JSON = dict[str, Any]

BLOCK_RECORDS = 100

#: A column of texts can be filtered by where it has at most so many different ones.
MAX_LISTED_LEVELS = 50


class Levels:
    """A column of few different texts: each record's as a number, until there are too many."""

    def __init__(self, n_before: int) -> None:
        self.levels: dict[str, int] = {}
        self.codes: list[int | None] | None = [None] * n_before

    def add(self, value: object) -> None:
        if self.codes is None:
            return
        code = None if value is None else self.levels.setdefault(str(value), len(self.levels))
        if len(self.levels) > MAX_LISTED_LEVELS:
            self.codes = None
        else:
            self.codes.append(code)


@dataclasses.dataclass
class RecordList:
    """The index, filled while the details are written.

    `values` are by metric. `heads` are the beginnings of the conversations with the model, each
    once; `claims` says if any record has some.
    """

    metrics: list[str]
    ids: list[str] = dataclasses.field(default_factory=list)
    previews: list[str] = dataclasses.field(default_factory=list)
    values: list[list[float | None]] = dataclasses.field(default_factory=list)
    failures: list[int] = dataclasses.field(default_factory=list)
    heads: list[list[tuple[str, str]]] = dataclasses.field(default_factory=list)
    claims: bool = False

    def __post_init__(self) -> None:
        self.values = [[] for _ in self.metrics]
        self._numbers: dict[str, list[float | None]] = {}
        self._groups: dict[str, Levels] = {}
        self._head_numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def head(self, messages: tuple[tuple[str, str], ...]) -> int:
        """The number of a conversation's beginning."""
        number = self._head_numbers.setdefault(messages, len(self.heads))
        if number == len(self.heads):
            self.heads.append(list(messages))
        return number

    def add_columns(self, records: pl.DataFrame) -> None:
        """The records' own columns: numbers to draw, and texts to group by."""
        n_before = len(self.ids)
        seen = set()
        for name, series in _own_columns(records):
            shown = f"{name} (column)" if name in self.metrics else name
            seen.add(shown)
            if series.dtype.is_numeric():
                known = self._numbers.setdefault(shown, [None] * n_before)
                known += map(_number, series.cast(pl.Float64, strict=False).to_list())
            else:
                levels = self._groups.setdefault(shown, Levels(n_before))
                for value in series.cast(pl.String, strict=False).to_list():
                    levels.add(value)
        for missing in self._numbers.keys() - seen:
            self._numbers[missing] += [None] * records.height
        for missing in self._groups.keys() - seen:
            for _ in range(records.height):
                self._groups[missing].add(None)

    def to_json(self) -> JSON:
        """The index as the page's script reads it."""
        groups = {
            name: {"levels": list(found.levels), "codes": found.codes}
            for name, found in self._groups.items()
            if found.codes is not None and len(found.levels) > 1
        }
        numbers = {
            name: values
            for name, values in self._numbers.items()
            if any(value is not None for value in values)
        }
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "numbers": list(numbers.items()),
            "groups": sorted(groups.items(), key=lambda item: item[0] != "system"),
            "block": BLOCK_RECORDS,
        }


def _own_columns(records: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Columns of numbers and of short texts; the numbers in a struct (`ratings`) by their names."""
    for series in records:
        if series.name in TEXT_COLUMNS:
            continue
        if isinstance(series.dtype, pl.Struct):
            for field in series.struct.fields:
                part = series.struct.field(field)
                if part.dtype.is_numeric():
                    yield f"{series.name}.{field}", part
        elif series.dtype.is_numeric() or isinstance(
            series.dtype, pl.String | pl.Boolean | pl.Categorical | pl.Enum
        ):
            yield series.name, series


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")
