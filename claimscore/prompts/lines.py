"""Where a key stands in a TOML file, for messages to people. `tomllib` does not say."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w\-.]+|\"[^\"]*\"|'[^']*')\s*=")
_QUOTES = ('"""', "'''")


def line_of(text: str, *path: str) -> int | None:
    """The line, from 1, of a key such as `settings`, `max_tokens`, or of a table's header.

    The first of several; None where it is written in a way that is not looked for (inline tables).
    """
    table: tuple[str, ...] = ()
    inside = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if inside:
            inside = "" if inside in line else inside
            continue
        header = _HEADER.match(line)
        if header:
            table = _names(header[1])
            if table == path:
                return number
            continue
        key = _KEY.match(line)
        if key:
            if (*table, *_names(key[1])) == path:
                return number
            inside = _opened(line[key.end() :])
    return None


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _opened(value: str) -> str:
    """The quotes of a text that goes on in the next line; empty where none does."""
    value = value.lstrip()
    return next((q for q in _QUOTES if value.startswith(q) and q not in value[3:]), "")
