"""Claims without a language model: a parser, and what its trees let say in parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from claimscore.baseline import parser
from claimscore.baseline.decomposition import whole
from claimscore.baseline.extraction import extract
from claimscore.baseline.tree import Tree
from claimscore.text import split_sentences

_REMEMBERED = 10_000


def make_claims(text: str) -> list[str]:
    """The single claims of a text, sentence by sentence, each a sentence.

    A sentence that is one claim, or cannot be cut with certainty, is one claim as it stands. The
    words of a claim are those of its sentence, with articles, forms of "be", "at" and the past
    tense of participles. `ConfigError` where the parser's backbone is not installed.
    """
    return ClaimMaker().claims([text])[0]


def sentence_claims(sentence: str) -> list[str]:
    """The single claims of one sentence; none of one without a word."""
    return ClaimMaker().sentence_claims([sentence])[0]


class ClaimMaker:
    """Makes the claims of texts; sentences that it has seen before cost nothing."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def claims(self, texts: Sequence[str]) -> list[list[str]]:
        """The claims of each text, as `make_claims` makes them; sentences are parsed together."""
        sentences = [split_sentences(text, splitter="rules") for text in texts]
        made = iter(self.sentence_claims([s for own in sentences for s in own]))
        return [[claim for of in islice(made, len(own)) for claim in of] for own in sentences]

    def sentence_claims(self, sentences: Sequence[str]) -> list[list[str]]:
        """The claims of each sentence."""
        known = self._known
        found = {s: known[s] for s in sentences if s in known}
        new = [s for s in dict.fromkeys(sentences) if s not in found and re.search(r"\w", s)]
        if new:
            trees = iter(parser.load().parse_all([part for s in new for part in s.split("; ")]))
            for sentence in new:
                parts = sentence.split("; ")
                found[sentence] = _claims_of(sentence, parts, list(islice(trees, len(parts))))
                known[sentence] = found[sentence]
        for oldest in list(islice(known, max(0, len(known) - _REMEMBERED))):
            known.pop(oldest, None)
        return [found.get(sentence, []) for sentence in sentences]


def _claims_of(sentence: str, parts: list[str], trees: list[Tree | None]) -> list[str]:
    """The claims of a sentence, from the trees of its parts between semicolons."""
    if len(trees) > 1 and all(tree is not None and tree.is_clause() for tree in trees):
        pairs = zip(parts, trees, strict=True)
        return [c for part, tree in pairs if tree for c in extract(tree) or [whole(part)]]
    tree = trees[0] if len(trees) == 1 else None
    return (extract(tree) if tree else None) or [whole(sentence)]
