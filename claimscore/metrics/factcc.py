"""FactCC: whether a source supports a summary, both read as wholes by a model of two labels."""

from __future__ import annotations

import dataclasses
import math

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    option,
    option_facts,
    text_numbers,
    unscored,
)
from claimscore.metrics.reference_texts import SummaryPair, score_pairs, scored_texts
from claimscore.tables import SOURCE_SIDE

REFERENCE = (
    "Kryściński et al. 2020, Evaluating the Factual Consistency of Abstractive Text Summarization "
    "(EMNLP), FactCC; as a baseline of whole texts in Laban et al. 2022 (SummaC), FactCC-CLS"
)


@dataclasses.dataclass(frozen=True)
class FactCCOptions:
    """Options of `factcc`."""

    multi: str = option(
        "max", "The value of a record with several sources: the best, or the mean.", ("max", "mean")
    )


def _make(name: str, options: FactCCOptions) -> Metric:
    requires = Requirements(
        columns=("source", "summary"),
        passes=(PassRequirement("factcc", (SOURCE_SIDE, "summary")),),
    )

    def score(tables: ChunkTables) -> list[Score]:
        found = text_numbers(tables, ("factcc",), "summary", SOURCE_SIDE)

        def score_pair(pair: SummaryPair) -> Score:
            values = {}
            for index in pair.texts:
                value = found.get(pair.id, {}).get(index, {}).get("supported")
                if value is None or not math.isfinite(value):
                    return unscored(pair.id, f"no probability of support: source {index}")
                values[index] = value
            return scored_texts(pair, values, options.multi, {})

        return score_pairs(tables, requires, SOURCE_SIDE, score_pair)

    return Metric(
        name=name,
        version="v1",
        requires=requires,
        score=score,
        signature_keys=("verifier", "dtype", "claimscore"),
        higher_is="more consistent",
        range=(0.0, 1.0),
        description="probability that the source supports the whole summary (--verifier)",
        reference=REFERENCE,
        facts=option_facts(options),
    )


FACTCC = MetricFamily("factcc", FactCCOptions, _make)
