"""Which type the values of a JSON column have in common. Pure."""

from __future__ import annotations

from typing import Any

import polars as pl

#: An object with more names than this is a dictionary of the user's, not a record.
MAX_FIELDS = 200

_I64 = 2**63
_EXACT_FLOAT = 2**53

_SCALARS: dict[frozenset[str], pl.DataType] = {
    frozenset(): pl.String(),
    frozenset({"str"}): pl.String(),
    frozenset({"bool"}): pl.Boolean(),
    frozenset({"int"}): pl.Int64(),
    frozenset({"wide"}): pl.Int64(),
    frozenset({"int", "wide"}): pl.Int64(),
    frozenset({"int", "float"}): pl.Float64(),
    frozenset({"float"}): pl.Float64(),
}


class Shape:
    """Sees values one by one and then knows a type that holds all of them exactly.

    Integers that a float cannot hold go with no float; nulls go with everything; objects
    get the names of all of them. Half of a surrogate pair, which is not text, raises
    `UnicodeEncodeError`.
    """

    __slots__ = ("_fields", "_item", "_kinds")

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._item: Shape | None = None
        self._fields: dict[str, Shape] = {}

    def see(self, value: Any) -> None:
        """Take note of one value of `json.loads`."""
        kind = type(value).__name__
        if kind == "str":
            if not value.isascii():
                value.encode()
        elif kind == "int":
            if not -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
                kind = "wide" if -_I64 <= value < _I64 else "huge"
        elif kind == "list":
            self._item = self._item or Shape()
            for item in value:
                self._item.see(item)
        elif kind == "dict":
            for name, item in value.items():
                self._field(name).see(item)
        elif kind == "NoneType":
            return
        self._kinds.add(kind)

    def _field(self, name: str) -> Shape:
        found = self._fields.get(name)
        if found is None:
            name.encode()
            found = Shape()
            if len(self._fields) <= MAX_FIELDS:
                self._fields[name] = found
        return found

    def dtype(self) -> pl.DataType | None:
        """The common type; None where there is none and JSON text must do."""
        if self._kinds == {"list"} and self._item is not None:
            inner = self._item.dtype()
            return None if inner is None else pl.List(inner)
        if self._kinds == {"dict"}:
            return self._struct()
        return _SCALARS.get(frozenset(self._kinds))

    def _struct(self) -> pl.DataType | None:
        if not 0 < len(self._fields) <= MAX_FIELDS:
            return None
        fields = {name: shape.dtype() for name, shape in self._fields.items()}
        found = {name: dtype for name, dtype in fields.items() if dtype is not None}
        return pl.Struct(found) if len(found) == len(fields) else None
