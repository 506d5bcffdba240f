"""Columns: what the known ones must hold, and which type the others turn out to have."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import polars as pl

from claimscore.errors import InputError
from claimscore.records.readers import Record, decode_json

Parser = Callable[[Any], Any]

#: The most columns of an input.
MAX_COLUMNS = 10_000

TEXT_COLUMNS = ("summary_a", "summary_b", "summary_common", "summary")
LIST_COLUMNS = ("sources", "references")

#: A metric that needs one of these is served by either.
ALTERNATIVES = {"source": ("source", "sources"), "sources": ("sources", "source")}

#: Names that published data sets and common tools give a column, the likelier ones first.
_ALIASES = {
    "source": "article document dialogue doc text content body passage context transcript post "
    "input",
    "summary": "highlights abstract summ headline claim decoded prediction hypothesis output "
    "response generated_summary model_summary system_summary",
    "references": "reference reference_summary reference_summaries human_summaries target targets "
    "gold gold_summary ground_truth",
    "summary_a": "a summary1 summary_1 text_a first",
    "summary_b": "b summary2 summary_2 text_b second",
}

#: Sorted keys and full Unicode: the one form of a value for digests and kept JSON text.
CANONICAL = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str
).encode

_I64 = 2**63
_EXACT_FLOAT = 2**53


class ColumnError(ValueError):
    """A value that its column cannot hold; the caller knows file and line."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def check_room(known: Collection[str], where: str) -> None:
    """`InputError` where no column may come to the `known` ones; `where` is the record's place."""
    if len(known) >= MAX_COLUMNS:
        raise InputError(
            f"{where}: more than {MAX_COLUMNS} different columns; put varying names into one object"
        )


def likely_columns(names: Iterable[str]) -> dict[str, str]:
    """Which of these columns may be a known one under another name: `{"source": "article"}`.

    A slip such as `Summary_B` counts, and the names of published data sets (CNN/DailyMail, XSum,
    SAMSum, SummEval and others). No column is given twice.
    """
    given = list(names)
    free = {name.lower(): name for name in reversed(given) if name not in KNOWN_COLUMNS}
    likely: dict[str, str] = {}
    for column in ("summary_a", "summary_b", "summary_common", "summary", *_ALIASES, "sources"):
        if column in given or column in likely:
            continue
        alias = next((name for name in _ALIASES.get(column, "").split() if name in free), None)
        close = alias or next(iter(difflib.get_close_matches(column, free, n=1, cutoff=0.75)), None)
        if close is not None:
            likely[column] = free.pop(close)
    if "summary_a" in given and "summary" not in given:  # of two systems, the first one
        likely.setdefault("summary", "summary_a")
    return likely


def kind(value: object) -> str:
    """A value's JSON kind, for messages."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "null")


# The known columns


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"must be text, not {kind(value)}")
    return value


def identifier(value: Any) -> str:
    """An id as text: also of a whole number that pandas made a float. `ValueError` of another."""
    if type(value) is int or (type(value) is float and value.is_integer()):
        return str(int(value))
    if type(value) is not str:
        raise ValueError(f"must be text or an integer, not {kind(value)}")
    if not value:
        raise ValueError("is empty; give every record an id, or leave the column out")
    return value


def _system(value: Any) -> str:
    return str(value) if type(value) is int else _text(value)


def _texts(value: Any) -> list[str]:
    if type(value) is str:
        return [value]
    if type(value) is not list:
        raise ValueError(f"must be a text or a list of texts, not {kind(value)}")
    for position, item in enumerate(value, start=1):
        if type(item) is not str:
            raise ValueError(f"must be a list of texts, but item {position} is {kind(item)}")
    return value


def _text_or_texts(value: Any) -> str | list[str]:
    if type(value) is list:
        return _texts(value)
    if type(value) is not str:
        raise ValueError(f"must be text or a list of texts, not {kind(value)}")
    return value


def _ratings(value: Any) -> dict[str, float | None]:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object of numbers, not {kind(value)}")
    ratings: dict[str, float | None] = {}
    for name, rating in value.items():
        if rating is not None and type(rating) not in (int, float):
            raise ValueError(f"must be an object of numbers, but {name} is {kind(rating)}")
        try:
            ratings[name] = None if rating is None else float(rating)
        except OverflowError:
            raise ValueError(f"holds a number that is too large: {name}") from None
    return ratings


_JSON_PARSERS: dict[str, Parser] = {
    "id": identifier,
    **dict.fromkeys(TEXT_COLUMNS, _text),
    "source": _text_or_texts,
    **dict.fromkeys(LIST_COLUMNS, _texts),
    "system": _system,
    "ratings": _ratings,
}

KNOWN_COLUMNS = frozenset(_JSON_PARSERS)


def _json_cell(parser: Parser) -> Parser:
    def parse(cell: str) -> Any:
        if parser is _texts and cell.strip() != "null" and not cell.lstrip().startswith("["):
            return [cell]
        try:
            value = decode_json(cell)
        except ValueError as exc:
            raise ValueError(f"must be JSON in a CSV file: {exc}") from None
        return None if value is None else parser(value)

    return parse


_CELL_PARSERS: dict[str, Parser] = {
    **_JSON_PARSERS,
    "source": _text,
    **{name: _json_cell(_JSON_PARSERS[name]) for name in (*LIST_COLUMNS, "ratings")},
}

#: An empty CSV cell and null are no text in these columns; elsewhere both are null.
_OF_TEXTS = frozenset(("source", *TEXT_COLUMNS, *LIST_COLUMNS))

#: What programs write in the place of a missing value.
_NULL_WORDS = {"nan", "null", "none", "n/a", "na", "<na>", "#n/a"}


def is_null_word(column: str, value: Any) -> bool:
    """Whether a value of a column of texts is such a word alone."""
    is_short = column in _OF_TEXTS and type(value) is str and len(value) < 10
    return is_short and value.strip().lower() in _NULL_WORDS


def parse_record(record: Record, *, cells: bool) -> Record:
    """The record's values, known columns checked and in their type; nulls are left out, but those
    of texts, which are no text, as are words such as NULL in their place.

    `cells`: the values are CSV cells, all text.
    """
    parsers = _CELL_PARSERS if cells else _JSON_PARSERS
    parsed = {}
    for name, value in record.items():
        if value is None or is_null_word(name, value) or (cells and not value and name != "id"):
            if name in _OF_TEXTS and not (name == "source" and record.get("sources")):
                parsed[name] = [] if name in LIST_COLUMNS else ""
            continue
        parser = parsers.get(name)
        if parser is not None:
            try:
                value = parser(value)
            except ValueError as exc:
                raise ColumnError(name, str(exc)) from None
            if value is None:
                continue
        parsed[name] = value
    return parsed


# The types of the other columns


class Column(NamedTuple):
    """A column of the chunks: its type, and how a parsed value becomes one of that type."""

    name: str
    dtype: pl.DataType
    convert: Callable[[Any], Any] | None = None

    def series(self, values: Iterable[Any]) -> pl.Series:
        convert = self.convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pl.Series(self.name, values, dtype=self.dtype, strict=True)


_INTEGER_CELL = re.compile(r"0|-?[1-9][0-9]{0,17}")
_FLOAT_CELL = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEAN_CELLS = {"true": True, "True": True, "false": False, "False": False}


def _cell_kind(cell: str) -> type:
    """The type that a CSV cell looks like; `007` and `1e9999` are text, so that nothing is lost."""
    if cell[0] not in "-0123456789tTfF":
        return str
    if _INTEGER_CELL.fullmatch(cell):
        return int
    if _FLOAT_CELL.fullmatch(cell):
        return float
    return bool if cell in _BOOLEAN_CELLS else str


class ValueKinds:
    """Sees the values of a column one by one and then knows a type that holds all of them.

    With `cells` they are CSV cells: of text, of which an empty one says nothing.
    """

    __slots__ = ("_cells", "kinds")

    def __init__(self, *, cells: bool) -> None:
        self._cells = cells
        self.kinds: set[object] = set()

    def see(self, value: Any) -> None:
        """Take note of one value."""
        kinds, kind = self.kinds, type(value)
        if self._cells:
            if not value or str in kinds:
                return
            kind = _cell_kind(value)
            if kind is int:
                value = int(value)
        kinds.add(kind)
        if kind is int and not -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
            kinds.add("wide" if -_I64 <= value < _I64 else "huge")

    def column(self, name: str) -> Column:
        """The column of these values; what has no common type is kept as text."""
        kinds = self.kinds
        if not kinds:
            return Column(name, pl.String())
        if kinds <= {int, "wide"}:
            return Column(name, pl.Int64(), int if self._cells else None)
        if kinds <= {int, float}:
            return Column(name, pl.Float64(), float)
        if kinds == {bool}:
            return Column(name, pl.Boolean(), _BOOLEAN_CELLS.get if self._cells else None)
        return Column(name, pl.String(), None if self._cells or kinds == {str} else CANONICAL)


class TypeFinder:
    """Sees every record once and then knows a type for every column."""

    def __init__(self, *, cells: bool) -> None:
        self._cells = cells
        self._seen: dict[str, ValueKinds] = {}
        self._ratings: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """All columns seen, in order of first sight."""
        return list(self._seen)

    def new_names(self, record: Record) -> Iterable[str]:
        """Columns that no record before had."""
        known = self._seen
        return () if record.keys() <= known.keys() else [n for n in record if n not in known]

    def add_name(self, name: str) -> None:
        self._seen[name] = ValueKinds(cells=self._cells and name not in _CELL_PARSERS)

    def see(self, parsed: Record) -> None:
        """Take note of one parsed record; its names were added before."""
        for name, value in parsed.items():
            self._seen[name].see(value)
        if "ratings" in parsed:
            self._ratings.update(dict.fromkeys(parsed["ratings"]))

    def columns(self) -> list[Column]:
        """id first, then the order of the input."""
        others = [self._column(name) for name in self._seen if name != "id"]
        return [Column("id", pl.String()), *others]

    def _column(self, name: str) -> Column:
        if name in LIST_COLUMNS or (name == "source" and list in self._seen[name].kinds):
            return Column(name, pl.List(pl.String()), _as_list)
        if name == "ratings" and self._ratings:
            return _ratings_column(name, list(self._ratings))
        if name in _JSON_PARSERS:
            return Column(name, pl.String(), CANONICAL if name == "ratings" else None)
        return self._seen[name].column(name)


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if type(value) is str else list(value)


def _ratings_column(name: str, fields: list[str]) -> Column:
    def fill(ratings: Mapping[str, float | None]) -> dict[str, float | None]:
        return {field: ratings.get(field) for field in fields}

    return Column(name, pl.Struct({field: pl.Float64() for field in fields}), fill)


def in_first_half(value: str, seed: int) -> bool:
    """Whether the rows of this value are in the first half: one bit of a hash of value and seed.

    It depends neither on the order of the rows nor on which others there are, so that training
    and evaluation agree on it. The halves are therefore only about equally large.
    """
    digest = hashlib.sha256(f"{seed}\n{value}".encode("utf-8", "surrogatepass")).digest()
    return digest[0] < 128
