"""Everything that people see in a terminal.

Progress goes to standard error, results to standard output.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Lines that do nothing to a terminal, wherever they come from: a space for each control."""
    return _CONTROL.sub(" ", text)


def plain(text: str) -> str:
    """The same as one line."""
    return harmless(text).replace("\n", " ")
