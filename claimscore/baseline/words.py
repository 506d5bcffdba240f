"""Tokens of one sentence, and the closed classes of English."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple


class Token(NamedTuple):
    """A word or a mark; `gap` is the space before it, `low` the form that lists know."""

    text: str
    low: str
    gap: str


Tokens = tuple[Token, ...]


@cache
def read_words(name: str) -> dict[str, Any]:
    """A file of words of this folder."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def word_class(name: str) -> frozenset[str]:
    """The words of a list in `classes.toml`."""
    return word_set(read_words("classes.toml")[name])


def word_map(name: str) -> dict[str, Any]:
    """A table of `classes.toml`: the words that stand for a word."""
    table: dict[str, Any] = read_words("classes.toml")[name]
    return table


DETERMINERS = word_class("determiners")
POSSESSIVES = word_class("possessives")
SUBJECT_PRONOUNS = word_class("subject_pronouns")
PLURAL_PRONOUNS = word_class("plural_pronouns")
OBJECT_PRONOUNS = word_class("object_pronouns")
PREPOSITIONS = word_class("prepositions")
RELATIVES = word_class("relatives")
CONDITIONS = word_class("conditions")
SUBORDINATORS = word_class("subordinators")
CONJUNCTIONS = word_class("conjunctions")
BE = word_class("be")
FINITE_BE = word_class("finite_be")
HAVE = word_class("have")
DO = word_class("do")
MODALS = word_class("modals")
AUXILIARIES = FINITE_BE | HAVE | DO | MODALS
NEGATIONS = word_class("negations")
DEGREES = word_class("degrees")
NOT_ADVERBS = word_class("not_adverbs")
OPENERS = word_class("openers")

FUNCTION_WORDS = (
    *DETERMINERS,
    *SUBJECT_PRONOUNS,
    *OBJECT_PRONOUNS,
    *PREPOSITIONS,
    *SUBORDINATORS,
    *CONJUNCTIONS,
    *AUXILIARIES,
    *BE,
    *word_class("function_words"),
)
_FUNCTION_SET = frozenset(FUNCTION_WORDS)

_WORD = re.compile(
    r"(?P<gap>\s*)(?P<text>"
    r"(?:ca|wo|sha)(?=n['’]t\b)"  # can't, won't, shan't
    r"|n['’]t\b"
    r"|[^\W_]+?(?=n['’]t\b)"  # is|n't
    r"|['’](?:s|re|ve|ll|d|m)\b"
    r"|[$£€]?\d+(?:[.,:/]\d+)*[^\W_]*%?(?:-[^\W_]+)*"
    r"|[^\W_](?:\.[^\W_])+\.?"  # U.S., e.g.
    r"|[^\W_]+(?:[-‐‑][^\W_]+)*"
    r"|\.{2,}|[^\w\s]|_)",
    re.IGNORECASE,
)
_CURLY = str.maketrans("’‐‑", "'--")


def tokenise(text: str) -> Tokens:
    """All of the text but the space at its end: joined again, tokens give it back."""
    return tuple(
        Token(match["text"], match["text"].lower().translate(_CURLY), match["gap"])
        for match in _WORD.finditer(text)
    )


def make(text: str) -> Tokens:
    """Tokens of a text that is to follow others."""
    return tuple(_spaced(token) if i == 0 else token for i, token in enumerate(tokenise(text)))


def _spaced(token: Token) -> Token:
    return token._replace(gap=token.gap or " ")


def join(*parts: Sequence[Token]) -> Tokens:
    """Parts one behind the other, with a space between them."""
    joined: list[Token] = []
    for part in parts:
        glued = bool(part) and (part[0].low in CLITICS or part[0].low in _CLOSING_MARKS)
        if joined and part and not glued:
            joined.append(_spaced(part[0]))
            joined.extend(part[1:])
        else:
            joined.extend(part)
    return tuple(joined)


_CLOSING_MARKS = frozenset(",.;:!?)]}…”»")
CLITICS = word_set("n't 's 're 've 'll 'd 'm")


def render(tokens: Sequence[Token]) -> str:
    return "".join(token.gap + token.text for token in tokens).strip()


def lower(tokens: Iterable[Token]) -> list[str]:
    return [token.low for token in tokens]


def is_word(token: Token) -> bool:
    return token.low[-1].isalnum() or token.low[0].isalnum()


def is_content(token: Token) -> bool:
    """Whether a claim must keep the word: everything but the closed classes and marks."""
    return is_word(token) and token.low not in _FUNCTION_SET


def is_adverb(low: str) -> bool:
    return low in DEGREES or (low.endswith("ly") and len(low) > 4 and low not in NOT_ADVERBS)


def capitalised(text: str) -> str:
    """The first letter as a capital, the rest as it is."""
    for i, char in enumerate(text):
        if char.isalpha():
            upper = char.upper()
            same = upper.lower() == char.lower()  # not "ß" or the micro sign
            return text[:i] + (upper if same else char) + text[i + 1 :]
        if char.isdigit():
            return text
    return text


def word_count(tokens: Iterable[Token]) -> int:
    return sum(map(is_word, tokens))
