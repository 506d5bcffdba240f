"""The cost of moving a summary's token embeddings onto those of its references or its source.

`sentence_movers` reads every sentence by itself and one layer, `mover_score` whole texts and
several layers, as the authors' programs do. `supert` aligns the tokens of a summary and those of
the first sentences of its source. Numbers go to `text_scores`.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.movers import (
    MOVER_LAYERS,
    NGRAMS,
    VARIANTS,
    check_transport,
    mover_score,
    mover_score_name,
    mover_similarities,
    power_means,
)
from claimscore.metrics.supert import MEASURES, SALIENT, STOP_WORDS, supert
from claimscore.pipeline.encoders.protocols import (
    OnBatch,
    RejectedItemsError,
    TokenEncoder,
    TokenLayers,
)
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    RecordTexts,
    truncated,
)
from claimscore.pipeline.passes.text_scores import BOTH, scored_pairs
from claimscore.text import split_sentences

#: Pairs whose token embeddings are held at once: five layers of long texts are large.
GROUP_PAIRS = 16

#: A text as its parts, which are embedded one by one; parts as vectors to compare; the numbers.
Parts = Callable[[str], list[str]]
Prepared = list[NDArray[np.float32]]
#: A text and its side, 0 or 1.
_Placed = tuple[int, str]
Prepare = Callable[[Sequence["TokenLayers"]], Prepared]
Compare = Callable[[Prepared, Prepared], Sequence[float | None] | None]


class _Measure(NamedTuple):
    """The `names` of the numbers that `compare` gives, which are null where it gives none; `parts`
    cuts the text of the first side, `given_parts` (or `parts`) that of the second."""

    names: Sequence[str]
    n_layers: int
    parts: Parts
    prepare: Prepare
    compare: Compare
    given_parts: Parts | None = None

    def cut(self, side: int, text: str) -> list[str]:
        return (self.given_parts if side and self.given_parts else self.parts)(text)


def word_vectors(text: TokenLayers) -> NDArray[np.float32]:
    """The mean of the last layer over each word's tokens; words without a letter are left out.

    As Clark et al. do with words that are not alphabetic. No list of stop words is applied.
    """
    vectors = text.layers[-1]
    pieces: dict[int, list[int]] = {}
    for i, word in enumerate(text.words.tolist()):
        pieces.setdefault(word, []).append(i)
    kept = [
        vectors[places].mean(axis=0)
        for places in pieces.values()
        if any(letter.isalpha() for i in places for letter in text.pieces[i])
    ]
    return np.stack(kept) if kept else vectors[:0]


def scored_tokens(text: TokenLayers) -> NDArray[np.float32]:
    """Power means of the layers of the tokens that MoverScore compares: first tokens of words,
    no punctuation, no special tokens (which idf weights at zero)."""
    first = np.ones(len(text.words), dtype=bool)
    first[1:] = text.words[1:] != text.words[:-1]
    kept = [
        i
        for i in np.flatnonzero(first).tolist()
        if not all(letter in string.punctuation for letter in text.pieces[i])
    ]
    vectors: NDArray[np.float32] = power_means(text.layers[:, kept])
    return vectors


def aligned_tokens(text: TokenLayers) -> NDArray[np.float32]:
    """The last layer of the tokens that SUPERT compares: all but stop words."""
    kept = [i for i, piece in enumerate(text.pieces) if piece.lower() not in STOP_WORDS]
    vectors: NDArray[np.float32] = text.layers[-1][kept]
    return vectors


def _alignment(summary: Prepared, source: Prepared) -> Sequence[float] | None:
    return supert(np.concatenate(summary), np.concatenate(source)) if summary and source else None


SUPERT = _Measure(
    MEASURES,
    1,
    split_sentences,
    lambda parts: [aligned_tokens(part) for part in parts],
    _alignment,
    lambda text: split_sentences(text)[:SALIENT],
)
SENTENCE_MOVERS = _Measure(
    ("wms", "sms", "s+wms"),
    1,
    split_sentences,
    lambda parts: [word_vectors(part) for part in parts],
    mover_similarities,
)
_WAYS = [(n, variant) for variant in VARIANTS for n in NGRAMS]
MOVER_SCORE = _Measure(
    [mover_score_name(*way) for way in _WAYS],
    MOVER_LAYERS,
    lambda text: [text],
    lambda parts: [scored_tokens(part) for part in parts],
    lambda a, b: [mover_score(a[0], b[0], n=n, variant=variant) for n, variant in _WAYS],
)


def _movers(given: PassInput, measure: _Measure) -> PassResult:
    """The measure's numbers for the first side with each text of the second."""
    encoder: TokenEncoder = given.model
    nothing = [None] * len(measure.names)

    def compare(
        firsts: Sequence[str], seconds: Sequence[str], *, on_batch: OnBatch
    ) -> NDArray[np.float64]:
        pairs, rows = list(zip(firsts, seconds, strict=True)), list[Sequence[float | None]]()
        while len(rows) < len(pairs):
            done = len(rows)
            group = pairs[done : done + GROUP_PAIRS]

            def listen(_texts: int, done: int = done) -> None:
                on_batch(done)  # which may stop the work between the batches of a group

            try:
                texts = _prepared(encoder, measure, group, listen)
            except RejectedItemsError as exc:
                places = tuple(done + place for place in exc.indices)
                raise RejectedItemsError(str(exc), exc.kind, places) from exc
            rows += [measure.compare(texts[0, a], texts[1, b]) or nothing for a, b in group]
            on_batch(len(rows))
        return np.array(rows, dtype=np.float64).reshape(-1, len(nothing))

    def cut(items: Sequence[RecordTexts]) -> pl.Series:
        first, second = (
            [_is_cut(encoder, measure.cut(side, text(item))) for item in items]
            for side, text in enumerate(BOTH)
        )
        return pl.Series(first, dtype=pl.Boolean()) | pl.Series(second, dtype=pl.Boolean())

    return scored_pairs(given, compare, measure.names, cut=cut, scores_first=True)


def _is_cut(encoder: TokenEncoder, parts: list[str]) -> bool | None:
    """Whether a part is longer than the model reads."""
    return truncated(encoder, parts).any(ignore_nulls=False)


def _prepared(
    encoder: TokenEncoder,
    measure: _Measure,
    pairs: Sequence[tuple[str, str]],
    on_batch: OnBatch,
) -> dict[_Placed, Prepared]:
    """Each distinct text's vectors. `RejectedItemsError` counts pairs, not parts of texts."""
    texts = dict.fromkeys(placed for pair in pairs for placed in enumerate(pair))
    of_texts = [(placed, measure.cut(*placed)) for placed in texts]
    owners = [placed for placed, parts in of_texts for _ in parts]
    flat = [part for _, parts in of_texts for part in parts]
    try:
        layers = iter(encoder.token_layers(flat, measure.n_layers, on_batch=on_batch))
    except RejectedItemsError as exc:
        rejected = {owners[index] for index in exc.indices}
        places = [i for i, pair in enumerate(pairs) if rejected.intersection(enumerate(pair))]
        raise RejectedItemsError(str(exc), exc.kind, tuple(places)) from exc
    return {text: measure.prepare([next(layers) for _ in parts]) for text, parts in of_texts}


SENTENCE_MOVERS_PASS = ModelPass(
    "sentence_movers",
    "token_encoder",
    partial(_movers, measure=SENTENCE_MOVERS),
    check=check_transport,
)
MOVER_SCORE_PASS = ModelPass(
    "mover_score", "token_encoder", partial(_movers, measure=MOVER_SCORE), check=check_transport
)
SUPERT_PASS = ModelPass("supert", "token_encoder", partial(_movers, measure=SUPERT))
