"""The page of an evaluation: what all of them have in common.

As in the report of a run, every text goes through `text()` into HTML, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from claimscore import __version__
from claimscore.atomic import atomic_path
from claimscore.report.evaluation.sources import Source
from claimscore.report.markup import asset, policy, script, text

SCRIPTS = ("page.js",)

#: What settings say nothing about the numbers: names that a signature leaves out.
_NO_SETTINGS = frozenset(
    ("tables", "table", "scores", "ratings", "ratings_file", "out", "run", "encoders")
)


class Part(NamedTuple):
    """A section of the page: `html` is markup, made of `text()` and tags of ours."""

    name: str
    title: str
    html: str


@dataclasses.dataclass(frozen=True)
class EvaluationPage:
    """The frame around the parts. `command` is as it was typed; `signature` of the evaluation."""

    title: str
    lede: Sequence[str]
    command: str
    signature: str
    sources: Sequence[Source]
    parts: Sequence[Part]
    signatures: Sequence[tuple[str, str]] = ()


def settings_signature(name: str, settings: Mapping[str, object]) -> str:
    """All settings that change an evaluation's numbers, in one line."""
    chosen = [
        f"{key}:{_shown(value)}" for key, value in settings.items() if key not in _NO_SETTINGS
    ]
    return "|".join([name, *chosen, f"claimscore:{__version__}"])


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def write_page(page: EvaluationPage, path: Path) -> None:
    """Write the page; the same page gives the same bytes, by rename when it is complete."""
    code = script(*SCRIPTS)
    generator = text(f"claimscore {__version__}")
    html = Template(asset("evaluation.html")).substitute(
        csp=text(policy(code)),
        generator=generator,
        title=text(page.title),
        css=asset("report.css") + asset("evaluation.css"),
        lede=" · ".join(map(text, page.lede)),
        sources=_sources(page.sources),
        nav="\n".join(f'<a href="#{part.name}">{text(part.title)}</a>' for part in page.parts),
        first=page.parts[0].name,
        parts="\n".join(map(_part, page.parts)),
        copies=_copies(page),
        js=code,
    )
    # A lone surrogate (a file name that is no UTF-8) is written as its escape.
    with (
        atomic_path(path) as unfinished,
        unfinished.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.write(html)


def _part(part: Part) -> str:
    return (
        f'<section id="{part.name}" aria-labelledby="{part.name}-title" tabindex="-1">\n'
        f'<h2 id="{part.name}-title">{text(part.title)}</h2>\n{part.html}\n</section>'
    )


def _sources(sources: Sequence[Source]) -> str:
    items = "".join(
        f'<div><dt>{text(source.what)}</dt><dd dir="auto">{_linked(source)}</dd></div>'
        for source in sources
    )
    return f'<dl class="facts">{items}</dl>'


def _linked(source: Source) -> str:
    name = text(source.name)
    if source.href is None:
        return name + (" (no report yet)" if source.is_run else "")
    return f'{name} (<a href="{text(source.href)}">its report</a>)'


def _copies(page: EvaluationPage) -> str:
    """The command, the evaluation's settings and the signatures of what was evaluated."""
    first = _copyable([("Command", page.command), ("Settings", page.signature)])
    if not page.signatures:
        return first
    many = _copyable(page.signatures)
    if len(page.signatures) > 12:
        many = (
            f"<details><summary>The signatures of all {len(page.signatures)} scores</summary>"
            f"{many}</details>"
        )
    return (
        f'{first}<h3>Signatures of the scores</h3><p class="hint">Everything that changes a '
        f"value, to stand beside it in a paper.</p>{many}"
    )


def _copyable(items: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f'<div><dt>{text(name)}</dt><dd><code class="copyable">{text(value)}</code></dd></div>'
        for name, value in items
    )
    return f'<dl class="signatures">{rows}</dl>'
