"""Names, numbers and polarity of a text changed by rule, in the manner of FactCC.

Kryściński et al. 2020, Evaluating the Factual Consistency of Abstractive Text Summarization: an
entity or a number for another of the document, and negation. FactCC finds entities with a model;
here an entity is a run of capitalised words. What is made may by chance still be true.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

#: A run of capitalised words, particles inside it included: `Bank of England`, `Angela Merkel`.
_CONNECTED = r"(?:\s(?:of|the|de|la|van|von|al|and|&)){0,2}"
_ENTITY = (
    rf"\b(?!(?:{'|'.join(_WORDS['starters'].split())})\b)\p{{Lu}}[\p{{L}}\p{{M}}.'’-]*\p{{L}}"
    rf"(?:{_CONNECTED}\s\p{{Lu}}[\p{{L}}\p{{M}}’-]+)*"
)

#: Words that stand for numbers, and dates: a swap may take any of the kind.
_OTHERS = {kind: tuple(words.split()) for kind, words in _WORDS["numbers"].items()}

#: Kinds of numbers; a number is only swapped for another of its kind. Years come before counts.
_NUMBERS = {
    "year": r"(?<![\d.,:])(?:1[5-9]|20)\d\d(?![\d,:]|\.\d)",
    "number": r"(?<![\d.,:\p{L}])\d+(?:[.,]\d+)*+(?![\d:])",
    **{kind: rf"\b(?:{'|'.join(words)})\b" for kind, words in _OTHERS.items()},
}

_AUXILIARY = rf"\b({'|'.join(_WORDS['auxiliaries'].split())})"
_NEGATED = rf"{_AUXILIARY}(\s+not\b|n['’]t\b)"
_NEGATABLE = rf"{_AUXILIARY}\b(?!\s+not\b|n['’]t\b|\s*[?])"
_SPECIAL_STEMS = {"ca": "can", "wo": "will"}
_CONTRACTED = r"\b(ca|wo)n['’]t\b"


class Edit(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def _edit(match: Any, new: str) -> Edit:
    return Edit(match.start(), match.end(), new)


def entity_edits(summary: str, source: str) -> list[Edit]:
    """Every entity of the summary for every other one of the document."""
    others = dict.fromkeys(match.group() for match in _entities(source))
    return [
        _edit(match, other)
        for match in _entities(summary)
        for other in others
        if not _overlap(match.group(), other)
    ]


def number_edits(summary: str, source: str) -> list[Edit]:
    """Every number, month or weekday for another of its kind: the document's, else any."""
    known: dict[str, list[str]] = {kind: [] for kind in _NUMBERS}
    for kind, match in _numbers(source):
        known[kind].append(match.group())
    return [
        _edit(match, other)
        for kind, match in _numbers(summary)
        for other in dict.fromkeys(known[kind] or _OTHERS.get(kind, ()))
        if other != match.group()
    ]


def _numbers(text: str) -> list[tuple[str, Any]]:
    """Kind and match of each number; one that is a year is no count."""
    numbers: dict[int, tuple[str, Any]] = {}
    for kind, pattern in _NUMBERS.items():
        for match in _compile(pattern).finditer(text):
            numbers.setdefault(match.start(), (kind, match))
    return [numbers[start] for start in sorted(numbers)]


def negation_edits(summary: str, source: str) -> list[Edit]:
    """Every auxiliary verb negated, every negated one affirmed."""
    edits = [_edit(m, f"{m.group()} not") for m in _compile(_NEGATABLE).finditer(summary)]
    edits += [_edit(m, m.group(1)) for m in _compile(_NEGATED).finditer(summary)]
    contracted = _compile(_CONTRACTED).finditer(summary)
    return edits + [_edit(m, _SPECIAL_STEMS[m.group(1)]) for m in contracted]


def _entities(text: str) -> Iterator[Any]:
    """Names: of one word not where a sentence begins; no month or weekday."""
    dates = (*_OTHERS["month"], *_OTHERS["day"])
    for match in _compile(_ENTITY).finditer(text):
        name = match.group()
        one_word = " " not in name
        if name in dates or (one_word and _starts_sentence(text, match)):
            continue
        yield match


def _starts_sentence(text: str, match: Any) -> bool:
    before = text[: match.start()].rstrip(" \t\"'”’“‘()")
    return not before or before[-1] in ".!?:;\n"


def _overlap(first: str, second: str) -> bool:
    """Whether two names share a word: `Merkel` and `Angela Merkel` may be one person."""
    return bool(set(first.lower().split()) & set(second.lower().split()))


@functools.cache
def _compile(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped] # no type hints published

    return regex.compile(pattern)
