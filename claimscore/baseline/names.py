"""What a sentence says of a name in passing: a title, a nationality, a birth, where a place is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from claimscore.baseline import modifiers
from claimscore.baseline.surface import Draft, article, be
from claimscore.baseline.tree import Tree, words_of

_NATIONALITY = re.compile("(an|ese|ish|ch|i|ic)$")
_QUARTERS = ("south", "north", "new")


def said_by_title(tree: Tree, title: modifiers.Title, is_past: bool) -> Draft:
    """ "Chelsea captain John Terry": John Terry is Chelsea captain."""
    first, last = title.words[0], tree.lower[title.words[-1]]
    unique = tree.is_name(first) and last in words_of("unique_titles")
    owned = any(tree.tags[w] == "POS" or tree.lower[w] in ("'s", "’s") for w in title.words)
    described = unique or owned or tree.tags[first] in ("DT", "PRP$")
    put_in = () if described else (article(tree.words[first]),)
    items = (*title.name, be(is_past, False), *put_in, *title.words)
    return Draft(items, frozenset((*title.name, *title.words)))


def said_of_name(tree: Tree, noun: int) -> Iterator[Draft]:
    """What a noun says of the name that it is, belongs to, or stands beside."""
    label = tree.labels[noun]
    if label == "attr":
        yield from _nationality(tree, noun)
    elif label in ("nsubj", "nsubjpass"):
        yield from _birth(tree, noun)
    elif label in ("pobj", "appos", "npadvmod"):
        yield from _place(tree, noun)


def _nationality(tree: Tree, noun: int) -> Iterator[Draft]:
    """ "X is an American actor": X is American."""
    verb = tree.heads[noun]
    subject = tree.subject(verb)
    if tree.lower[verb] not in ("is", "was") or subject is None:
        return
    who = modifiers.subject_phrase(tree, subject)
    if not who or tree.tags[subject] not in ("NNP", "PRP"):
        return
    for word in tree.of(noun, "amod", "compound"):
        first = word - 1 if _is_quarter(tree, word - 1) else word
        if _is_nationality(tree, first, word):
            words = range(first, word + 1)
            yield Draft((*who, verb, *words), frozenset((*who, *words)))


def _is_quarter(tree: Tree, index: int) -> bool:
    """Whether a word is the "South" of "South Korean"."""
    return tree.is_capital(index) and tree.lower[index] in _QUARTERS


def _is_nationality(tree: Tree, first: int, word: int) -> bool:
    """Whether words are a nationality alone: not of "South African-born" or "American English"."""
    text = tree.words[word]
    if first == word and tree.tags[word] != "JJ":
        return False
    beside = [n for n in (first - 1, word + 1) if 0 < n < len(tree)]
    has_ending = bool(_NATIONALITY.search(text)) and "-" not in text
    return tree.is_capital(word) and has_ending and not any(map(tree.is_capital, beside))


def _birth(tree: Tree, noun: int) -> Iterator[Draft]:
    """ "X (born on a day in a place)": when X was born, and where."""
    opening = noun + 1
    if tree.lower[opening : opening + 2] != ["(", "born"] or not tree.is_name(noun):
        return
    born = opening + 1
    end = next((n for n in range(born, len(tree)) if tree.words[n] in ");–—-"), born)
    if "c." in tree.words[born:end] or "or" in tree.lower[born:end]:
        return
    name = tree.trim(n for n in modifiers.noun_phrase(tree, noun) if n not in tree.brackets)
    places = [n for n in range(born + 2, end) if tree.lower[n] == "in"]
    cut = places[0] if places else end
    for part in (range(born + 1, cut), range(cut, end)):
        words = tree.trim(part)
        if not words or not _is_when_or_where(tree, words[0]):
            continue
        put_in: tuple[str, ...] = ()
        if tree.is_year_or_month(words[-1]) and tree.tags[words[0]] != "IN":
            put_in = ("on",) if len(words) > 1 else ("in",)
        items: tuple[int | str, ...] = (*name, "was", born, *put_in, *words)
        yield Draft(items, frozenset((*name, born, *words)))


def _is_when_or_where(tree: Tree, index: int) -> bool:
    return tree.is_year_or_month(index) or tree.tags[index] in ("IN", "CD")


def _place(tree: Tree, noun: int) -> Iterator[Draft]:
    """ "in Rosario, Argentina": Rosario is in Argentina."""
    located = noun
    while tree.labels[located] in ("appos", "npadvmod"):
        located = tree.heads[located]
    if tree.labels[located] != "pobj" or tree.lower[tree.heads[located]] != "in":
        return
    left = [n for n in sorted(tree.subtree(noun)) if n <= noun]
    if tree.of(noun, "conj", "det") or noun in tree.hypothetical:
        return
    for other in tree.of(noun, "appos", "npadvmod"):
        right = [n for n in sorted(tree.subtree(other)) if n <= other]
        beside = tree.words[noun + 1] == "," and right[0] == noun + 2
        is_date = tree.is_year_or_month(other) or tree.of(other, "conj")
        if beside and not is_date and all(map(tree.is_name, (*left, *right))):
            yield Draft((*left, "is", "in", *right), frozenset((*left, *right)))
