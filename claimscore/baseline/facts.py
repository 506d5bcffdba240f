"""FactSim's tuples, (subject, description), one lower-case word each, from parse trees.

A negated description is given by its antonym ("not fast" -> "slow"); where the lexicon
has none, by the word with "un" ("not quirky" -> "unquirky"), so that it stays one word.
A pronoun stands for the last subject; "product" where there was none. What is only wished
for, expected or possible is no fact.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from claimscore.baseline import parser
from claimscore.baseline.tree import SUBJECTS, Tree, sentences_of

Fact = tuple[str, str]

PRODUCT = "product"
_MISSING = "missing"
#: A tuple is left out that is one of so many before it.
_REPEATED = 8
#: Labels of what a "not" before its head is about.
_CARRYING = ("acomp", "amod", "attr", "dobj", "oprd", "xcomp")
_WISHED = ("ccomp", "dobj", "pobj", "prep", "xcomp")
_PREDICATES = ("acomp", "attr", "oprd")
_DESCRIBING = ("JJ", "JJR", "JJS", "VBN", "VBG")


def facts(texts: Sequence[str]) -> list[list[Fact]]:
    """The tuples of each text, in its order.

    Sentences are parsed together. `ConfigError` where the parser's backbone is not installed.
    """
    sentences = [sentences_of(text) for text in texts]
    trees = iter(parser.load().parse_all([s for of_text in sentences for s in of_text]))
    return [_facts_of(islice(trees, len(of_text))) for of_text in sentences]


def opposite(description: str) -> str:
    """One word for "not `description`"."""
    known = _antonyms().get(description)
    if known is not None:
        return known
    if description.startswith("un") and not description.startswith(("under", "uni")):
        return description[2:] or description
    return f"un{description}"


def _facts_of(trees: Iterable[Tree | None]) -> list[Fact]:
    tuples: list[Fact] = []
    reader = _Reader()
    for fact in (fact for tree in trees if tree for fact in reader.facts(tree)):
        if fact not in tuples[-_REPEATED:]:
            tuples.append(fact)
    return tuples


class _Reader:
    """Reads the tuples of a text, sentence by sentence and from the left.

    `one` and `many` are what "it" and "they" stand for.
    """

    tree: Tree

    def __init__(self) -> None:
        self.one = PRODUCT
        self.many = ""

    def facts(self, tree: Tree) -> Iterator[Fact]:
        self.tree = tree
        for index in range(len(tree)):
            yield from self._facts_at(index)
            if tree.labels[index] in SUBJECTS and tree.labels[tree.heads[index]] != "relcl":
                self._remember(index)

    def _remember(self, subject: int) -> None:
        """What a pronoun after a subject stands for: no name, and no mere aspect of a thing."""
        tree, word = self.tree, self.tree.lower[subject]
        if not self._is_thing(subject) or tree.is_name(subject) or word in _words("aspects"):
            return
        if tree.tags[subject] == "NNS" or word in _words("groups"):
            self.many = word
        else:
            self.one = word

    def _facts_at(self, index: int) -> Iterator[Fact]:
        tree = self.tree
        if self._is_unreal(index):
            return
        if self._may_describe(index):
            word = self._description(index)
            yield from ((thing, word) for thing in self._described(index) if word)
        if self._is_thing(index) and self._is_missing(index):
            yield tree.lower[index], _MISSING
        if tree.is_verb(index):
            yield from self._verbal(index)

    def _has(self, node: int, words: Collection[str], *labels: str) -> bool:
        """Whether one of the words hangs on a word by one of the labels."""
        return any(self.tree.lower[child] in words for child in self.tree.of(node, *labels))

    def _is_thing(self, noun: int) -> bool:
        """Whether a word names what can be described: no friend of the writer's, no "way"."""
        word = self.tree.lower[noun]
        is_noun = self.tree.tags[noun].startswith("NN") and word[0].isalpha()
        return is_noun and word not in _words("ignored") and word not in _words("vague")

    def _is_unreal(self, index: int) -> bool:
        """Whether a word stands in a condition, a wish, or what is not done."""
        tree = self.tree
        for node in (index, *tree.ancestors(index)):
            head, label = tree.heads[node], tree.labels[node]
            is_condition = label == "advcl" and self._has(node, ("if", "unless"), "mark")
            is_possible = node != index and self._has(node, _words("modals"), "aux")
            is_wish = label in _WISHED and tree.lower[head] in _words("unreal")
            is_doubted = label == "ccomp" and head < node and bool(tree.of(head, "neg"))
            if label == "pcomp" or is_condition or is_possible or is_wish or is_doubted:
                return True
        return False

    def _may_describe(self, index: int) -> bool:
        tree, tag, low = self.tree, self.tree.tags[index], self.tree.lower[index]
        is_misread = tag == "RB" and tree.labels[index] in ("acomp", "ROOT") and low in _antonyms()
        return (tag in _DESCRIBING or is_misread) and low[0].isalpha()

    def _description(self, index: int) -> str | None:
        """The word for a description, with its negation; None where it says nothing certain."""
        tree, low = self.tree, self.tree.lower[index]
        adverbs = [tree.lower[c] for c in tree.of(index, "advmod")]
        for adverb in adverbs:
            if adverb in ("well", "badly", "poorly"):
                low = f"{adverb}-{low}"
            elif tree.is_verb(index) and adverb.endswith("ly") and adverb[:-2] in _antonyms():
                low = low if adverb in _words("degrees") else adverb[:-2]
        if low in _words("empty"):
            return None
        low = str(_lexicon()["renamed"].get(low, low))
        if self._is_negated(index):  # "not the best", "not too big": which then?
            return None if tree.tags[index] == "JJS" or "too" in adverbs else opposite(low)
        verb = tree.heads[tree.first_conjunct(index)]
        is_more = low.endswith("er") or "more" in adverbs
        if is_more and self._has(verb, ["could"], "aux") and not tree.of(verb, "neg"):
            return opposite(low)  # "could be cleaner"
        return low

    def _described(self, index: int) -> list[str]:
        """What an adjective or participle describes; empty where it describes nothing."""
        tree = self.tree
        first = index if tree.of(index, "auxpass") else tree.first_conjunct(index)
        label, head = tree.labels[first], tree.heads[first]
        is_quality = self._description(index) in _antonyms()
        if label == "amod":
            return self._bearers(head) if is_quality or tree.tags[index] != "VBG" else []
        if tree.is_verb(index) and label not in ("acomp", "oprd"):
            is_said = tree.of(first, "auxpass") or tree.of(index, "aux")  # "was accommodating"
            return self._subjects(first) if is_said and is_quality else []
        if label in _PREDICATES:
            clauses = [c for node in (first, head) for c in tree.of(node, "ccomp", "xcomp")]
            is_action = any(c > first and tree.of(c, "dobj", "nsubj") for c in clauses)
            is_of_clause = is_action and self._has(head, ["it"], "nsubj")  # "hard to find a lift"
            return [] if is_of_clause else self._subjects(head)
        if tree.of(first, *SUBJECTS):  # "found it clean"
            return self._subjects(first)
        if label != "ROOT" or tree.lower[index] in _words("feelings"):
            return []
        return [tree.lower[first]] if self._is_thing(first) else [self.one]  # "Fast, but noisy."

    def _bearers(self, noun: int) -> list[str]:
        """What has the quality before a noun: it, or the subject of "is a great choice"."""
        tree = self.tree
        first = tree.first_conjunct(noun)
        label, head = tree.labels[first], tree.heads[first]
        subjects = tree.of(head, *SUBJECTS) if label in (*_PREDICATES, "dobj") else []
        is_predicate = bool(subjects) and (label != "dobj" or tree.lower[head] in ("'s", "is"))
        is_named = tree.has_article(noun) and any(map(self._is_thing, subjects))
        is_named = is_named and tree.lower[noun] not in _words("ignored")
        if is_predicate and (is_named or tree.lower[noun] in _words("vague")):
            return self._subjects(head)
        if label == "ROOT" and tree.lower[noun] in _words("vague"):
            return [self.one]
        is_part = tree.labels[noun] in ("compound", "poss")
        is_part = is_part or self._has(noun, _words("owners"), "poss") or self._is_missing(noun)
        return [tree.lower[noun]] if self._is_thing(noun) and not is_part else []

    def _subjects(self, verb: int) -> list[str]:
        """The heads of a verb's subjects; empty for people and "there"."""
        tree, node = self.tree, verb
        while not tree.of(node, *SUBJECTS):
            if tree.labels[node] not in ("conj", "xcomp", "advcl"):
                return []
            node = tree.heads[node]
        subject = tree.of(node, *SUBJECTS)[0]
        if tree.tags[subject] in ("WDT", "WP"):
            clause = tree.first_conjunct(node)
            return self._things(tree.heads[clause]) if tree.labels[clause] == "relcl" else []
        return self._things(subject)

    def _things(self, noun: int) -> list[str]:
        """A noun and those coordinated with it; the last subject for a pronoun of a thing."""
        tree = self.tree
        if tree.lower[noun] in _words("many"):
            return [self.many or self.one]
        if tree.lower[noun] in _words("one"):
            return [self.one]
        nouns = [noun]
        for member in nouns:
            nouns += tree.of(member, "conj")
        return [tree.lower[member] for member in nouns if self._is_thing(member)]

    def _is_negated(self, index: int) -> bool:
        """Whether a "not" or "no" reaches a description."""
        tree, node = self.tree, index
        while True:
            if self._denies(node):
                return not self._is_praise(index, node)
            head, label = tree.heads[node], tree.labels[node]
            if label == "conj":
                has_degree = bool(tree.of(node, "advmod", "npadvmod", "amod"))  # "and a bit cold"
                is_new = has_degree and not self._has(head, ("or", "nor"), "cc")
                if is_new or self._has(head, ("but", "yet"), "cc"):
                    return False
                if tree.is_verb(node) and tree.subject(node) is not None:
                    return False
            elif label not in _CARRYING:
                return False
            node = head

    def _denies(self, node: int) -> bool:
        tree = self.tree
        labels = ("neg", "det", "advmod", "preconj")
        words = [c for c in tree.of(node, *labels) if tree.lower[c] in _words("not")]
        return tree.lower[node] == "nothing" or any(
            tree.lower[c + 1 : c + 2] not in (["only"], ["just"]) for c in words
        )

    def _is_praise(self, index: int, denied: int) -> bool:
        """Whether a description is that of "could not be better" or "never had a better one"."""
        more = self.tree.tags[index] == "JJR" or self._has(index, ["more"], "advmod")
        modal = any(self.tree.tags[c] == "MD" for c in self.tree.auxiliaries(denied))
        return more and (modal or self._has(denied, ("never", "no"), "neg", "det"))

    def _is_missing(self, noun: int) -> bool:
        """Whether a thing is said not to be there: "no pool", "no fresh fruit"."""
        tree = self.tree
        is_compared = any(tree.tags[c] == "JJR" for c in tree.of(noun, "amod"))  # "no better hotel"
        head, label = tree.heads[noun], tree.labels[noun]
        is_doing = label in ("compound", "nsubj")  # "no patch helped"
        if is_compared or is_doing or tree.lower[noun] in _words("not_missed"):
            return False
        lacking = label == "dobj" and tree.lower[head] in _words("lacking")
        without = label == "pobj" and tree.lower[head] == "without"
        return lacking or without or self._has(noun, ["no"], "det", "neg")

    def _verbal(self, verb: int) -> Iterator[Fact]:
        """ "We loved the pool" -> (pool, loved); "The shower leaks" -> (shower, leaky)."""
        tree, low = self.tree, self.tree.lower[verb]
        negated = bool(tree.of(verb, "neg"))
        if low in _verbs("felt"):
            word = _verbs("felt")[low][negated]
            things = [thing for o in tree.of(verb, "dobj") for thing in self._things(o)]
            if things and self.one == PRODUCT:
                self.one = things[0]
            yield from ((thing, word) for thing in things)
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
