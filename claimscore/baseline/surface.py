"""From the words of a claim to its text, and the signs that words are missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from claimscore.baseline.tree import FINITE, Tree, irregular_past, words_of

#: Indices of words of the sentence, and words that are put in.
Items = tuple[int | str, ...]

_VOWEL = re.compile(
    r"(?i)(?:(?-i:[FHLMNRSX][B-DF-HJ-NP-TV-XZ][A-Z]*\b)|[aeio]|un[^i]|u(?!ru)[^nst]|hono|hour|8|11\b|18\b)"
)
_OPENING = re.compile(r"(?:(?<=\s)|^)['‘](?=\w)")
_CLOSED = re.compile(r"(?<=\S)['’](?!\w)")
_OPEN_ENDS = ("IN", "DT", "TO", "PRP$", "CC", "MD", "POS")
_POINTING = ("this", "that", "these", "those")
_CLOSING = ",.;:!?)'’”%"


class Draft(NamedTuple):
    """A claim before it is text, and the words of the sentence that it says."""

    items: Items
    covers: frozenset[int]


class Unsure(Exception):
    """What a sentence says cannot be said in parts with certainty."""


def article(word: str) -> str:
    return "an" if _VOWEL.match(word) else "a"


def be(is_past: bool, is_plural: bool) -> str:
    if is_past:
        return "were" if is_plural else "was"
    return "are" if is_plural else "is"


def past_of(participle: str) -> str:
    """The past tense of a verb, from its form in -ing."""
    if participle in irregular_past():
        return irregular_past()[participle]
    stem = participle.removesuffix("ing")
    if stem.endswith("e"):
        return stem + "d"
    if stem.endswith("y") and stem[-2:-1] not in tuple("aeiou"):
        return stem[:-1] + "ied"
    return stem + "ed"


def text_of(tree: Tree, items: Sequence[int | str], titles: set[int]) -> str:
    """A claim as a sentence. `titles` are words that may be missing before a name.

    `Unsure` where the words do not stand together: half a name or quotation, a noun beside a noun
    that stood elsewhere, a first word that is a verb, a last one that is a preposition.
    """
    ordered = _within_ends(tree, _with_quotes(tree, items))
    kept: list[int | str] = []
    for k, item in enumerate(ordered):
        if not _is_loose_mark(tree, ordered, k, kept):
            kept.append(item)
    ordered = kept
    if not ordered:
        raise Unsure
    _check(tree, ordered, titles)
    text = ""
    for k, item in enumerate(ordered):
        following = ordered[k + 1] if k + 1 < len(ordered) else None
        if isinstance(item, str):
            text += f"{item} "
            continue
        word = tree.words[item]
        if k and item == 0 and not tree.is_name(0) and word != "I":
            word = word[0].lower() + word[1:]
        text += word
        if following == item + 1:
            text += " " * tree.spaces[item]
        elif following != "'s" and not _closes(tree, following):
            text += " "
    text = re.sub(r"\s+([,.;:])(?!\w)", r"\1", " ".join(text.split()))
    text = re.sub(r",\s*,", ",", re.sub(r"([,;:]\s*)+$", "", text))
    if (
        re.search('["”] ["“]', text)
        or text.count('"') % 2
        or any(text.count(a) != text.count(b) for a, b in ("“”", "()"))
        or len(_OPENING.findall(text)) > len(_CLOSED.findall(text))
    ):
        raise Unsure
    text = text[0].upper() + text[1:]
    return text if re.search(r"[.!?][\"”’]?$", text) else text + "."


def _closes(tree: Tree, item: int | str | None) -> bool:
    """Whether an item is a mark that follows a word without a space."""
    if not isinstance(item, int) or item in (opening for opening, _ in tree.quotes):
        return False
    return tree.words[item] in _CLOSING


def _with_quotes(tree: Tree, items: Sequence[int | str]) -> list[int | str]:
    """The items with the quotation marks of what is quoted whole."""
    ordered = list(items)
    for opening, closing in tree.quotes:
        inside = [n for n in range(opening + 1, closing) if tree.labels[n] != "punct"]
        here = sum(n in ordered for n in inside)
        if not here:
            continue
        if here < len(inside):
            raise Unsure
        places = [k for k, x in enumerate(ordered) if isinstance(x, int) and opening < x < closing]
        inner = ordered[places[0] : places[-1] + 1]
        ordered[places[0] : places[-1] + 1] = [opening, *inner, closing]
    return ordered


def _within_ends(tree: Tree, items: list[int | str]) -> list[int | str]:
    def is_edge(item: int | str, kept: str, labels: tuple[str, ...]) -> bool:
        return (
            isinstance(item, int) and tree.labels[item] in labels and tree.words[item] not in kept
        )

    start, end = 0, len(items)
    while start < end and is_edge(items[start], "\"“'‘$£#", ("punct",)):
        start += 1
    while end > start and is_edge(items[end - 1], "\"”'’%)", ("punct", "cc")):
        end -= 1
    return items[start:end]


def _is_loose_mark(tree: Tree, items: list[int | str], k: int, kept: list[int | str]) -> bool:
    """Whether a comma, semicolon or dash has lost what stood beside it."""
    item = items[k]
    if not isinstance(item, int) or tree.words[item] not in ",;–—":
        return False
    before = next(
        (x for x in reversed(items[:k]) if isinstance(x, str) or tree.words[x] not in ",;"), None
    )
    after = items[k + 1] if k + 1 < len(items) else None
    verb = isinstance(after, int) and tree.tags[after] in FINITE
    if verb and before in tree.quote_marks:
        return False
    if verb and not any(isinstance(x, int) and tree.words[x] == "," for x in kept):
        return True
    if not isinstance(before, int) or after != item + 1 or before > item:
        return True
    return any(tree.words[n] in ",;()" for n in range(before + 1, item))


def _check(tree: Tree, items: list[int | str], titles: set[int]) -> None:
    words = [x for x in items if isinstance(x, int) and tree.labels[x] != "punct"]
    if not words or ";" in (tree.words[x] for x in items if isinstance(x, int)):
        raise Unsure
    if isinstance(items[0], int) and tree.tags[words[0]] in (*FINITE, "CC"):
        raise Unsure
    if tree.tags[words[0]] == "WRB" and words[0] and tree.labels[tree.heads[words[0]]] != "advcl":
        raise Unsure
    is_open = tree.tags[words[-1]] in _OPEN_ENDS and tree.lower[words[-1]] not in _POINTING
    if isinstance(items[-1], int) and is_open:
        rest = tree.labels[words[-1] + 1 :]
        if set(rest) - {"punct"} or tree.labels[tree.heads[words[-1]]] == "ROOT":
            raise Unsure  # unlike "restaurants to choose from" at the end of its sentence
    compares = any(tree.tags[x][0] == "W" or tree.lower[x] in ("as", "than") for x in words)
    if tree.tags[words[-1]] in FINITE and tree.lower[words[-1]] in words_of("be") and not compares:
        raise Unsure
    if tree.lower[words[0]] in ("him", "them", "me", "us") or tree.tags[words[-1]] == "PRP$":
        raise Unsure
    if any(tree.tags[x] in ("WDT", "WP", "WP$") for x in words[:3]) and len(items) > 1:
        raise Unsure
    if any(tree.words[x] == ":" and x - 1 not in items for x in items if isinstance(x, int)):
        raise Unsure
    for before, word in pairwise(words):
        if tree.lower[word] == "including" and tree.is_verb(before):
            raise Unsure
    if tree.lower[words[-1]] in ("'s", "’s") and "'s" not in items and isinstance(items[-1], int):
        raise Unsure
    if len(words) > 1 and tree.labels[words[-2]] == "cc" and tree.labels[words[-1]] == "advmod":
        raise Unsure
    for left, right in pairwise(x for x in items if x not in tree.quote_marks):
        if isinstance(left, str) or isinstance(right, str):
            continue
        if all(n in tree.quote_marks for n in range(left + 1, right)):
            continue
        beside = _is_phrase_end(tree, left) and _is_phrase_start(tree, right)
        if beside and tree.heads[left] != right:
            raise Unsure
        between = [n for n in range(left + 1, right) if tree.labels[n] != "punct"]
        if between and all(tree.labels[n] == "cc" for n in between) and left > 0:
            raise Unsure
        if tree.tags[right] in FINITE and left < right - 1 and _is_object(tree, left, items):
            raise Unsure
    present = set(words)
    for word in words:
        for other in (word - 1, word + 1):
            gone = 0 <= other < len(tree) and other not in present and other not in titles
            if gone and _belong_together(tree, min(word, other), max(word, other)):
                raise Unsure


def _is_object(tree: Tree, noun: int, items: Sequence[int | str]) -> bool:
    """Whether a noun behind a finite verb is in no subject, so that no other verb can follow it."""
    before = items[: items.index(noun)]
    has_verb = any(isinstance(x, int) and tree.tags[x] in FINITE for x in before)
    subjects = ("nsubj", "nsubjpass")
    is_in_subject = any(tree.labels[n] in subjects for n in (noun, *tree.ancestors(noun)))
    return has_verb and not is_in_subject and _is_phrase_end(tree, noun)


def _is_phrase_end(tree: Tree, index: int) -> bool:
    return tree.tags[index][:2] in ("NN", "CD")


def _is_phrase_start(tree: Tree, index: int) -> bool:
    if tree.tags[index][:2] not in ("NN", "JJ", "CD") and tree.tags[index] not in ("DT", "PRP$"):
        return False
    for node in (index, *tree.ancestors(index)):
        if tree.labels[node] == "npadvmod" and tree.is_time(node):
            return False
    return True


def _belong_together(tree: Tree, left: int, right: int) -> bool:
    """Whether two neighbours are parts of one name, number or genitive."""
    named = tree.is_capital(left) and tree.is_capital(right)
    opens = not left and not tree.tags[left].startswith("NN")
    if named and not opens and "PRP" not in (tree.tags[left], tree.tags[right]):
        return True
    if tree.is_name(left) and tree.is_name(right):
        return True
    number = tree.tags[left] == "CD" and tree.tags[right][:2] in ("NN", "JJ")
    number = number or (tree.is_name(left) and tree.tags[right] == "CD")
    genitive = tree.lower[right] in ("'s", "’s") and tree.tags[right] != "VBZ"
    return number or genitive or "POS" in (tree.tags[left], tree.tags[right])
