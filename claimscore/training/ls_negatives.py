"""Worse summaries made from good ones: what LS_Score learns to rank below.

Wu et al. 2020 (negative samples), with the details of whl97/LS-Score c8a57a2. Pure
functions of texts and a random generator; each returns its input unchanged where it is too short
for the change, and the caller leaves such a sample out.
"""

from __future__ import annotations

import difflib
import random
import re
import string
from collections.abc import Sequence

#: The changes by name, and which of the two scores the published code lets each of them train.
NEGATIVES = ("delete", "add", "disorder_words", "disorder_sentences")
LINGUISTIC = frozenset(("delete", "disorder_words", "disorder_sentences"))
SEMANTIC = frozenset(("delete", "add"))

#: Of the word pieces that are deleted, and of a sentence's words that change places.
SHARE = 0.2

_PUNCTUATION = frozenset(string.punctuation)
_WORDS = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")


def delete_pieces(pieces: Sequence[str], rng: random.Random, share: float = SHARE) -> list[str]:
    """Leave out int(share·n) random word pieces, and with a `##` piece the one before it."""
    drawn = rng.sample(range(len(pieces)), int(len(pieces) * share))
    before = [index - 1 for index in drawn if pieces[index].startswith("##")]
    gone = {*drawn, *before}
    return [piece for index, piece in enumerate(pieces) if index not in gone]


def disorder_words(
    sentences: Sequence[str], rng: random.Random, share: float = SHARE
) -> list[list[str]]:
    """In each sentence, swap int(share·n) pairs of words; punctuation marks are words too.

    The places are two random draws that each hold a word other than punctuation, so a swap may
    undo another. A sentence with too few words stays as it is (the published code never returns
    from one).
    """
    return [_swapped(_WORDS.findall(sentence), rng, share) for sentence in sentences]


def _swapped(words: list[str], rng: random.Random, share: float) -> list[str]:
    n_swaps = int(len(words) * share)
    if not n_swaps or all(word in _PUNCTUATION for word in words):
        return words
    first, second = (_places(words, n_swaps, rng) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        words[a], words[b] = words[b], words[a]
    return words


def _places(words: Sequence[str], count: int, rng: random.Random) -> list[int]:
    while True:
        places = rng.sample(range(len(words)), count)
        if any(words[place] not in _PUNCTUATION for place in places):
            return places


def disorder_sentences(sentences: Sequence[str], rng: random.Random) -> list[str]:
    """The sentences in another order, drawn from all others; a text of one sentence has none."""
    shuffled = list(sentences)
    if len(set(sentences)) > 1:
        while shuffled == list(sentences):
            rng.shuffle(shuffled)
    return shuffled


def add_sentence(
    sentences: Sequence[str], document_sentences: Sequence[str], rng: random.Random
) -> list[str]:
    """Put a sentence of the document at a random place.

    The document's sentence that is most like a sentence of the summary (difflib's quick ratio,
    the first at a tie) is left out beforehand, one for each; where none is left, nothing is added.
    """
    left = list(document_sentences)
    for sentence in sentences:
        if left:
            left.pop(_most_similar(left, sentence))
    place = rng.randrange(len(sentences) + 1)
    added = [rng.choice(left)] if left else []
    return [*sentences[:place], *added, *sentences[place:]]


def _most_similar(candidates: Sequence[str], sentence: str) -> int:
    ratios = [difflib.SequenceMatcher(None, sentence, other).quick_ratio() for other in candidates]
    return ratios.index(max(ratios))
