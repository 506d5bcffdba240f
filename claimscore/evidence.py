"""What of a text bears on a claim: copies, the rank of sentences, and the premises made of them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from claimscore.blocks import window_spans
from claimscore.text import content_words, copy_key

#: So many sentences of a longer text are judged for a claim (decision 114).
N_BEST = 5

#: A text of more sentences is sent to a language model in part: so many for each claim, each
#: between its neighbours.
LONG, N_SENT = 20, 4

#: The places of a premise's sentences.
Span = tuple[int, ...]


def copies(sentences: Sequence[str], claims: Sequence[str]) -> dict[int, int]:
    """Of each claim that equals a sentence (`copy_key`) the place of that sentence.

    Case does not count where all sentences, or all claims but for their first letters, are in
    lower case.
    """
    sides = "".join(sentences), "".join(claim[1:] for claim in claims)
    case = all(side != side.lower() for side in sides)
    places: dict[str, int] = {"": -1}
    for place, sentence in enumerate(sentences):
        places.setdefault(copy_key(sentence, case=case), place)
    known = {at: places.get(copy_key(claim, case=case), -1) for at, claim in enumerate(claims)}
    return {at: place for at, place in known.items() if place >= 0}


def shared_words(texts: Sequence[str], claims: Sequence[str]) -> NDArray[np.float64]:
    """How much of each claim each text has in its words, ``[texts, claims]``.

    The sum over the content words of both of log(1 + n / texts with the word): what few of the n
    texts say tells better which one is meant. Rounded once, so equal on all machines.
    """
    words = [content_words(text) for text in texts]
    n_with = Counter(itertools.chain.from_iterable(words))
    rarity = {word: math.log1p(len(texts) / n) for word, n in n_with.items()}
    of_claims = [content_words(claim).keys() for claim in claims]
    shared = [
        [math.fsum(map(rarity.__getitem__, of.keys() & c)) for c in of_claims] for of in words
    ]
    return np.array(shared, dtype=np.float64).reshape(len(texts), len(claims))


def ranked(near: NDArray[np.float64]) -> list[int]:
    """The places of the largest values of `shared_words` first; of equal ones the first."""
    return [int(place) for place in np.argsort(-near, kind="stable")]


def premises(
    sizes: Sequence[int],
    most: int,
    *,
    alone: bool,
    joined: bool,
    order: Sequence[int] | None = None,
) -> list[Span]:
    """What of a text is judged: its sentences `alone`, `joined` ones of at most so many tokens.

    `sizes` are those of the sentences. Without an `order` these are all sentences, and windows of
    neighbours. With one, `ranked` for a claim, they are the `N_BEST`, and those joined in the order
    of the text as far as they fit; where none stands alone, as many of the best as fit.
    """
    if order is None or len(sizes) <= N_BEST:
        single = [(place,) for place in range(len(sizes))]
        windows = [tuple(span) for span in window_spans(sizes, most)]
    else:
        best = order[:N_BEST] if alone else order
        single = [(place,) for place in sorted(best)]
        windows = [tuple(sorted(_fitting(best, sizes, most)))]
    if not alone:
        return windows
    return single + [span for span in windows if joined and len(span) > 1]


def excerpt(sentences: Sequence[str], claims: Sequence[str]) -> set[int] | None:
    """The places of what a language model is sent of a text, the same for all claims, so that a
    server's cache of prompts has it; None for a text that is sent whole."""
    if len(sentences) <= LONG:
        return None
    near = shared_words(sentences, claims)
    best = {place for column in near.T for place in ranked(column)[:N_SENT]}
    return {beside for place in best for beside in (place - 1, place, place + 1)}


def _fitting(order: Iterable[int], sizes: Sequence[int], most: int) -> Iterable[int]:
    """The places, as long as the sizes add up to at most so much; one that does not fit is left
    out."""
    total = 0
    for place in order:
        if total + sizes[place] <= most or not total:
            total += sizes[place]
            yield place
