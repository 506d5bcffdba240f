"""How probable a language model finds a text: alone, or given another text of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import (
    ModelInfo,
    OnBatch,
    PairLikelihood,
    RejectedItemsError,
    TextLikelihood,
)
from claimscore.pipeline.passes.base import (
    ModelPass,
    PassInput,
    PassResult,
    failure_row,
    model_columns,
    truncated,
)
from claimscore.pipeline.passes.texts import TextPair, failed_side, text_pairs, texts_of
from claimscore.tables import FAILURES, TEXT_SCORES

PERPLEXITY, BART_SCORE = "perplexity", "bart_score"

#: Names of the two numbers of each text: a sum in nats, and how many tokens it is over.
LOG_LIKELIHOOD, TOKENS = "log_likelihood", "tokens"

_Compute = Callable[[Sequence[TextPair], OnBatch], NDArray[np.float64]]


def perplexity_pass(given: PassInput) -> PassResult:
    """The log-likelihood of every text of one side; blank texts have no row."""
    model: TextLikelihood = given.model
    (side,) = given.need.sides
    texts = texts_of(given.records, side)
    items = [
        TextPair(record, item.text, "", item.place, None)
        for record in given.records["id"]
        for item in texts.get(record, ())
    ]

    def compute(left: Sequence[TextPair], on_batch: OnBatch) -> NDArray[np.float64]:
        return model.log_likelihoods([item.first for item in left], on_batch=on_batch)

    return _scored(given, items, compute, model.info, side=side, given_side=None)


def bart_score_pass(given: PassInput) -> PassResult:
    """The log-likelihood of each text of the second side given each text of the first."""
    model: PairLikelihood = given.model
    source, target = given.need.sides
    pairs = text_pairs(given.records, first=source, second=target)

    def compute(left: Sequence[TextPair], on_batch: OnBatch) -> NDArray[np.float64]:
        sources, targets = [pair.first for pair in left], [pair.second for pair in left]
        return model.log_likelihoods(sources, targets, on_batch=on_batch)

    return _scored(given, pairs, compute, model.info, side=target, given_side=source)


def _scored(
    given: PassInput,
    items: Sequence[TextPair],
    compute: _Compute,
    info: ModelInfo,
    *,
    side: str,
    given_side: str | None,
) -> PassResult:
    """The rows of the items; one text that the model rejects costs its own record."""
    failures: list[dict[str, Any]] = []
    while True:
        try:
            values = compute(items, given.listen(len(items)))
        except RejectedItemsError as exc:
            rejected = {items[index].id for index in exc.indices}
            failed = failed_side(given.need.sides)
            failures += [
                failure_row(given.need.kind, record, exc) | {"side": failed}
                for record in sorted(rejected)
            ]
            items = [item for item in items if item.id not in rejected]
        else:
            texts = [item.first if given_side is None else item[1:3] for item in items]
            cut = truncated(given.model, texts)
            rows = _frame(items, values, cut, given.need.kind, side, given_side, info)
            return PassResult({TEXT_SCORES.name: rows}, FAILURES.frame(failures))


def _frame(
    items: Sequence[TextPair],
    values: NDArray[np.float64],
    cut: pl.Series,
    measure: str,
    side: str,
    given_side: str | None,
    info: ModelInfo,
) -> pl.DataFrame:
    """Two rows an item; the index is that of the side which has several texts."""
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
    if not rows:
        return TEXT_SCORES.empty()
    overrides = {name: TEXT_SCORES.schema[name] for name in ("given_index", "truncated")}
    frame = pl.DataFrame(rows, schema_overrides=overrides).with_columns(
        measure=pl.lit(measure),
        side=pl.lit(side),
        given_side=pl.lit(given_side, pl.String()),
        **model_columns(info),
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in TEXT_SCORES.schema.items())


PERPLEXITY_PASS = ModelPass(PERPLEXITY, "causal_lm", perplexity_pass, unit="texts")
BART_SCORE_PASS = ModelPass(BART_SCORE, "seq2seq_lm", bart_score_pass)
