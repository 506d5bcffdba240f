"""Support: every claim of one side against every text of another, sentence by sentence and whole.

A text is read by its sentences and by windows of neighbouring sentences, to the end. The largest
probability of support counts: a sentence alone is what NLI models are trained on, and a window
holds what a claim takes from several sentences.

A window has as many tokens as the verifier reads, less those of the record's longest claim, for
which a quarter is kept in any case. A sentence that is longer than a window is read in parts, and
the first one of a verifier is told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.blocks import window_spans
from claimscore.metrics.support import (
    BOTH,
    MODEL,
    SENTENCES,
    WINDOWS,
    shared_words,
    threshold_of,
    verdicts,
)
from claimscore.pipeline.encoders.protocols import Verifier
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    failed_side,
    pass_result,
    texts_of,
    without_rejected,
)
from claimscore.pipeline.passes.pair_nli import PairGrid, judged_pairs
from claimscore.tables import SUPPORT
from claimscore.text import split_sentences

logger = logging.getLogger("claimscore")

#: Tokens of a pair that are of neither text: special ones, and the words of a prompt.
SPECIAL_TOKENS = 8

#: Tokens of a pair where the verifier does not say how many it reads: half an NLI model's.
UNKNOWN_LIMIT = 256

#: Words of English a token, where the verifier does not count its own.
WORDS_A_TOKEN = 0.75

_ENTAILMENT, _CONTRADICTION = 0, 2


class _ReadText(NamedTuple):
    """One text with the claims it is asked about: its sentences, and the premises made of them,
    each with the places of its sentences."""

    id: str
    place: int
    sentences: list[str]
    spans: list[range]
    claims: list[str]

    @property
    def grid(self) -> PairGrid:
        premises = [" ".join(self.sentences[i] for i in span) for span in self.spans]
        return PairGrid(self.id, premises, self.claims, "", "")


def support_pass(given: PassInput) -> PassResult:
    """A row for each claim of the second side with each text of the first."""
    over, side = given.need.over
    source_side, _, asked = over.partition(".")
    read = _read_by(given.model) if asked == MODEL else asked
    texts = texts_of(given.records, source_side)
    claims: dict[str, list[str]] = {}
    mine = given.claims.filter(side=side).select("id", "text")
    for record, text in mine.iter_rows():
        claims.setdefault(record, []).append(text)
    split = [
        (record, index or 0, split_sentences(text))
        for record in given.records["id"]
        if record in claims and record not in given.broken
        for index, text in texts.get(record, ())
    ]
    sizes = _Sizes(
        given.model, (*chain(*(sentences for *_, sentences in split)), *chain(*claims.values()))
    )
    every = [
        _read_text(record, index, sentences, claims[record], read, sizes)
        for record, index, sentences in split
    ]

    def ask(left: list[_ReadText]) -> list[dict[str, Any]]:
        return _rows(given, left)

    judged = without_rejected("support", every, ask, side=failed_side(given.need.sides))
    return pass_result(
        SUPPORT,
        SUPPORT.frame(judged.answer),
        judged.failures,
        given.model.info,
        side=pl.lit(side),
        source_side=pl.lit(source_side),
        read=pl.lit(asked),
        verifier=pl.lit(given.model.kind),
    )


def _read_by(verifier: Verifier) -> str:
    """NLI models know sentences; those of two labels were trained on documents."""
    return BOTH if verifier.kind == "nli" else WINDOWS


class _Sizes:
    """How many tokens texts have, and how many a window may have; ``texts`` are counted at once."""

    def __init__(self, model: Any, texts: Iterable[str]) -> None:
        self.model = model
        self._count = getattr(model, "text_lengths", None) or _estimated
        distinct = list(dict.fromkeys(texts))
        self._known = dict(zip(distinct, map(int, self._count(distinct)), strict=True))

    def __call__(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = int(self._count([text])[0])
        return self._known[text]

    def most(self, claims: Sequence[str]) -> int:
        """The most tokens of a window beside these claims."""
        limit = getattr(self.model, "limit", None) or UNKNOWN_LIMIT
        quarter = limit // 4
        return max(1, quarter, limit - SPECIAL_TOKENS - max(quarter, *map(self, claims)))


def _estimated(texts: Sequence[str]) -> list[int]:
    """About the tokens of each text: by its words, by its characters where they are not ASCII."""
    return [
        max(ceil(len(text.split()) / WORDS_A_TOKEN), sum(not c.isascii() for c in text))
        for text in texts
    ]


def _read_text(
    record: str, index: int, whole: Sequence[str], claims: list[str], read: str, sizes: _Sizes
) -> _ReadText:
    most = sizes.most(claims)
    sentences = list[str]()
    for place, sentence in enumerate(whole):
        if sizes(sentence) > most and not getattr(sizes.model, "told_of_parts", False):
            sizes.model.told_of_parts = True
            logger.warning(
                "record %s: sentence %d of text %d has %s tokens, of which the verifier reads %s "
                "at once: such sentences are read in parts",
                *(record, place + 1, index + 1, f"{sizes(sentence):,}", f"{most:,}"),
            )
        sentences += _parts(sentence, most, sizes)
    alone = [range(i, i + 1) for i in range(len(sentences))]
    spans = window_spans([sizes(sentence) for sentence in sentences], most)
    if read == SENTENCES:
        spans = alone
    elif read != WINDOWS:  # a window of one sentence is that sentence
        spans = alone + [span for span in spans if len(span) > 1]
    return _ReadText(record, index, sentences, spans, claims)


def _parts(text: str, most: int, sizes: _Sizes) -> list[str]:
    """The text, halved at words, else at characters, until each part has at most so many tokens."""
    if sizes(text) <= most or len(text) < 2:
        return [text]
    words, between = text.split(), " "
    if len(words) == 1:
        words, between = list(text), ""
    halves = words[: len(words) // 2], words[len(words) // 2 :]
    return [part for half in halves for part in _parts(between.join(half), most, sizes)]


def _rows(given: PassInput, texts: Sequence[_ReadText]) -> list[dict[str, Any]]:
    """A row for each text and claim, text by text."""
    calls = list(judged_pairs(given, [text.grid for text in texts]))
    values = np.concatenate([call.values for call in calls])
    cut = pl.concat([call.truncated for call in calls])
    threshold = threshold_of(given.model)
    rows, start = list[dict[str, Any]](), 0
    for text in texts:
        shape = len(text.spans), len(text.claims)
        stop = start + shape[0] * shape[1]
        own = values[start:stop].reshape(*shape, 3)
        was_cut = cut[start:stop].to_numpy().reshape(shape)
        start = stop
        support = own[:, :, _ENTAILMENT]
        nearest = _evidence(text, support, threshold)
        contradiction = own[nearest, range(len(text.claims)), _CONTRADICTION]
        found = verdicts(support.max(0), contradiction, threshold)
        for claim, (verdict, place) in enumerate(zip(found, nearest, strict=True)):
            span = text.spans[place]
            rows.append(
                {
                    "id": text.id,
                    "claim_position": claim,
                    "claim": text.claims[claim],
                    "source_index": text.place,
                    "verdict": verdict,
                    "probability": float(support[:, claim].max()),
                    "contradiction": _number(contradiction[claim]),
                    "evidence_index": span.start,
                    "evidence": " ".join(text.sentences[i] for i in span),
                    "truncated": None if was_cut[0, claim] is None else was_cut[:, claim].any(),
                }
            )
    return rows


def _number(value: np.float32) -> float | None:
    return None if np.isnan(value) else float(value)


def _evidence(text: _ReadText, support: NDArray[np.float32], threshold: float) -> list[int]:
    """The place of the premise behind the verdict on each claim: a sentence where those are read.

    Of a supported claim that with the most support; where only a window supports it, the sentence
    in it that shares most of its words. Of another claim the premise that shares most of its words.
    Of equal ones that with the most support.
    """
    alone = [i for i, span in enumerate(text.spans) if len(span) == 1]
    shown = alone if len(alone) == len(text.sentences) else range(len(text.spans))
    premises = text.grid.premises
    near = shared_words([premises[i] for i in shown], text.claims)
    for claim, best in enumerate(support.argmax(0)):
        if support[best, claim] >= threshold:
            inside = np.array([text.spans[i].start in text.spans[best] for i in shown])
            by_itself = support[shown, claim][inside].max() >= threshold
            near[:, claim] = inside if by_itself else inside * (1 + near[:, claim])
    order = np.lexsort((support[shown], near), axis=0)
    return [shown[place] for place in order[-1]]


SUPPORT_PASS = ModelPass("support", "verifier", support_pass, after=("decompose",))
