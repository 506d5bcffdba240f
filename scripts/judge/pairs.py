"""Pairs, made by rule, of texts and claims that they carry, do not carry, or contradict.

Why: summaries are judged by long premises and by claims that differ from them in one word, in the
order of the words, or in nothing. Human-written sentence pairs hold hardly any such cases, and a
small model learns from them to answer by shared words.

Texts are sentences with the claims that people made of them (FActScore, Factcheck-GPT, CaRB, in
the files of `decomposition`) and the premises of labelled pairs. From each come: the text against
itself and light rewordings of it (entailed); its claims, beside it and within a longer text
(entailed); the same with a number, name, word or the polarity changed, roles exchanged, words in
another order, broken off, or with an addition (not entailed); claims of other sentences (neutral).
Labelled pairs are also repeated with unrelated sentences around the premise.

A fifth of the documents, by a digest of their name, is left for development.

The fourth phase adds pairs of passages and claims that differ in little. Facts that people found in
one passage, beside another passage about the same person: entailed where a fact of that passage
says the same, neutral where no fact comes near or a name is not there; what lies between is left
out. Twins: a name, a number or the polarity is changed in a claim, in its passage, or in both; the
claim follows only where both or neither are changed. Labelled pairs with their claim negated: it
turns entailed and contradicted into each other and leaves neutral as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.baseline import parser
from claimscore.baseline.tree import Tree
from claimscore.text import content_words, normal_form, split_sentences
from scripts.judge.changes import (
    CONTRADICTED,
    ENTAILED,
    NEUTRAL,
    NUMBER,
    WORD,
    Made,
    Phrases,
    change_name,
    contradict,
    denied,
    negate,
    reword,
    role_pairs,
    scramble,
    swap_roles,
    widen,
    word_pairs,
)
from scripts.judge.edits import Edit, entity_edits, number_edits

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


class Counts(NamedTuple):
    """How many premises give pairs, and most pairs about roles, of one word, and among others."""

    premises: int
    roles: int
    words: int
    among: int


TRAINING, DEVELOPMENT = Counts(9000, 9000, 9000, 9000), Counts(3000, 600, 1500, 1500)


# Documents


LONGEST = 170  # words of a premise, some 250 word pieces


class Document(NamedTuple):
    """Sentences, and the claims that people made of each (none where there are none)."""

    name: str
    sentences: list[str]
    claims: list[list[str]]

    def window(self, rng: random.Random, index: int, *, without: bool = False) -> str:
        """A random run of sentences around one, of at most ``LONGEST`` words; or all but it."""
        first, last = index, index
        room = rng.randint(30, LONGEST)
        while True:
            sides = [k for k in (first - 1, last + 1) if 0 <= k < len(self.sentences)]
            if not sides:
                break
            side = rng.choice(sides)
            if length(self.sentences[min(first, side) : max(last, side) + 1]) > room:
                break
            first, last = min(first, side), max(last, side)
        kept = [k for k in range(first, last + 1) if not (without and k == index)]
        return " ".join(self.sentences[k] for k in kept)


def length(sentences: Sequence[str]) -> int:
    return sum(len(sentence.split()) for sentence in sentences)


def is_development(name: str) -> bool:
    """Whether a document is left for development: one in five."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 5 == 0


def human_documents(folder: Path) -> list[Document]:
    """The documents of FActScore, Factcheck-GPT and CaRB, with people's claims."""
    names = ("factscore", "factcheck_gpt", "carb")
    tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in names}
    found: dict[tuple[str, str, str], Document] = {}
    for key, claims, table in (
        ("topic", "facts", tables["factscore"]),
        ("response_id", "claims", tables["factcheck_gpt"]),
    ):
        maker = "generator" if key == "topic" else key
        for row in table.sort(key, maker, "sentence_index").iter_rows(named=True):
            where = (key, str(row[key]), str(row[maker]))
            document = found.setdefault(where, Document(f"{key} {row[key]}", [], []))
            document.sentences.append(row["sentence"])
            document.claims.append(list(row[claims] or []))
    documents = list(found.values())
    for row in tables["carb"].iter_rows(named=True):
        facts = [
            " ".join([a["arguments"][0], a["relation"], *a["arguments"][1:]])
            for a in row["tuples"]
            if len(a["arguments"]) > 1
        ]
        sentence = normal_form(row["sentence"])
        documents.append(Document(sentence, [sentence], [[normal_form(f) + "." for f in facts]]))
    return documents


def premise_documents(pairs: pl.DataFrame, count: int, seed: int) -> list[Document]:
    """Documents of the premises of labelled pairs, long ones first, ``count`` in all."""
    chosen = pairs.filter(~pl.col("source").str.contains("^(joci|mpe|monli|dnc|fw)_"))
    texts = chosen.unique("premise", maintain_order=True)["premise"]
    texts = texts.sample(fraction=1.0, shuffle=True, seed=seed)
    split = ((text, split_sentences(text)) for text in texts)
    found = [Document(text, parts, [[]] * len(parts)) for text, parts in split if parts]
    return sorted(found, key=lambda document: len(document.sentences) < 3)[:count]


# Pairs of sentences


class Maker:
    """Makes the pairs of documents; ``rng`` decides everything. It has the trees of their sentences
    and words to put into others."""

    def __init__(self, documents: Sequence[Document], seed: int) -> None:
        self.documents = [d for d in documents if d.sentences]
        self.rng = random.Random(seed)
        self.reader = parser.load()
        self.trees: dict[str, Tree | None] = {}
        few = self.rng.sample(self.documents, min(1500, len(self.documents)))
        some = [sentence for document in few for sentence in document.sentences[:2]]
        self.phrases = Phrases([tree for s in some if (tree := self.tree(s))])

    def tree(self, text: str) -> Tree | None:
        if text not in self.trees:
            self.trees[text] = self.reader.parse(text)
        return self.trees[text]

    def other(self, document: Document) -> Document:
        while True:
            found = self.rng.choice(self.documents)
            if found.name != document.name:
                return found

    def premise(self, document: Document, index: int, long: float) -> str:
        """The sentence, or with the given probability a longer text with it."""
        if len(document.sentences) > 1 and self.rng.random() < long:
            return document.window(self.rng, index)
        return document.sentences[index]

    def pairs(self, document: Document, *, most: int = 3, long: float = 0.35) -> Iterator[Made]:
        """Pairs of every sentence of a document, and of the document as a whole."""
        rng = self.rng
        for index, sentence in enumerate(document.sentences):
            if len(sentence.split()) < 4:
                continue
            yield from self._alike(document, index, long)
            yield from self._changed(document, index, sentence, long)
            yield from self._unrelated(document, index, sentence)
            claims = document.claims[index]
            for claim in rng.sample(claims, min(most, len(claims))):
                yield Made(self.premise(document, index, long), claim, ENTAILED, "claim")
                if rng.random() < 0.5:
                    yield from self._changed(document, index, claim, long)
                yield from self._unrelated(document, index, claim)
        if len(document.sentences) > 1:
            for _ in range(2):
                whole = document.window(rng, rng.randrange(len(document.sentences)))
                other = reword(rng, whole) if rng.random() < 0.5 else whole
                yield Made(whole, other, ENTAILED, "paragraph")
            yield Made(whole, scramble(rng, whole), NEUTRAL, "scrambled")

    def _alike(self, document: Document, index: int, long: float) -> Iterator[Made]:
        rng, sentence = self.rng, document.sentences[index]

        def entailed(make: Callable[[], str | None], kind: str) -> Iterator[Made]:
            """What is made comes after its premise is drawn, where ``make`` draws too."""
            premise = self.premise(document, index, long)
            if made := make():
                yield Made(premise, made, ENTAILED, kind)

        if rng.random() < 0.5:
            yield from entailed(lambda: sentence, "identity")
        if rng.random() < 0.5:
            yield from entailed(lambda: reword(rng, sentence), "reworded")
        elif rng.random() < 0.4:
            yield Made(reword(rng, sentence), sentence, ENTAILED, "reworded")
        tree = self.tree(sentence) if rng.random() < 0.4 else None
        if tree and (short := self.phrases.shorten(rng, tree)):
            yield from entailed(lambda: short, "shorter")
        if rng.random() < 0.2 and (wider := widen(rng, sentence)):
            yield Made(sentence, wider, ENTAILED, "wider")

    def _changed(self, document: Document, index: int, text: str, long: float) -> Iterator[Made]:
        rng = self.rng
        premise = self.premise(document, index, long)
        kind = rng.random()
        made: Made | None = None
        if kind < 0.4:
            made = contradict(rng, text, premise)
        elif kind < 0.6:
            made = change_name(rng, text, premise, " ".join(self.other(document).sentences[:3]))
        elif kind < 0.75:
            made = self.phrases.change(rng, tree) if (tree := self.tree(text)) else None
        elif (tree := self.tree(text)) and (turned := swap_roles(rng, tree)):
            made = Made("", turned, NEUTRAL, "turned")
        if made:
            yield made._replace(premise=premise)
        if rng.random() < 0.5:
            premise = self.premise(document, index, long)
            yield Made(premise, scramble(rng, text), NEUTRAL, "scrambled")

    def _unrelated(self, document: Document, index: int, text: str) -> Iterator[Made]:
        """What another sentence, or all the others, do not say."""
        rng, kind = self.rng, self.rng.random()
        others = [k for k in range(len(document.sentences)) if k != index]
        if others and kind < 0.3:
            premise = document.sentences[rng.choice(others)]
        elif len(others) > 1 and kind < 0.5:
            premise = document.window(rng, index, without=True)
        elif kind < 0.62:
            strange = self.other(document)
            premise = strange.window(rng, rng.randrange(len(strange.sentences)))
        else:
            return
        if premise and overlap(premise, text) < 0.7:
            yield Made(premise, text, NEUTRAL, "unrelated")

    def among_others(self, row: tuple[str, str, str]) -> Made | None:
        """A labelled pair with sentences of unrelated texts around its premise."""
        rng = self.rng
        premise, hypothesis, label = row
        texts = [premise if premise.rstrip().endswith((".", "!", "?", '"')) else premise + "."]
        for _ in range(rng.choice((1, 2, 3, 4, 6))):
            strange = rng.choice(self.documents)
            sentence = rng.choice(strange.sentences)
            if overlap(sentence, hypothesis) < 0.3 and length([*texts, sentence]) < LONGEST:
                texts.insert(rng.randint(0, len(texts)), sentence)
        return Made(" ".join(texts), hypothesis, label, "among") if len(texts) > 1 else None


def overlap(text: str, claim: str) -> float:
    """The share of a claim's longer words that the text has."""
    words = {w.lower() for w in WORD.findall(claim) if len(w) > 3}
    return len(words & {w.lower() for w in WORD.findall(text)}) / max(1, len(words))


# Pairs of passages


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


def twins(corpus: Maker, document: Document) -> Iterator[Made]:
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


def _among_strange(corpus: Maker, passage: str) -> str:
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


def _misread(corpus: Maker, document: Document, passage: str, tree: Tree) -> Iterator[Made]:
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
    corpus: Maker,
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


def claim_pairs(
    folder: Path,
    pairs: pl.DataFrame,
    *,
    seed: int = 1,
    development: bool = False,
    counts: Counts | None = None,
) -> pl.DataFrame:
    """Pairs from the decomposition files in ``folder`` and the premises of labelled ``pairs``.

    Columns premise, hypothesis, label, source (``claim_`` and the rule). The same for the same
    seed; ``development`` asks for the fifth of the documents that is otherwise left out.
    """

    def chosen(documents: list[Document]) -> list[Document]:
        return [d for d in documents if is_development(d.name) == development]

    counts = counts or (DEVELOPMENT if development else TRAINING)
    human = chosen(human_documents(folder))
    plain = chosen(premise_documents(pairs, counts.premises, seed))
    every = chosen(premise_documents(pairs, len(pairs), seed))
    maker = Maker([*human, *plain], seed)
    other = pairs.filter(
        ~pl.col("source").str.contains("^(joci|mpe|monli|dnc|synthetic|help|monotone)")
    ).select("premise", "hypothesis", "label")
    labelled = other.filter([is_development(p) == development for p in other["premise"]])
    rows = labelled.sample(min(counts.among, len(labelled)), seed=seed)
    sources = (
        *(maker.pairs(document) for document in human),
        *(maker.pairs(document, long=0.6) for document in plain),
        role_pairs(maker.rng, counts.roles),
        word_pairs(maker.rng, sorted({d.sentences[0] for d in every}), counts.words),
        filter(None, map(maker.among_others, rows.iter_rows())),
        passage_pairs(maker, human, plain, every, labelled, counts.premises),
    )
    made: dict[tuple[str, str], Made] = {}
    for row in itertools.chain.from_iterable(sources):
        made.setdefault((row.premise, row.hypothesis), row)
    return pl.DataFrame(
        [(m.premise, m.hypothesis, m.label, f"claim_{m.kind}") for m in made.values()],
        schema=dict.fromkeys(("premise", "hypothesis", "label", "source"), pl.String),
        orient="row",
    )
