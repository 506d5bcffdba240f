"""Texts with the claims that people made of their sentences, and what pairs are drawn from.

The texts are FActScore, Factcheck-GPT and CaRB, in the files of `decomposition`, and the premises
of labelled pairs, without claims. A fifth of the documents, by a digest of their name, is left
for development.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.baseline import parser
from claimscore.baseline.tree import Tree
from claimscore.errors import ConfigError
from claimscore.text import split_sentences
from claimscore.training.text_changes import Phrases

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
    try:
        tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in names}
    except (pl.exceptions.PolarsError, OSError) as exc:
        raise ConfigError(f"{folder} must hold {', '.join(names)} as Parquet: {exc}") from exc
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
        sentence = _detached(row["sentence"])
        documents.append(Document(sentence, [sentence], [[_detached(f) + "." for f in facts]]))
    return documents


def _detached(text: str) -> str:
    """A tokenised text as people write it."""
    text = re.sub(r"\s+([.,;:!?%)\]]|['’](?:s|t|re|ve|ll|d|m)\b|n['’]t\b)", r"\1", text)
    text = re.sub(r"([(\[$£€])\s+", r"\1", text)
    return re.sub(r"\s*``\s*|\s*''\s*", ' "', text).strip()


def premise_documents(pairs: pl.DataFrame, count: int, seed: int) -> list[Document]:
    """Documents of the premises of labelled pairs, long ones first, ``count`` in all."""
    chosen = pairs.filter(~pl.col("source").str.contains("^(joci|mpe|monli|dnc|fw)_"))
    texts = chosen.unique("premise", maintain_order=True)["premise"]
    texts = texts.sample(fraction=1.0, shuffle=True, seed=seed)
    found = [Document(text, parts, [[]] * len(parts)) for text, parts in _split(texts)]
    return sorted(found, key=lambda document: len(document.sentences) < 3)[:count]


def _split(texts: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    return ((text, parts) for text in texts if (parts := split_sentences(text)))


class Corpus:
    """Documents, the trees of their sentences, words to put into others, and random numbers."""

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
