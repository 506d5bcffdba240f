"""Perplexity of a summary under a causal language model."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    PassRequirement,
    Requirements,
    Score,
    failure_reasons,
    no_text_reason,
    scored,
    unscored,
)

REFERENCE = (
    "Jelinek et al. 1977, Perplexity: a measure of the difficulty of speech recognition tasks; "
    "windows over long texts as in the documentation of transformers (perplexity of models of "
    "fixed length)"
)

_NEEDS = Requirements(columns=("summary",), passes=(PassRequirement("perplexity", ("summary",)),))


def perplexity(log_likelihood: float, tokens: float) -> float:
    """exp(−Σ log p / n): ``log_likelihood`` is the sum in nats over ``tokens`` tokens.

    Infinite where a float cannot hold it. `ValueError` for no token.
    """
    if not tokens > 0:
        raise ValueError("perplexity is a mean over tokens, and there is none")
    try:
        return math.exp(-log_likelihood / tokens)
    except OverflowError:
        return math.inf


def _score(tables: ChunkTables) -> list[Score]:
    failed = failure_reasons(tables, _NEEDS)
    wanted = (pl.col("measure") == "perplexity") & (pl.col("side") == "summary")
    rows: dict[str, dict[str, Any]] = {}
    for record, name, value in (
        tables["text_scores"].filter(wanted).select("id", "name", "value").iter_rows()
    ):
        rows.setdefault(record, {})[name] = value
    records = tables.records.select("id", "summary").iter_rows()
    return [
        unscored(record, failed[record])
        if record in failed
        else _score_record(record, text, rows.get(record, {}))
        for record, text in records
    ]


def _score_record(record: str, text: str | None, numbers: dict[str, Any]) -> Score:
    empty = no_text_reason((("summary", text),))
    if empty:
        return unscored(record, empty)
    log_likelihood, tokens = numbers.get("log_likelihood"), numbers.get("tokens")
    if log_likelihood is None or tokens is None:
        return unscored(record, "no likelihood of the summary")
    components: dict[str, object] = {"log_likelihood": log_likelihood, "tokens": int(tokens)}
    if not tokens:
        return unscored(record, "the summary is one token, with none before it", components)
    value = perplexity(log_likelihood, tokens)
    if not math.isfinite(value):
        return unscored(record, "the perplexity is not a finite number")
    return scored(record, value, components)


PERPLEXITY = Metric(
    name="perplexity",
    version="v1",
    requires=_NEEDS,
    score=_score,
    signature_keys=("causal_lm", "dtype", "claimscore"),
    higher_is="less probable words",
    range=(1.0, math.inf),
    description="exp of the mean negative log-likelihood of the summary's tokens (--causal-lm)",
    reference=REFERENCE,
    facts=(("first_token", "not_scored"), ("window", "limit/2")),
)
