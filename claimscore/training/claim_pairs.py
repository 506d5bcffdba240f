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
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.baseline import paraphrase
from claimscore.training.claim_documents import (
    LONGEST,
    Corpus,
    Document,
    human_documents,
    is_development,
    length,
    premise_documents,
)
from claimscore.training.passage_pairs import passage_pairs
from claimscore.training.text_changes import (
    ENTAILED,
    NEUTRAL,
    WORD,
    Made,
    change_name,
    contradict,
    reword,
    role_pairs,
    scramble,
    swap_roles,
    widen,
    word_pairs,
)


class Counts(NamedTuple):
    """How many premises give pairs, and most pairs about roles, of one word, and among others."""

    premises: int
    roles: int
    words: int
    among: int


TRAINING, DEVELOPMENT = Counts(9000, 9000, 9000, 9000), Counts(3000, 600, 1500, 1500)


class Maker(Corpus):
    """Makes the pairs of documents; ``rng`` decides everything."""

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
        elif (other := paraphrase(sentence)) != sentence:
            yield from entailed(lambda: other, "paraphrase")
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
