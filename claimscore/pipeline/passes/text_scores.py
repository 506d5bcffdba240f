"""Numbers of whole texts: BERTScore of two sides, how likely a language model finds a text, BLANC,
FactCC and LS_Score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.blanc import COUNTS as BLANC_COUNTS
from claimscore.pipeline.encoders.protocols import OnBatch, TokenEncoder, Verifier
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    RecordTexts,
    asked,
    failed_side,
    pass_result,
    text_pairs,
    texts_of,
    truncated,
)
from claimscore.tables import TEXT_SCORES, TOKEN_SCORES

PERPLEXITY, BART_SCORE = "perplexity", "bart_score"
BLANC_HELP, BLANC_TUNE = "blanc_help", "blanc_tune"

#: Names of the two numbers of each text: a sum in nats, and how many tokens it is over.
LIKELIHOOD = LOG_LIKELIHOOD, TOKENS = "log_likelihood", "tokens"

#: The numbers of `LSModel.scores`, by their names in the table.
LS_NUMBERS = ("linguistic", "linguistic_inner", "semantic", "summary_tokens", "summary_cut")

#: The texts of `RecordTexts` that a model is asked about.
BOTH = attrgetter("first"), attrgetter("second")


def token_pass(given: PassInput) -> PassResult:
    """BERTScore of the first side against each text of the second; blank texts have no row."""
    encoder: TokenEncoder = given.model
    candidate, reference = given.need.sides

    every = text_pairs(given.records, first=candidate, second=reference)
    side = failed_side(given.need.sides)
    pairs, scores, failures = asked(given, every, encoder.bertscore, *BOTH, side=side)
    rows = pl.DataFrame(
        {
            "id": [pair.id for pair in pairs],
            "reference_index": [pair.second_index for pair in pairs],
            **{name: scores[:, i] for i, name in enumerate(("precision", "recall", "f1"))},
            "truncated": _cut_texts(encoder, pairs),
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


def _cut_texts(model: Any, pairs: Sequence[RecordTexts]) -> pl.Series:
    """Whether the model cut one of both texts."""
    first, second = (truncated(model, list(map(text, pairs))) for text in BOTH)
    return first | second


def perplexity_pass(given: PassInput) -> PassResult:
    """The log-likelihood of every text of one side; blank texts have no row."""
    every = [
        RecordTexts(record, text, "", place, None)
        for record, texts in texts_of(given.records, *given.need.sides).items()
        for place, text in texts
    ]
    return _numbers(given, every, given.model.log_likelihoods, LIKELIHOOD)


def bart_score_pass(given: PassInput) -> PassResult:
    """The log-likelihood of each text of the second side given each text of the first."""
    return scored_pairs(given, given.model.log_likelihoods, LIKELIHOOD)


def blanc_pass(given: PassInput) -> PassResult:
    """Masked tokens of each text of the first side that are predicted, by that of the second."""
    model, tuned = given.model, given.need.kind == BLANC_TUNE
    return scored_pairs(given, model.tune_counts if tuned else model.help_counts, BLANC_COUNTS)


def factcc_pass(given: PassInput) -> PassResult:
    """The probability that a text of the first side supports the whole text of the second."""
    model: Verifier = given.model

    def supported(
        sources: Sequence[str], summaries: Sequence[str], *, on_batch: OnBatch
    ) -> NDArray[np.float64]:
        pairs = list(zip(sources, summaries, strict=True))
        return model.classify(pairs, on_batch=on_batch)[:, :1].astype(np.float64)

    return scored_pairs(given, supported, ("supported",))


def scored_pairs(
    given: PassInput,
    call: Callable[..., NDArray[np.float64]],
    names: Sequence[str],
    *,
    cut: Callable[[Sequence[RecordTexts]], pl.Series] | None = None,
    scores_first: bool = False,
) -> PassResult:
    """The numbers of each text of one side with each of the other; see `_numbers`."""
    first, second = given.need.sides
    pairs = text_pairs(given.records, first=first, second=second)
    pairs = [pair for pair in pairs if pair.id not in given.broken]
    return _numbers(given, pairs, call, names, cut=cut, scores_first=scores_first)


def _numbers(
    given: PassInput,
    every: list[RecordTexts],
    call: Callable[..., NDArray[np.float64]],
    names: Sequence[str],
    *,
    cut: Callable[[Sequence[RecordTexts]], pl.Series] | None = None,
    scores_first: bool = False,
) -> PassResult:
    """A row an item and name; the index is that of the side which has several texts. NaN is null.

    `cut` says of which items a text was cut, where the model does not say it of pairs. The numbers
    are about the last side, or with `scores_first` about the first.
    """
    kind, sides = given.need.kind, given.need.sides
    texts = BOTH[: len(sides)]
    items, values, failures = asked(given, every, call, *texts, side=failed_side(sides))
    if cut is None:
        pairs = [(item.first, item.second) for item in items]
        flags = truncated(given.model, pairs if len(sides) == 2 else [text for text, _ in pairs])
    else:
        flags = cut(items)
    rows = [
        {
            "id": item.id,
            "given_index": item.second_index if item.first_index is None else item.first_index,
            "name": name,
            "value": None if math.isnan(value) else float(value),
            "truncated": flag,
        }
        for item, numbers, flag in zip(items, values, flags, strict=True)
        for name, value in zip(names, numbers, strict=True)
    ]
    side, *others = sides if scores_first else reversed(sides)
    return pass_result(
        TEXT_SCORES,
        TEXT_SCORES.frame(rows),
        failures,
        given.model.info,
        measure=pl.lit(kind),
        side=pl.lit(side),
        given_side=pl.lit(others[0] if others else None, pl.String()),
    )


def ls_pass(given: PassInput) -> PassResult:
    """LS_Score's numbers: how likely the tokens of the second side are, and its [CLS] cosine with
    every text of the first."""
    return scored_pairs(given, given.model.scores, LS_NUMBERS, cut=partial(_cut_texts, given.model))


TOKEN_SCORES_PASS = ModelPass("token_scores", "token_encoder", token_pass)
PERPLEXITY_PASS = ModelPass(PERPLEXITY, "causal_lm", perplexity_pass, unit="texts")
BART_SCORE_PASS = ModelPass(BART_SCORE, "seq2seq_lm", bart_score_pass)
BLANC_HELP_PASS = ModelPass(BLANC_HELP, "masked_lm", blanc_pass)
BLANC_TUNE_PASS = ModelPass(BLANC_TUNE, "masked_lm", blanc_pass)
FACTCC_PASS = ModelPass("factcc", "verifier", factcc_pass)
LS_PASS = ModelPass("ls", "ls_model", ls_pass)
