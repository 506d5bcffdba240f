"""Perplexity of a summary under a causal language model."""

from __future__ import annotations

import math
from typing import Any

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    PassRequirement,
    Requirements,
    Score,
    score_records,
    scored,
    text_numbers,
    unscored,
)

REFERENCE = (
    "Jelinek et al. 1977, Perplexity: a measure of the difficulty of speech recognition tasks; "
    "windows over long texts as in the documentation of transformers (perplexity of models of "
    "fixed length)"
)

_REQUIRES = Requirements(
    columns=("summary",), passes=(PassRequirement("perplexity", ("summary",)),)
)


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
    numbers = text_numbers(tables, ("perplexity",), "summary")

    def score(row: dict[str, Any]) -> Score:
        record, of_text = row["id"], numbers.get(row["id"], {}).get(None, {})
        log_likelihood, tokens = of_text.get("log_likelihood"), of_text.get("tokens")
        if log_likelihood is None or tokens is None:
            return unscored(record, "no likelihood of the summary")
        components: dict[str, object] = {"log_likelihood": log_likelihood, "tokens": int(tokens)}
        if not tokens:
            return unscored(record, "the summary is one token, with none before it", components)
        value = perplexity(log_likelihood, tokens)
        if not math.isfinite(value):
            return unscored(record, "the perplexity is not a finite number")
        return scored(record, value, components)

    return score_records(tables, _REQUIRES, score)


PERPLEXITY = Metric(
    name="perplexity",
    requires=_REQUIRES,
    score=_score,
    signature_keys=("causal_lm", "dtype", "claimscore"),
    higher_is="less probable words",
    range=(1.0, math.inf),
    description="exp of the mean negative log-likelihood of the summary's tokens (--causal-lm)",
    reference=REFERENCE,
    facts=(("first_token", "not_scored"), ("window", "limit/2")),
    worst="highest",
)
