"""Numbers of whole texts: BERTScore of two sides, how likely a language model finds a text, BLANC,
FactCC and LS_Score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from claimscore.pipeline.encoders.ls_model import LSModel, PairNumbers

PERPLEXITY, BART_SCORE = "perplexity", "bart_score"
BLANC_HELP, BLANC_TUNE = "blanc_help", "blanc_tune"

#: Names of the two numbers of each text: a sum in nats, and how many tokens it is over.
LIKELIHOOD = LOG_LIKELIHOOD, TOKENS = "log_likelihood", "tokens"

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
    every = [
        RecordTexts(record, text, "", place, None)
        for record, texts in texts_of(given.records, *given.need.sides).items()
        for place, text in texts
    ]
    return _numbers(given, every, given.model.log_likelihoods, LIKELIHOOD)


def bart_score_pass(given: PassInput) -> PassResult:
    """The log-likelihood of each text of the second side given each text of the first."""
    return _of_pairs(given, given.model.log_likelihoods, LIKELIHOOD)


def blanc_pass(given: PassInput) -> PassResult:
    """Masked tokens of each text of the first side that are predicted, by that of the second."""
    model, tuned = given.model, given.need.kind == BLANC_TUNE
    return _of_pairs(given, model.tune_counts if tuned else model.help_counts, BLANC_COUNTS)


def factcc_pass(given: PassInput) -> PassResult:
    """The probability that a text of the first side supports the whole text of the second."""
    model: Verifier = given.model

    def supported(
        sources: Sequence[str], summaries: Sequence[str], *, on_batch: OnBatch
    ) -> NDArray[np.float64]:
        pairs = list(zip(sources, summaries, strict=True))
        return model.classify(pairs, on_batch=on_batch)[:, :1].astype(np.float64)

    return _of_pairs(given, supported, ("supported",))


def _of_pairs(
    given: PassInput, call: Callable[..., NDArray[np.float64]], names: Sequence[str]
) -> PassResult:
    first, second = given.need.sides
    return _numbers(given, text_pairs(given.records, first=first, second=second), call, names)


def _numbers(
    given: PassInput,
    every: list[RecordTexts],
    call: Callable[..., NDArray[np.float64]],
    names: Sequence[str],
) -> PassResult:
    """A row an item and name; the index is that of the side which has several texts."""
    kind, sides = given.need.kind, given.need.sides
    texts = BOTH[: len(sides)]
    items, values, failures = asked(given, every, call, *texts, side=failed_side(sides))
    pairs = [(item.first, item.second) for item in items]
    cut = truncated(given.model, pairs if len(sides) == 2 else [text for text, _ in pairs])
    rows = [
        {
            "id": item.id,
            "given_index": item.second_index if item.first_index is None else item.first_index,
            "name": name,
            "value": float(value),
            "truncated": flag,
        }
        for item, numbers, flag in zip(items, values, cut, strict=True)
        for name, value in zip(names, numbers, strict=True)
    ]
    return pass_result(
        TEXT_SCORES,
        TEXT_SCORES.frame(rows),
        failures,
        given.model.info,
        measure=pl.lit(kind),
        side=pl.lit(sides[-1]),
        given_side=pl.lit(sides[0] if len(sides) == 2 else None, pl.String()),
    )


def ls_pass(given: PassInput) -> PassResult:
    """LS_Score's numbers: how likely a summary's tokens are, and its [CLS] cosine with every text
    of the source; records with a blank side have none."""
    model: LSModel = given.model
    document_side, summary_side = given.need.sides
    documents = texts_of(given.records, document_side)
    every = [
        RecordTexts(record, document, texts[0][1], index, None)
        for record, texts in texts_of(given.records, summary_side).items()
        if texts and record not in given.broken
        for index, (_, document) in enumerate(documents.get(record, ()))
    ]
    items, numbers, failures = asked(given, every, model.score, attrgetter("first", "second"))
    rows = _ls_rows(items, numbers, document_side, summary_side)
    return pass_result(
        TEXT_SCORES,
        TEXT_SCORES.frame(list(rows)),
        failures,
        model.info,
        measure=pl.lit(given.need.kind),
    )


def _ls_rows(
    items: Sequence[RecordTexts],
    numbers: PairNumbers,
    document_side: str,
    summary_side: str,
) -> Iterator[dict[str, Any]]:
    """The rows of each pair; those of the summary alone stand once, at its first document."""
    columns = {name: values.tolist() for name, values in numbers._asdict().items()}
    for i, item in enumerate(items):
        row = {name: values[i] for name, values in columns.items()}
        cut = row["summary_cut"] > 0
        if item.first_index == 0:
            for part in ("linguistic", "linguistic_inner"):
                yield _value(item.id, summary_side, part, row[part]) | {"truncated": cut}
            yield _value(item.id, summary_side, "tokens", row["summary_tokens"])
            yield _value(item.id, summary_side, "cut", row["summary_cut"])
        beside = {
            "given_side": document_side,
            "given_index": item.first_index,
            "truncated": cut or row["document_cut"] > 0,
        }
        yield _value(item.id, summary_side, "semantic", row["semantic"]) | beside


def _value(record: str, side: str, name: str, value: float) -> dict[str, Any]:
    return {"id": record, "side": side, "name": name, "value": float(value)}


TOKEN_SCORES_PASS = ModelPass("token_scores", "token_encoder", token_pass)
PERPLEXITY_PASS = ModelPass(PERPLEXITY, "causal_lm", perplexity_pass, unit="texts")
BART_SCORE_PASS = ModelPass(BART_SCORE, "seq2seq_lm", bart_score_pass)
BLANC_HELP_PASS = ModelPass(BLANC_HELP, "masked_lm", blanc_pass)
BLANC_TUNE_PASS = ModelPass(BLANC_TUNE, "masked_lm", blanc_pass)
FACTCC_PASS = ModelPass("factcc", "verifier", factcc_pass)
LS_PASS = ModelPass("ls", "ls_model", ls_pass)
