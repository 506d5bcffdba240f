"""FactCC: whether a source supports a summary, both read as wholes by a model of two labels."""

from __future__ import annotations

import dataclasses

from claimscore.metrics.base import Metric, MetricFamily, PassRequirement, option
from claimscore.metrics.reference_texts import read_number, value_metric
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
    return value_metric(
        name,
        options,
        read_number("factcc", "supported", SOURCE_SIDE),
        "probability of support",
        (PassRequirement("factcc", (SOURCE_SIDE, "summary")),),
        signature_keys=("verifier", "dtype", "claimscore"),
        higher_is="more consistent",
        range=(0.0, 1.0),
        description="probability that the source supports the whole summary (--verifier)",
        reference=REFERENCE,
    )


FACTCC = MetricFamily("factcc", FactCCOptions, _make)
