"""FactSim's tuples, (subject, description), one lower-case word each, from parse trees.

A negated description is given by its antonym ("not fast" -> "slow"); where the lexicon
has none, by the word with "un" ("not quirky" -> "unquirky"), so that it stays one word.
A pronoun stands for the last subject; "product" where there was none.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from claimscore.baseline import parser
from claimscore.baseline.tree import Tree
from claimscore.text import split_sentences

Fact = tuple[str, str]

PRODUCT = "product"
_MISSING = "missing"
#: A tuple is left out that is one of so many before it.
_REPEATED = 8
_SUBJECTS = ("nsubj", "nsubjpass")
#: Labels of what a "not" before its head is about.
_CARRYING = ("acomp", "amod", "attr", "dobj", "oprd", "xcomp")
_DESCRIBING = ("JJ", "JJR", "JJS", "VBN", "VBG")


def facts(texts: Sequence[str]) -> list[list[Fact]]:
    """The tuples of each text, in its order.

    Sentences are parsed together. `ConfigError` where the parser's backbone is not installed.
    """
    sentences = [split_sentences(text, splitter="rules") for text in texts]
    read = [_without_contractions(s) for of_text in sentences for s in of_text]
    trees = iter(parser.load().parse_all(read))
    return [_facts_of(list(islice(trees, len(of_text)))) for of_text in sentences]


def _without_contractions(sentence: str) -> str:
    """A sentence with "not" for "n't", which the parser does not know."""
    for contracted, full in (("can't", "can not"), ("won't", "will not"), ("n't", " not")):
        sentence = sentence.replace(contracted, full)
    return sentence


def opposite(description: str) -> str:
    """One word for "not `description`"."""
    known = _antonyms().get(description)
    if known is not None:
        return known
    if description.startswith("un") and not description.startswith(("under", "uni")):
        return description[2:] or description
    return f"un{description}"


def _facts_of(trees: Sequence[Tree | None]) -> list[Fact]:
    tuples: list[Fact] = []
    last = PRODUCT
    for tree in filter(None, trees):
        reader = _Reader(tree, last)
        for fact in reader.facts():
            if fact not in tuples[-_REPEATED:]:
                tuples.append(fact)
        last = reader.last
    return tuples


class _Reader:
    """Reads the tuples of a sentence, from the left; `last` is what a pronoun stands for."""

    def __init__(self, tree: Tree, last: str) -> None:
        self.tree = tree
        self.last = last

    def facts(self) -> Iterator[Fact]:
        tree, thing, is_named = self.tree, None, False
        for index in range(len(tree)):
            for thing, description in self._facts_at(index):
                yield thing, description
                if self.last == PRODUCT:
                    self.last = thing
            is_noun = tree.labels[index] in _SUBJECTS and tree.tags[index].startswith("NN")
            if is_noun and tree.labels[tree.heads[index]] != "relcl":
                self.last, is_named = tree.lower[index], True
        if thing is not None and not is_named:
            self.last = thing

    def _facts_at(self, index: int) -> Iterator[Fact]:
        tree, low = self.tree, self.tree.lower[index]
        if self._may_describe(index):
            is_negated = self._is_negated(index)
            word = opposite(low) if is_negated else low
            if not (is_negated and tree.tags[index] == "JJS"):  # not the best: good or bad?
                yield from ((thing, word) for thing in self._described(index))
        if tree.tags[index].startswith("NN") and self._is_missing(index):
            yield low, _MISSING
        if tree.is_verb(index):
            yield from self._verbal(index)

    def _may_describe(self, index: int) -> bool:
        tree, tag, low = self.tree, self.tree.tags[index], self.tree.lower[index]
        is_misread = tag == "RB" and tree.labels[index] in ("acomp", "ROOT") and low in _antonyms()
        return (tag in _DESCRIBING or is_misread) and low not in _words("empty")

    def _described(self, index: int) -> list[str]:
        """What an adjective or participle describes; empty where it describes nothing."""
        tree = self.tree
        first = index if tree.of(index, "auxpass") else tree.first_conjunct(index)
        label, head = tree.labels[first], tree.heads[first]
        if label == "amod":
            return [tree.lower[head]] if tree.tags[head].startswith("NN") else []
        if tree.is_verb(index) and label not in ("acomp", "oprd"):
            is_adjective = tree.lower[index] in _antonyms()  # "was accommodating"
            is_said = tree.of(first, "auxpass") or (is_adjective and tree.of(index, "aux"))
            return self._subjects(first) if is_said else []
        if label in ("acomp", "attr", "oprd"):
            return self._subjects(head)
        if tree.of(first, *_SUBJECTS):  # "found it clean"
            return self._subjects(first)
        return [self.last] if label == "ROOT" else []  # "Fast, but noisy."

    def _subjects(self, verb: int) -> list[str]:
        """The heads of a verb's subjects; empty for people and "there"."""
        tree, node = self.tree, verb
        while not tree.of(node, *_SUBJECTS):
            if tree.labels[node] not in ("conj", "xcomp", "advcl"):
                return []
            node = tree.heads[node]
        subject = tree.of(node, *_SUBJECTS)[0]
        if tree.tags[subject] in ("WDT", "WP"):
            clause = tree.first_conjunct(node)
            return self._things(tree.heads[clause]) if tree.labels[clause] == "relcl" else []
        return self._things(subject)

    def _things(self, noun: int) -> list[str]:
        """A noun and those coordinated with it; the last subject for a pronoun of a thing."""
        tree = self.tree
        if tree.lower[noun] in _words("things"):
            return [self.last]
        nouns = [noun]
        for member in nouns:
            nouns += tree.of(member, "conj")
        return [tree.lower[member] for member in nouns if tree.tags[member].startswith("NN")]

    def _is_negated(self, index: int) -> bool:
        """Whether a "not", "no" or "without" reaches a description."""
        tree, node = self.tree, index
        while True:
            if self._denies(node):
                return not self._is_praise(index, node)
            head, label = tree.heads[node], tree.labels[node]
            if label == "pobj":
                return tree.lower[head] == "without"
            if label == "conj":
                if any(tree.lower[c] in ("but", "yet") for c in tree.of(head, "cc")):
                    return False
                if tree.is_verb(node) and tree.subject(node) is not None:
                    return False
            elif label not in _CARRYING:
                return False
            node = head

    def _denies(self, node: int) -> bool:
        tree = self.tree
        words = [c for c in tree.of(node, "neg", "det") if tree.lower[c] in _words("not")]
        return any(tree.lower[c + 1 : c + 2] != ["only"] for c in words)

    def _is_praise(self, index: int, denied: int) -> bool:
        """Whether a description is that of "could not be better" or "never had a better one"."""
        tree = self.tree
        more = any(tree.lower[c] == "more" for c in tree.of(index, "advmod"))
        modal = any(tree.tags[c] == "MD" for c in tree.auxiliaries(denied))
        never = any(tree.lower[c] == "never" for c in tree.of(denied, "neg"))
        return (more or tree.tags[index] == "JJR") and (modal or never)

    def _is_missing(self, noun: int) -> bool:
        """Whether nothing is said of a noun but that it is not there: "no pool"."""
        tree = self.tree
        if tree.of(noun, "amod") or tree.lower[noun] in _words("not_missed"):
            return False
        head, label = tree.heads[noun], tree.labels[noun]
        if label == "compound":
            return False
        lacking = label == "dobj" and tree.lower[head] in _words("lacking")
        without = label == "pobj" and tree.lower[head] == "without"
        return lacking or without or any(tree.lower[c] == "no" for c in tree.of(noun, "det", "neg"))

    def _verbal(self, verb: int) -> Iterator[Fact]:
        """ "We loved the pool" -> (pool, loved); "The shower leaks" -> (shower, leaky)."""
        tree, low = self.tree, self.tree.lower[verb]
        negated = bool(tree.of(verb, "neg"))
        if low in _verbs("felt"):
            word = _verbs("felt")[low][negated]
            yield from ((thing, word) for o in tree.of(verb, "dobj") for thing in self._things(o))
        elif low in _verbs("done") and not tree.of(verb, "auxpass", "dobj"):
            word = _verbs("done")[low][negated]
            yield from ((thing, word) for thing in self._subjects(verb))


@functools.cache
def _lexicon() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "facts.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@functools.cache
def _words(name: str) -> frozenset[str]:
    return frozenset(_lexicon()["words"][name].split())


@functools.cache
def _verbs(name: str) -> dict[str, list[str]]:
    """Form of a verb -> what it says of its object or subject, and what it says if negated."""
    tables = _lexicon()[name].items()
    return {form: pair.split() for pair, forms in tables for form in forms.split()}


@functools.cache
def _antonyms() -> dict[str, str]:
    pairs: dict[str, str] = {}
    for table in _lexicon()["antonyms"].values():
        for word, other in map(str.split, table["both"].splitlines()):
            pairs.setdefault(word, other)
            pairs.setdefault(other, word)
        for word, other in map(str.split, table["one_way"].splitlines()):
            pairs.setdefault(word, other)
    return pairs
