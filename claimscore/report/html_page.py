"""HTML pages: one file each, from a Jinja2 template, with its style, its script and its data.

Every value that a template prints is escaped; control characters become U+FFFD. The policy of a
page allows nothing to be loaded, and only the scripts and styles that it names by their hashes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from claimscore.atomic import atomic_path
from claimscore.console import many
from claimscore.stats.bootstrap import interval_text

_ASSETS = Path(__file__).parent / "assets"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_HYPHEN = re.compile(r"(?<![\w.])-(?=\.?\d)")

#: The chart library, by the id of its block, in the order in which the files run.
LIBRARY = {"cs-d3": "vendor/d3.min.js", "cs-plot": "vendor/plot.umd.min.js"}

#: The style that Observable Plot 0.6.17 puts into each chart of the class `plot`.
PLOT_STYLE = """:where(.plot) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.plot text),
:where(.plot tspan) {
  white-space: pre;
}"""

#: A chart draws so many values; the table has all.
MAX_MARKS = 80

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def module_script(name: str, seen: set[str] | None = None) -> str:
    """An ES module and all that it imports as one script: each module once, after its own imports.

    The modules share one scope there, so no two of them may declare the same name.
    """
    seen = set() if seen is None else seen
    if name in seen:
        return ""
    seen.add(name)
    code = asset(name)
    imported = "".join(module_script(other, seen) for other in _IMPORT.findall(code))
    return imported + _EXPORT.sub("", _IMPORT.sub("", code))


def content_policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """The page's Content-Security-Policy; only the one Trusted Types policy may make scripts."""
    return (
        f"default-src 'none'; style-src {_hashes(styles)}; script-src {_hashes(scripts)}; "
        "img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types claimscore"
    )


def _hashes(texts: Iterable[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def packed(text: str) -> Markup:
    """A text compressed, in letters and digits: base64 of zlib. Lone surrogates are escaped."""
    compressed = zlib.compress(text.encode("utf-8", "backslashreplace"))
    return Markup(base64.b64encode(compressed).decode())


def packed_json(value: object) -> Markup:
    """A JSON value, compressed."""
    return packed(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def decimal(value: float | None, spec: str = ",.2f") -> str:
    """A number with a true minus sign; a dash for None."""
    return "–" if value is None else format(value, spec).replace("-", "−")


def minus(text: str) -> str:
    """A number or an interval as text, with true minus signs; a lone hyphen becomes a dash."""
    return "–" if text == "-" else _HYPHEN.sub("−", text)


def interval_figure(
    place: str,
    title: str,
    marks: Sequence[tuple[str, float | None, float | None, float | None, str]],
    line: float | None = None,
) -> dict[str, Any]:
    """A chart for the page's script: a line a value, with its interval.

    A mark is label, value, low, high and the value as text. The axis holds all of them and `line`,
    the value to compare with.
    """
    drawn = marks[:MAX_MARKS]
    ends = [end for _, *of_mark, _ in drawn for end in of_mark if isinstance(end, float | int)]
    ends += [] if line is None else [line]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    left_out = f"The first {len(drawn)} of {len(marks)}; all are in the table."
    return {
        "kind": "intervals",
        "place": place,
        "title": title,
        "name": title,
        "description": "; ".join(f"{label} {minus(text)}" for label, *_, text in drawn),
        "hint": left_out if len(marks) > len(drawn) else "",
        "marks": [
            {"label": label, "value": value, "low": low, "high": high, "text": minus(text)}
            for label, value, low, high, text in drawn
        ],
        "domain": (low, high),
        "line": line,
    }


def _printable(value: object) -> object:
    """What Jinja2 is to escape and print: control characters are made visible."""
    return value if isinstance(value, Markup) else _CONTROL.sub("\ufffd", str(value))


def whole_options(text: str) -> Markup:
    """A text in which no line ends within an option as `--llm`."""
    safe = str(escape(_printable(text)))
    return Markup(re.sub(r"--\w[\w-]*", r'<span class="option">\g<0></span>', safe))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters.update(
        count=many,
        decimal=decimal,
        interval=interval_text,
        minus=minus,
        packed_json=packed_json,
        whole_options=whole_options,
    )
    return environment


@functools.cache
def _library() -> dict[str, Markup]:
    return {name: packed(asset(file)) for name, file in LIBRARY.items()}


def write_page(
    path: Path,
    template: str,
    script: str,
    styles: Sequence[str],
    values: dict[str, Any],
    *,
    charts: bool = True,
) -> None:
    """Write a page by rename, when it is complete. The same values give the same bytes.

    `script` and `styles` are files of `assets/`. What the template prints is written piece by
    piece, so an iterator among `values` is never held as a whole. A lone surrogate (a file name
    that is no UTF-8) is written as its escape. Without `charts` the chart library is left out.
    """
    code = module_script(script)
    style = "\n" + "".join(map(asset, styles))
    libraries = map(asset, LIBRARY.values() if charts else ())
    frame = {
        "policy": content_policy((code, *libraries), (style, PLOT_STYLE)),
        "script": Markup(code),
        "style": Markup(style),
        "library": _library() if charts else {},
    }
    pieces = _environment().get_template(template).generate(values | frame)
    with (
        atomic_path(path) as unfinished,
        unfinished.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.writelines(pieces)
