"""The cost of moving a summary's token embeddings onto those of its references or its source.

`sentence_movers` reads every sentence by itself and one layer, `mover_score` whole texts and
several layers, as the authors' programs do. Numbers go to `text_scores`.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from claimscore.pipeline.encoders.protocols import (
    OnBatch,
    RejectedItemsError,
    TokenEncoder,
    TokenLayers,
)
from claimscore.pipeline.passes.base import (
    ModelPass,
    PassInput,
    PassResult,
    failure_row,
    model_columns,
    truncated,
)
from claimscore.pipeline.passes.texts import TextPair, failed_side, text_pairs
from claimscore.tables import FAILURES, TEXT_SCORES
from claimscore.text import split_sentences

#: Pairs whose token embeddings are held at once: five layers of long texts are large.
GROUP_PAIRS = 16

#: A text as its parts, which are embedded one by one; parts as what is compared; the numbers.
Parts = Callable[[str], list[str]]
Prepared = list[NDArray[np.float32]]
Prepare = Callable[[Sequence["TokenLayers"]], Prepared]
Compare = Callable[[Prepared, Prepared], Mapping[str, float | None]]


class _Measure(NamedTuple):
    kind: str
    n_layers: int
    parts: Parts
    prepare: Prepare
    compare: Compare


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
        mover_score_name(int(n), variant): mover_score(a[0], b[0], n=int(n), variant=variant)
        for variant in VARIANTS
        for n in NGRAMS
    }


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
    failures: list[dict[str, Any]] = []
    for start, group in _groups(pairs):
        done = start + len(group)
        while group:
            try:
                texts = _prepared(encoder, measure, group, partial(_still_at, on_batch, start))
                cut = _cut_texts(encoder, measure, texts)
                rows += [row for pair in group for row in _rows(measure, pair, texts, cut)]
                break
            except RejectedItemsError as exc:
                # One text costs its own record, not the chunk: the others are computed again.
                rejected = {group[index].id for index in exc.indices}
                failures += [
                    failure_row(measure.kind, record, exc) | {"side": failed_side((first, second))}
                    for record in sorted(rejected)
                ]
                group = [pair for pair in group if pair.id not in rejected]
        on_batch(done)
    failed = {row["id"] for row in failures}
    frame = TEXT_SCORES.frame([row for row in rows if row["id"] not in failed]).with_columns(
        measure=pl.lit(measure.kind),
        side=pl.lit(first),
        given_side=pl.lit(second),
        **model_columns(encoder.info),
    )
    typed = frame.select(pl.col(name).cast(dtype) for name, dtype in TEXT_SCORES.schema.items())
    return PassResult({TEXT_SCORES.name: typed}, FAILURES.frame(_first_of_each(failures)))


def _still_at(on_batch: OnBatch, done: int, _texts: int) -> None:
    """Gives the listener a chance to stop between the pairs."""
    on_batch(done)


def _groups(pairs: Sequence[TextPair]) -> Iterator[tuple[int, list[TextPair]]]:
    for start in range(0, len(pairs), GROUP_PAIRS):
        yield start, list(pairs[start : start + GROUP_PAIRS])


def _prepared(
    encoder: TokenEncoder, measure: _Measure, pairs: Sequence[TextPair], on_batch: OnBatch
) -> dict[str, Prepared]:
    """Each distinct text's vectors. `RejectedItemsError` counts pairs, not parts of texts."""
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.first, pair.second)))
    parts = {text: measure.parts(text) for text in texts}
    flat = [(text, part) for text in texts for part in parts[text]]
    try:
        layers = encoder.token_layers(
            [part for _, part in flat], measure.n_layers, on_batch=on_batch
        )
    except RejectedItemsError as exc:
        rejected = {flat[index][0] for index in exc.indices}
        places = [i for i, p in enumerate(pairs) if rejected.intersection((p.first, p.second))]
        raise RejectedItemsError(str(exc), exc.kind, tuple(places)) from exc
    found = iter(layers)
    return {text: measure.prepare([next(found) for _ in parts[text]]) for text in texts}


def _cut_texts(
    encoder: TokenEncoder, measure: _Measure, texts: Iterable[str]
) -> dict[str, bool | None]:
    """For each text whether one of its parts is longer than the model reads; None: not told."""
    flat = [(text, part) for text in texts for part in measure.parts(text)]
    flags: dict[str, bool | None] = {}
    for (text, _), cut in zip(flat, truncated(encoder, [part for _, part in flat]), strict=True):
        flags[text] = None if cut is None else cut or bool(flags.get(text))
    return flags


def _rows(
    measure: _Measure,
    pair: TextPair,
    texts: Mapping[str, Prepared],
    cut: Mapping[str, bool | None],
) -> Iterator[dict[str, Any]]:
    numbers = measure.compare(texts[pair.first], texts[pair.second])
    flags = [cut.get(pair.first), cut.get(pair.second)]
    beside = {
        "id": pair.id,
        "given_index": pair.second_index,
        "truncated": None if None in flags else any(flags),
    }
    for name, value in numbers.items():
        yield beside | {"name": name, "value": value}


def _first_of_each(failures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One failure a record, though two groups may hold its pairs."""
    return list({row["id"]: row for row in reversed(failures)}.values())[::-1]


def sentence_movers_pass(given: PassInput) -> PassResult:
    """WMS, SMS and S+WMS."""
    return _movers(given, SENTENCE_MOVERS)


def mover_score_pass(given: PassInput) -> PassResult:
    """MoverScore for one-grams and two-grams, paper and code."""
    return _movers(given, MOVER_SCORE)


SENTENCE_MOVERS_PASS = ModelPass(
    "sentence_movers", "token_encoder", sentence_movers_pass, check=check_transport
)
MOVER_SCORE_PASS = ModelPass(
    "mover_score", "token_encoder", mover_score_pass, check=check_transport
)
