"""Support: every claim of one side against every text of another, sentence by sentence and whole.

A text is read by its sentences and by windows of neighbouring sentences that the model can read at
once, to the end; a sentence that is longer than a window is cut at words. The largest probability
of support counts: a sentence alone is what NLI models are trained on, and a window holds what a
claim takes from several sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.blocks import WINDOW_WORDS, window_spans
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

#: Words of English a token of a model, with room for the claim beside the window.
WORDS_A_TOKEN = 0.6

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
    mine = given.read("claims").filter(side=side).select("id", "text")
    for record, text in mine.iter_rows():
        claims.setdefault(record, []).append(text)
    most_words = _window_words(given.model)
    every = [
        _read_text(record, index or 0, text, claims[record], read, most_words)
        for record in given.records["id"]
        if record in claims and record not in given.broken
        for index, text in texts.get(record, ())
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


def _window_words(model: Any) -> int:
    """The most words of a window: what the model reads, a default where it does not say."""
    limit = getattr(model, "limit", None)
    return max(1, int(WORDS_A_TOKEN * limit)) if limit else WINDOW_WORDS


def _read_text(
    record: str, index: int, text: str, claims: list[str], read: str, most_words: int
) -> _ReadText:
    sentences = [
        part for sentence in split_sentences(text) for part in _at_most(sentence, most_words)
    ]
    alone = [range(i, i + 1) for i in range(len(sentences))]
    spans = window_spans(sentences, most_words)
    if read == SENTENCES:
        spans = alone
    elif read != WINDOWS:  # a window of one sentence is that sentence
        spans = alone + [span for span in spans if len(span) > 1]
    return _ReadText(record, index, sentences, spans, claims)


def _at_most(sentence: str, most_words: int) -> list[str]:
    """The sentence, in parts of so many words where it is longer."""
    words = sentence.split()
    if len(words) <= most_words:
        return [sentence]
    return [" ".join(words[i : i + most_words]) for i in range(0, len(words), most_words)]


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

    Of a supported claim that with the most support, or the best sentence of a window. Of another
    the one that shares most of its words, and of these that with the most support.
    """
    alone = [i for i, span in enumerate(text.spans) if len(span) == 1]
    shown = alone if len(alone) == len(text.sentences) else range(len(text.spans))
    premises = text.grid.premises
    near = shared_words([premises[i] for i in shown], text.claims)
    for claim, best in enumerate(support.argmax(0)):
        if support[best, claim] >= threshold:
            near[:, claim] = [text.spans[i].start in text.spans[best] for i in shown]
    order = np.lexsort((support[shown], near), axis=0)
    return [shown[place] for place in order[-1]]


SUPPORT_PASS = ModelPass("support", "verifier", support_pass, after=("decompose",))
