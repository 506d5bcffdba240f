"""The cost of moving a summary's token embeddings onto those of its references or its source.

`sentence_movers` reads every sentence by itself and one layer, `mover_score` whole texts and
several layers, as the authors' programs do. `supert` aligns the tokens of a summary and those of
the first sentences of its source. Numbers go to `text_scores`.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

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
    failed_side,
    pass_result,
    text_pairs,
    truncated,
    without_rejected,
)
from claimscore.tables import TEXT_SCORES
from claimscore.text import split_sentences

#: Pairs whose token embeddings are held at once: five layers of long texts are large.
GROUP_PAIRS = 16

#: A text as its parts, which are embedded one by one; parts as vectors to compare; the numbers.
Parts = Callable[[str], list[str]]
Prepared = list[NDArray[np.float32]]
#: A text and its side, 0 or 1.
_Own = tuple[int, str]
Prepare = Callable[[Sequence["TokenLayers"]], Prepared]
Compare = Callable[[Prepared, Prepared], Mapping[str, float | None]]


class _Measure(NamedTuple):
    """`parts` cuts the text of the first side, `given_parts` (or `parts`) that of the second."""

    kind: str
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
    found: NDArray[np.float32] = power_means(text.layers[:, kept])
    return found


def _similarities(a: Prepared, b: Prepared) -> Mapping[str, float | None]:
    found = mover_similarities(a, b)
    if found is None:
        return {"wms": None, "sms": None, "s+wms": None}
    return {"wms": found.words, "sms": found.sentences, "s+wms": found.both}


def _mover_scores(a: Prepared, b: Prepared) -> Mapping[str, float | None]:
    return {
        mover_score_name(n, variant): mover_score(a[0], b[0], n=n, variant=variant)
        for variant in VARIANTS
        for n in NGRAMS
    }


def aligned_tokens(text: TokenLayers) -> NDArray[np.float32]:
    """The last layer of the tokens that SUPERT compares: all but stop words."""
    kept = [i for i, piece in enumerate(text.pieces) if piece.lower() not in STOP_WORDS]
    found: NDArray[np.float32] = text.layers[-1][kept]
    return found


def _alignments(summary: Prepared, source: Prepared) -> Mapping[str, float | None]:
    found = supert(np.concatenate(summary), np.concatenate(source)) if summary and source else None
    return dict(zip(MEASURES, found or (None,) * len(MEASURES), strict=True))


SUPERT = _Measure(
    "supert",
    1,
    split_sentences,
    lambda parts: [aligned_tokens(part) for part in parts],
    _alignments,
    lambda text: split_sentences(text)[:SALIENT],
)
SENTENCE_MOVERS = _Measure(
    "sentence_movers",
    1,
    split_sentences,
    lambda parts: [word_vectors(part) for part in parts],
    _similarities,
)
MOVER_SCORE = _Measure(
    "mover_score",
    MOVER_LAYERS,
    lambda text: [text],
    lambda parts: [scored_tokens(part) for part in parts],
    _mover_scores,
)


def _movers(given: PassInput, measure: _Measure) -> PassResult:
    """The measure's numbers for the first side with each text of the second."""
    encoder: TokenEncoder = given.model
    first, second = given.need.sides
    pairs = text_pairs(given.records, first=first, second=second)
    on_batch = given.listen(len(pairs))
    rows: list[dict[str, Any]] = []
    failures: dict[str, dict[str, Any]] = {}  # by record: two groups may hold pairs of one
    for start in range(0, len(pairs), GROUP_PAIRS):
        group = pairs[start : start + GROUP_PAIRS]

        def ask(left: list[RecordTexts], done: int = start) -> list[dict[str, Any]]:
            # The listener may stop the work between the batches of a group.
            texts = _prepared(encoder, measure, left, lambda _texts: on_batch(done))
            return [row for pair in left for row in _rows(measure, pair, texts)]

        side = failed_side((first, second))
        judged = without_rejected(measure.kind, group, ask, side=side)
        rows += judged.answer
        for row in judged.failures:
            failures.setdefault(row["id"], row)
        on_batch(start + len(group))
    return pass_result(
        TEXT_SCORES,
        TEXT_SCORES.frame([row for row in rows if row["id"] not in failures]),
        list(failures.values()),
        encoder.info,
        measure=pl.lit(measure.kind),
        side=pl.lit(first),
        given_side=pl.lit(second),
    )


def _sides_of(pair: RecordTexts) -> tuple[_Own, _Own]:
    return (0, pair.first), (1, pair.second)


def _prepared(
    encoder: TokenEncoder, measure: _Measure, pairs: Sequence[RecordTexts], on_batch: OnBatch
) -> dict[_Own, tuple[Prepared, bool | None]]:
    """Each distinct text's vectors, and whether one of its parts is longer than the model reads.

    `RejectedItemsError` counts pairs, not parts of texts.
    """
    texts = dict.fromkeys(own for pair in pairs for own in _sides_of(pair))
    of_texts = [(own, measure.cut(*own)) for own in texts]
    owners = [own for own, parts in of_texts for _ in parts]
    flat = [part for _, parts in of_texts for part in parts]
    try:
        layers = iter(encoder.token_layers(flat, measure.n_layers, on_batch=on_batch))
    except RejectedItemsError as exc:
        rejected = {owners[index] for index in exc.indices}
        places = [i for i, pair in enumerate(pairs) if rejected.intersection(_sides_of(pair))]
        raise RejectedItemsError(str(exc), exc.kind, tuple(places)) from exc
    cut = iter(truncated(encoder, flat))
    found = {}
    for own, parts in of_texts:
        flags = [next(cut) for _ in parts]
        vectors = measure.prepare([next(layers) for _ in parts])
        found[own] = vectors, None if None in flags else any(flags)
    return found


def _rows(
    measure: _Measure, pair: RecordTexts, texts: Mapping[_Own, tuple[Prepared, bool | None]]
) -> Iterator[dict[str, Any]]:
    (one, cut), (other, other_cut) = (texts[own] for own in _sides_of(pair))
    beside = {
        "id": pair.id,
        "given_index": pair.second_index,
        "truncated": None if cut is None or other_cut is None else cut or other_cut,
    }
    for name, value in measure.compare(one, other).items():
        yield beside | {"name": name, "value": value}


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
