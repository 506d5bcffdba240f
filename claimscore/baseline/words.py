"""Tokens of one sentence, and the closed classes of English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Token(NamedTuple):
    """A word or a mark; `gap` is the space before it, `low` the form that lists know."""

    text: str
    low: str
    gap: str


Tokens = tuple[Token, ...]


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


DETERMINERS = word_set(
    "a an the this that these those my your his her its our their every each some any no "
    "another both all several many few most either neither one two three four five six "
    "seven eight nine ten such"
)
POSSESSIVES = word_set("my your his her its our their")
SUBJECT_PRONOUNS = word_set(
    "i you he she it we they this that these those there everyone everybody everything someone "
    "somebody something anyone anybody anything nobody nothing none one"
)
PLURAL_PRONOUNS = word_set("i you we they these those")
OBJECT_PRONOUNS = word_set("me him her us them it you")
PREPOSITIONS = word_set(
    "about above across after against along among around at before behind below beneath beside "
    "besides between beyond by despite down during except for from in inside into like near of "
    "off on onto opposite out outside over past per round since through throughout till to "
    "toward towards under underneath until up upon via with within without than as"
)
RELATIVES = word_set("which who whom whose that where")
CONDITIONS = word_set("if unless whether")
SUBORDINATORS = word_set(
    "although though while whilst whereas because since as so if unless until when whenever "
    "after before whether that even once"
)
CONJUNCTIONS = word_set("and but or nor yet so plus")
BE = word_set("am is are was were be been being 's 're 'm")
FINITE_BE = word_set("am is are was were 's 're 'm")
HAVE = word_set("have has had 've")
DO = word_set("do does did")
MODALS = word_set("can could will would should may might must shall ca wo sha 'll 'd cannot")
AUXILIARIES = FINITE_BE | HAVE | DO | MODALS
NEGATIONS = word_set(
    "not n't never no nobody nothing none nowhere neither nor hardly barely scarcely"
)
DEGREES = word_set(
    "very really so too quite pretty rather fairly extremely incredibly absolutely totally truly "
    "super more most less least just only even still also always never often usually sometimes "
    "rarely seldom almost nearly highly particularly especially somewhat slightly exceptionally "
    "amazingly surprisingly definitely certainly probably generally overall actually perhaps maybe "
    "simply equally well much far way already now ever rather ultra"
)
# Words in -ly that are no adverbs.
NOT_ADVERBS = word_set(
    "friendly lovely lively elderly early daily ugly homely family only likely lonely costly silly "
    "supply reply fly unfriendly unlikely hilly smelly curly leisurely orderly italy july belly "
    "kid-friendly family-friendly pet-friendly user-friendly eco-friendly unhomely unlovely "
    "dog-friendly customer-friendly jelly assembly weekly monthly yearly oily chilly woolly rely "
    "apply disorderly timely"
)
# Openers that say how sentences hang together; no claim needs them.
OPENERS = (
    "also however overall additionally furthermore moreover besides finally firstly secondly "
    "lastly nevertheless nonetheless similarly likewise therefore thus hence plus and but so "
    "yet then though "
    "in_addition in_general in_conclusion in_short all_in_all on_the_whole on_the_other_hand "
    "not_only_that_but that_said that_being_said as_well having_said_that in_summary "
    "to_sum_up to_conclude "
    "on_the_plus_side in_fact in_particular generally_speaking of_course"
)
_FUNCTION_EXTRA = word_set(
    "also however overall additionally furthermore moreover besides finally firstly secondly "
    "lastly nevertheless nonetheless similarly likewise therefore thus hence then addition general "
    "conclusion short "
    "whole other hand said well having summary sum conclude side fact particular generally "
    "speaking course whilst too not n't both either neither only it itself there here who whom "
    "whose which what how why when where"
)
FUNCTION_WORDS = (
    *DETERMINERS,
    *SUBJECT_PRONOUNS,
    *OBJECT_PRONOUNS,
    *PREPOSITIONS,
    *SUBORDINATORS,
    *CONJUNCTIONS,
    *AUXILIARIES,
    *BE,
    *_FUNCTION_EXTRA,
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
