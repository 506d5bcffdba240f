"""Numbers of whole texts: BERTScore of two sides, and how likely a language model finds a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import (
    OnBatch,
    PairLikelihood,
    TextLikelihood,
    TokenEncoder,
)
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    RecordTexts,
    failed_side,
    pass_result,
    text_pairs,
    texts_of,
    truncated,
    without_rejected,
)
from claimscore.tables import TEXT_SCORES, TOKEN_SCORES

PERPLEXITY, BART_SCORE = "perplexity", "bart_score"

#: Names of the two numbers of each text: a sum in nats, and how many tokens it is over.
LOG_LIKELIHOOD, TOKENS = "log_likelihood", "tokens"


def token_pass(given: PassInput) -> PassResult:
    """BERTScore of the first side against each text of the second; blank texts have no row."""
    encoder: TokenEncoder = given.model
    candidate, reference = given.need.sides

    def ask(pairs: list[RecordTexts]) -> NDArray[np.float64]:
        candidates, references = [pair.first for pair in pairs], [pair.second for pair in pairs]
        return encoder.bertscore(candidates, references, on_batch=given.listen(len(pairs)))

    every = text_pairs(given.records, first=candidate, second=reference)
    pairs, scores, failures = without_rejected(
        "token_scores", every, ask, side=failed_side(given.need.sides)
    )
    rows = pl.DataFrame(
        {
            "id": [pair.id for pair in pairs],
            "reference_index": [pair.second_index for pair in pairs],
            **{name: scores[:, i] for i, name in enumerate(("precision", "recall", "f1"))},
            "truncated": truncated(encoder, [pair.first for pair in pairs])
            | truncated(encoder, [pair.second for pair in pairs]),
        }
    )
    baseline = encoder.baseline or (None, None, None)
    return pass_result(
        TOKEN_SCORES,
        rows,
        failures,
        encoder.info,
        candidate_side=pl.lit(candidate),
        reference_side=pl.lit(reference),
        baseline_precision=pl.lit(baseline[0]),
        baseline_recall=pl.lit(baseline[1]),
        baseline_f1=pl.lit(baseline[2]),
        layer=pl.lit(encoder.layer),
    )


def perplexity_pass(given: PassInput) -> PassResult:
    """The log-likelihood of every text of one side; blank texts have no row."""
    model: TextLikelihood = given.model
    (side,) = given.need.sides
    texts = texts_of(given.records, side)
    items = [
        RecordTexts(record, text, "", place, None)
        for record in given.records["id"]
        for place, text in texts.get(record, ())
    ]

    def ask(left: list[RecordTexts], on_batch: OnBatch) -> NDArray[np.float64]:
        return model.log_likelihoods([item.first for item in left], on_batch=on_batch)

    return _likelihoods(given, items, ask, lambda item: item.first, side=side, given_side=None)


def bart_score_pass(given: PassInput) -> PassResult:
    """The log-likelihood of each text of the second side given each text of the first."""
    model: PairLikelihood = given.model
    source, target = given.need.sides
    pairs = text_pairs(given.records, first=source, second=target)

    def ask(left: list[RecordTexts], on_batch: OnBatch) -> NDArray[np.float64]:
        sources, targets = [pair.first for pair in left], [pair.second for pair in left]
        return model.log_likelihoods(sources, targets, on_batch=on_batch)

    return _likelihoods(given, pairs, ask, lambda pair: pair[1:3], side=target, given_side=source)


def _likelihoods(
    given: PassInput,
    every: list[RecordTexts],
    ask: Callable[[list[RecordTexts], OnBatch], NDArray[np.float64]],
    as_read: Callable[[RecordTexts], Any],
    *,
    side: str,
    given_side: str | None,
) -> PassResult:
    """Two rows an item; the index is that of the side which has several texts."""
    kind = given.need.kind
    items, values, failures = without_rejected(
        kind,
        every,
        lambda left: ask(left, given.listen(len(left))),
        side=failed_side(given.need.sides),
    )
    cut = truncated(given.model, [as_read(item) for item in items])
    rows = [
        {
            "id": item.id,
            "given_index": item.second_index if item.first_index is None else item.first_index,
            "name": name,
            "value": float(value),
            "truncated": flag,
        }
        for item, numbers, flag in zip(items, values, cut, strict=True)
        for name, value in zip((LOG_LIKELIHOOD, TOKENS), numbers, strict=True)
    ]
    return pass_result(
        TEXT_SCORES,
        TEXT_SCORES.frame(rows),
        failures,
        given.model.info,
        measure=pl.lit(kind),
        side=pl.lit(side),
        given_side=pl.lit(given_side, pl.String()),
    )


TOKEN_SCORES_PASS = ModelPass("token_scores", "token_encoder", token_pass)
PERPLEXITY_PASS = ModelPass(PERPLEXITY, "causal_lm", perplexity_pass, unit="texts")
BART_SCORE_PASS = ModelPass(BART_SCORE, "seq2seq_lm", bart_score_pass)
