"""How text and scripts get into a page: the only gates through which data becomes HTML."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Sequence
from importlib import resources

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_JSON_ESCAPES = (
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)


def text(value: object) -> str:
    """Any value as text in HTML, in an element or a quoted attribute."""
    return html.escape(_CONTROL.sub("\ufffd", str(value)), quote=True)


def json_block(value: object) -> str:
    """JSON that can stand in a script element: nothing in it can end the element."""
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escape in _JSON_ESCAPES:  # five passes, a tenth of the time of translate()
        dumped = dumped.replace(character, escape)
    return dumped


def packed(text: str) -> str:
    """A text compressed, in letters and digits: what a page keeps until it is needed.

    Base64 of zlib; the same text gives the same letters with the same zlib. A lone surrogate
    becomes its escape.
    """
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"))).decode()


def packed_json(value: object) -> str:
    """A JSON value, compressed."""
    return packed(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def asset(name: str) -> str:
    """A file of `assets/`, or one that lies beside this one."""
    folder = resources.files("claimscore.report")
    inside = folder / "assets" / name
    return (inside if inside.is_file() else folder / name).read_text(encoding="utf-8")


def script(*names: str) -> str:
    """Script files as one script, whose names nothing outside it sees."""
    return '"use strict";\n(() => {\n' + "".join(map(asset, names)) + "})();\n"


def policy(*scripts: str, styles: Sequence[str] = ()) -> str:
    """Nothing may be loaded, and of all scripts only these may run: they are named by hashes.

    With `styles` the same holds for style elements, pictures may be drawn from the page's own
    data, and no text may become markup or script except through one policy of the script's.
    """
    named = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    if not styles:
        return (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src {named}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )
    allowed = " ".join(f"'sha256-{_digest(style)}'" for style in styles)
    return (
        f"default-src 'none'; style-src {allowed}; script-src {named}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        "trusted-types claimscore"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def count(n: int, noun: str) -> str:
    """`1 record`, `1,400 records`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
