"""Documents with a good summary and its negatives, as token ids: the data of LS_Score's training.

Negatives are worse summaries made from good ones: Wu et al. 2020 (negative samples), with the
details of whl97/LS-Score c8a57a2. The changes are pure functions of texts and a random generator;
each returns its input unchanged where it is too short for the change.
"""

from __future__ import annotations

import difflib
import random
import re
import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from claimscore.text import split_sentences

#: Of the word pieces that are deleted, and of a sentence's words that change places.
SHARE = 0.2

_PUNCTUATION = frozenset(string.punctuation)
_WORDS = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")


class Candidates(NamedTuple):
    """Ids of a document and of its summaries, the good one first; `kinds` names the others."""

    document: list[int]
    summaries: list[list[int]]
    kinds: tuple[str, ...]


class DrawnRecords(NamedTuple):
    """Records to learn from, records held out, and how many pairs could not be used."""

    learning: list[Candidates]
    held_out: list[Candidates]
    skipped: int


class CandidateMaker:
    """Turns a document and its summary into candidates, always the same for the same seed.

    `joined` is what stands between sentences where one was added.
    """

    def __init__(
        self,
        tokenizer: Any,  # transformers' tokenizers are untyped
        negatives: Sequence[str],
        *,
        seed: int,
        max_tokens: int,
        joined: str = " ",
    ) -> None:
        self._tokenizer = tokenizer
        self._negatives = tuple(negatives)
        self._seed = seed
        self._max_tokens = max_tokens
        self._joined = joined

    def __call__(self, document: str, summary: str) -> Candidates | None:
        """The candidates; None where there is nothing to rank.

        So is a document with no more sentences than its summary (as in the published code), a
        blank summary, and one of which every negative equals it.
        """
        of_document, sentences = split_sentences(document), split_sentences(summary)
        if not sentences or len(of_document) <= len(sentences):
            return None
        pieces = self._pieces(summary)
        good = self._ids(pieces)
        summaries, kinds = [good], []
        for name in self._negatives:
            rng = random.Random(f"{self._seed} {name} {document} {summary}")
            if name == "delete":
                bad = self._ids(delete_pieces(pieces, rng))
            else:
                bad = self._ids(self._pieces(self._changed(name, sentences, of_document, rng)))
            if bad != good and len(bad) > 2:
                summaries.append(bad)
                kinds.append(name)
        if not kinds:
            return None
        return Candidates(self._ids(self._pieces(document)), summaries, tuple(kinds))

    def _changed(
        self, name: str, sentences: Sequence[str], document: Sequence[str], rng: random.Random
    ) -> str:
        if name == "add":
            return self._joined.join(add_sentence(sentences, document, rng))
        if name == "disorder_sentences":
            return " ".join(disorder_sentences(sentences, rng))
        return " ".join(word for words in disorder_words(sentences, rng) for word in words)

    def _pieces(self, text: str) -> list[str]:
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return pieces

    def _ids(self, pieces: Sequence[str]) -> list[int]:
        """Ids between [CLS] and [SEP], cut to the most tokens."""
        ids = self._tokenizer.convert_tokens_to_ids(list(pieces[: self._max_tokens - 2]))
        return [self._tokenizer.cls_token_id, *ids, self._tokenizer.sep_token_id]


def draw_records(
    pairs: Sequence[tuple[str, str]],
    make: Callable[[str, str], Candidates | None],
    most: int,
    holdout: float,
    seed: int,
) -> DrawnRecords:
    """Draw at most ``most`` usable (document, summary); hold out that share of the documents.

    One document at least is held out; all pairs of a document are on one side.
    """
    used: list[tuple[str, Candidates]] = []
    skipped = 0
    for index in np.random.default_rng(seed).permutation(len(pairs)).tolist():
        if len(used) == most:
            break
        candidates = make(*pairs[index])
        if candidates is None:
            skipped += 1
        else:
            used.append((pairs[index][0], candidates))
    documents = list(dict.fromkeys(document for document, _ in used))
    held_out = set(documents[: max(1, int(len(documents) * holdout))])
    sides: tuple[list[Candidates], list[Candidates]] = ([], [])
    for document, record in used:
        sides[document in held_out].append(record)
    return DrawnRecords(*sides, skipped)


def delete_pieces(pieces: Sequence[str], rng: random.Random) -> list[str]:
    """Leave out int(`SHARE`·n) random word pieces, and with a `##` piece the one before it."""
    drawn = rng.sample(range(len(pieces)), int(len(pieces) * SHARE))
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
            ratios = [
                difflib.SequenceMatcher(None, sentence, other).quick_ratio() for other in left
            ]
            left.pop(ratios.index(max(ratios)))
    place = rng.randrange(len(sentences) + 1)
    added = [rng.choice(left)] if left else []
    return [*sentences[:place], *added, *sentences[place:]]
