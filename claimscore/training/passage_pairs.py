"""Pairs of passages and claims that differ in little: what the fourth phase adds.

Three sources. Facts that people found in one passage, beside another passage about the same
person: entailed where a fact of that passage says the same, neutral where no fact comes near or a
name is not there; what lies between is left out. Twins: a name, a number or the polarity is changed
in a claim, in its passage, or in both; the claim follows only where both or neither are changed.
Labelled pairs with their claim negated: it turns entailed and contradicted into each other and
leaves neutral as it is.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from claimscore.baseline import negate
from claimscore.baseline.tree import Tree
from claimscore.text import content_words
from claimscore.training.claim_documents import LONGEST, Corpus, Document
from claimscore.training.inconsistent import Edit, entity_edits, number_edits
from claimscore.training.text_changes import (
    CONTRADICTED,
    ENTAILED,
    NEUTRAL,
    NUMBER,
    Made,
    Phrases,
    denied,
    swap_roles,
)

#: Kinds of pairs that are made here.
PASSAGE_KINDS = ("said", "unsaid", "kept", "denied", "replaced", "exchanged", "misread", "refused")
WINDOW = 330  # words of the longest passages, some 450 word pieces
SAID, UNSAID = 0.85, 0.4  # F1 of content words from which on a fact is said, and up to which not
_NARROW = re.compile(
    r"\b(?:some|all|every|each|any|no|none|most|many|few|several|both|not|never|n't|nobody|only"
    r"|at least|at most|might|may|probably)\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<!^)\b[A-Z][\w’'-]+|\b\d[\d,.]*\d|\b\d")


def f1(first: str, second: str) -> float:
    """F1 of the two multisets of stemmed content words."""
    one, two = content_words(first), content_words(second)
    return 2 * (one & two).total() / max(1, one.total() + two.total())


def natural_pairs(rng: random.Random, documents: Sequence[Document]) -> Iterator[Made]:
    """Each fact of a passage beside every passage about the same topic, its own included."""
    groups: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        groups[document.name].append(document)
    for document in documents:
        for index, claims in enumerate(document.claims):
            for claim in claims:
                for passage in groups[document.name]:
                    own = index if passage is document else None
                    if own is None or rng.random() < 0.5:
                        yield from _beside(rng, passage, claim, own)


def _beside(
    rng: random.Random, passage: Document, claim: str, left_out: int | None
) -> Iterator[Made]:
    """The claim beside a passage, or beside what stays of it without a sentence."""
    places = [k for k in range(len(passage.sentences)) if k != left_out]
    facts = [(f1(claim, fact), k, fact) for k in places for fact in passage.claims[k]]
    if not facts:
        return
    near, place, fact = max(facts)
    whole = " ".join(passage.sentences[k] for k in places)
    named = set(_NAMES.findall(claim))
    if near >= SAID and named == set(_NAMES.findall(fact)) and not _NARROW.search(claim + fact):
        label, kind = ENTAILED, "said"
    elif content_words(claim) - content_words(whole) and (
        near <= UNSAID or not named <= set(_NAMES.findall(whole))
    ):
        label, kind, place = NEUTRAL, "unsaid", rng.choice(places)
    else:
        return
    text = whole if left_out is not None else passage.window(rng, place)
    if len(text.split()) <= LONGEST:
        yield Made(text, claim, label, kind)


def mixed_documents(rng: random.Random, texts: Sequence[str], count: int) -> Iterator[Document]:
    """Passages of sentences from unrelated texts."""
    for _ in range(count):
        chosen = rng.sample(texts, rng.randint(2, 5))
        yield Document(" ".join(chosen), chosen, [[] for _ in chosen])


def twins(corpus: Corpus, document: Document) -> Iterator[Made]:
    """For sentences of a passage: something changed in the claim, in the passage, or in both."""
    rng = corpus.rng
    for index, sentence in enumerate(document.sentences):
        if not 4 <= len(sentence.split()) <= 60:
            continue
        claims = document.claims[index]
        text = rng.choice(claims) if claims and rng.random() < 0.6 else sentence
        passage = document.window(rng, index) if rng.random() < 0.85 else sentence
        if rng.random() < 0.12:
            passage = _among_strange(corpus, passage)
        yield Made(passage, text, ENTAILED, "kept")
        kind = rng.random()
        if kind < 0.2:
            yield from _denied(rng, passage, sentence, text)
        elif kind < 0.7:
            find = entity_edits if kind < 0.6 else _number_edits
            label = NEUTRAL if kind < 0.4 else CONTRADICTED
            for other in (passage, " ".join(corpus.other(document).sentences[:3])):
                if edits := find(text, other):
                    yield from _replaced(rng, passage, text, rng.choice(edits), label)
        elif tree := corpus.tree(text):
            yield from _misread(corpus, document, passage, tree)


def _among_strange(corpus: Corpus, passage: str) -> str:
    """The passage with unrelated sentences before and behind it, up to ``WINDOW`` words."""
    rng, texts = corpus.rng, [passage]
    words = len(passage.split())
    while True:
        sentence = rng.choice(rng.choice(corpus.documents).sentences)
        words += len(sentence.split())
        if words > WINDOW:
            return " ".join(texts)
        texts.insert(rng.choice((0, len(texts))), sentence)


def _number_edits(text: str, other: str) -> list[Edit]:
    """Every number for one of the other text, and with another digit."""
    found = number_edits(text, other)
    for match in NUMBER.finditer(text):
        old = match.group()
        news = (
            old[:k] + new + old[k + 1 :] for k in range(len(old)) for new in "2468" if old[k] != ","
        )
        found += [Edit(match.start(), match.end(), new) for new in news if new != old]
    return found


def _replaced(
    rng: random.Random, passage: str, text: str, edit: Edit, label: str
) -> Iterator[Made]:
    """A word of the claim replaced there; in the passage, wherever it stands; in both."""
    changed = edit.apply(text)
    if changed in passage:
        return
    yield Made(passage, changed, label, "replaced")
    old = re.escape(text[edit.start : edit.end])
    turned = re.sub(rf"(?<!\w){old}(?!\w)", lambda _: edit.new, passage)
    if turned != passage:
        yield Made(turned, changed, ENTAILED, "replaced")
        if rng.random() < 0.5:
            yield Made(turned, text, label, "replaced")


def _denied(rng: random.Random, passage: str, sentence: str, text: str) -> Iterator[Made]:
    """The claim denied, and the passage's sentence denied with both."""
    yield Made(passage, denied(rng, text), CONTRADICTED, "denied")
    other = denied(rng, sentence)
    turned = passage.replace(sentence, other)
    if turned != passage:
        yield Made(turned, sentence, CONTRADICTED, "denied")
        if rng.random() < 0.6:
            yield Made(turned, other, ENTAILED, "denied")


def _misread(corpus: Corpus, document: Document, passage: str, tree: Tree) -> Iterator[Made]:
    """The claim with another word, adjunct or order of roles, half of them from its passage."""
    rng = corpus.rng
    if rng.random() < 0.35:
        if turned := swap_roles(rng, tree):
            yield Made(passage, turned, NEUTRAL, "exchanged")
        return
    trees = [found for s in document.sentences if (found := corpus.tree(s))]
    phrases = Phrases(trees) if rng.random() < 0.5 else corpus.phrases
    if phrases.adjuncts and (made := phrases.change(rng, tree)):
        yield made._replace(premise=passage, kind="misread")


def refused_pairs(rng: random.Random, pairs: Iterable[tuple[str, str, str]]) -> Iterator[Made]:
    """Labelled pairs with the claim negated, but for claims about some, all or none."""
    labels = {ENTAILED: CONTRADICTED, CONTRADICTED: ENTAILED, NEUTRAL: NEUTRAL}
    for premise, hypothesis, label in pairs:
        if _NARROW.search(hypothesis) or (label == CONTRADICTED and rng.random() < 0.7):
            continue
        yield Made(premise, negate(hypothesis), labels[label], "refused")


def passage_pairs(
    corpus: Corpus,
    human: Sequence[Document],
    plain: Sequence[Document],
    every: Sequence[Document],
    labelled: pl.DataFrame,
    count: int,
) -> Iterator[Made]:
    """All of the pairs above."""
    rng = corpus.rng
    yield from natural_pairs(rng, human)
    texts = [d.sentences[0] for d in every if len(d.sentences) == 1]
    texts = [text for text in texts if 9 <= len(text.split()) <= 50 and text.endswith(".")]
    mixed = mixed_documents(rng, texts, count * 2 // 3)
    for document in (*human, *human, *plain, *mixed):
        if len(document.sentences) > 1 or rng.random() < 0.1:
            yield from twins(corpus, document)
    rows = rng.sample(labelled.rows(), min(count, len(labelled)))
    yield from refused_pairs(rng, rows)
