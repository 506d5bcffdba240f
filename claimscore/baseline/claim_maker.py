"""Claims without a language model: a parser, and what its trees let say in parts."""

from __future__ import annotations

import re

from claimscore.baseline import parser
from claimscore.baseline.decomposition import decompose_text, whole
from claimscore.baseline.extraction import extract


def make_claims(text: str) -> list[str]:
    """The single claims of a text, sentence by sentence, each a sentence.

    A sentence that is one claim, or cannot be cut with certainty, is one claim as it stands. The
    words of a claim are those of its sentence, with articles, forms of "be", "at" and the past
    tense of participles. `ConfigError` where the parser's backbone is not installed.
    """
    return decompose_text(text, decompose=sentence_claims)


def sentence_claims(sentence: str) -> list[str]:
    """The single claims of one sentence; none of one without a word."""
    if not re.search(r"\w", sentence):
        return []
    model = parser.load()
    trees = [model.parse(clause) for clause in sentence.split("; ")]
    if len(trees) > 1 and all(tree is not None and tree.is_clause() for tree in trees):
        pairs = zip(sentence.split("; "), trees, strict=True)
        return [c for part, tree in pairs if tree for c in extract(tree) or [whole(part)]]
    tree = trees[0] if len(trees) == 1 else None
    return (extract(tree) if tree else None) or [whole(sentence)]
