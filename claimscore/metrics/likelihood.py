"""How probable a text is: BARTScore, given another text, and perplexity, by itself."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    TextNumbers,
    option,
    option_facts,
    score_records,
    scored,
    text_numbers,
    unscored,
)
from claimscore.metrics.reference_texts import SummaryPair, combined, score_pairs

REFERENCE = (
    "Yuan et al. 2021, BARTScore: Evaluating Generated Text as Text Generation: log-"
    "probabilities of all tokens with the same weight, as in bart_score.py of neulab/BARTScore"
)

#: Values of the option `direction` -> (given side, scored side) of each part.
DIRECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "faithfulness": (("source", "summary"),),
    "precision": (("references", "summary"),),
    "recall": (("summary", "references"),),
    "f": (("references", "summary"), ("summary", "references")),
}


def bart_score(log_likelihood: float, tokens: float) -> float:
    """The mean log-likelihood of the target's tokens given the source, Σ log p(y_t | y_<t, x) / m.

    `ValueError` for no token.
    """
    if not tokens > 0:
        raise ValueError("BARTScore is a mean over tokens, and there is none")
    return log_likelihood / tokens


@dataclasses.dataclass(frozen=True)
class BartScoreOptions:
    """Options of `bart-score`."""

    direction: str = option(
        "faithfulness", "The text that is scored, and the text that it is given.", DIRECTIONS
    )
    multi: str = option(
        "mean", "The value of a record with several texts: the mean, or the best.", ("mean", "max")
    )


def _make(name: str, options: BartScoreOptions) -> Metric:
    directions = DIRECTIONS[options.direction]
    against = "source" if options.direction == "faithfulness" else "references"
    requires = Requirements(
        columns=("summary", against),
        passes=tuple(PassRequirement("bart_score", sides) for sides in directions),
    )

    def score(tables: ChunkTables) -> list[Score]:
        rows = [text_numbers(tables, ("bart_score",), side, given) for given, side in directions]
        return score_pairs(tables, requires, against, lambda pair: _score_pair(pair, rows, options))

    shown = " and ".join(f"of {side} given {given}" for given, side in directions)
    return Metric(
        name=name,
        requires=requires,
        score=score,
        signature_keys=("seq2seq_lm", "dtype", "claimscore"),
        higher_is="more probable",
        range=(-math.inf, 0.0),
        description=f"Mean log-likelihood {shown} (--seq2seq-lm)",
        reference=REFERENCE,
        facts=option_facts(options),
    )


def _score_pair(pair: SummaryPair, rows: list[TextNumbers], options: BartScoreOptions) -> Score:
    means: dict[int, list[float]] = {}  # by text, one a direction
    for index in pair.texts:
        for of_direction in rows:
            numbers = of_direction.get(pair.id, {}).get(index, {})
            log_likelihood, tokens = numbers.get("log_likelihood"), numbers.get("tokens")
            if log_likelihood is None or not tokens:
                return unscored(pair.id, "no likelihoods")
            means.setdefault(index, []).append(bart_score(log_likelihood, tokens))
    values = {index: math.fsum(of_text) / len(of_text) for index, of_text in means.items()}
    if not all(map(math.isfinite, values.values())):
        return unscored(pair.id, "a likelihood is not a finite number")
    components: dict[str, object] = {"values": values}
    if options.direction == "f":
        for place, part in enumerate(("precision", "recall")):
            components[part] = {index: of_text[place] for index, of_text in means.items()}
    return scored(pair.id, combined(values, options.multi), components)


BART_SCORE = MetricFamily("bart-score", BartScoreOptions, _make)


# Perplexity

PERPLEXITY_REFERENCE = (
    "Jelinek et al. 1977, Perplexity: a measure of the difficulty of speech recognition tasks; "
    "windows over long texts as in the documentation of transformers (perplexity of models of "
    "fixed length)"
)

_PERPLEXITY_REQUIRES = Requirements(
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


def _score_perplexity(tables: ChunkTables) -> list[Score]:
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

    return score_records(tables, _PERPLEXITY_REQUIRES, score)


PERPLEXITY = Metric(
    name="perplexity",
    requires=_PERPLEXITY_REQUIRES,
    score=_score_perplexity,
    signature_keys=("causal_lm", "dtype", "claimscore"),
    higher_is="less probable words",
    range=(1.0, math.inf),
    description="exp of the mean negative log-likelihood of the summary's tokens (--causal-lm)",
    reference=PERPLEXITY_REFERENCE,
    facts=(("first_token", "not_scored"), ("window", "limit/2")),
    worst="highest",
)
