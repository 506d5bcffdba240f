"""BS⁻¹: how far two summaries are apart by BERTScore."""

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
    score_records,
    scored,
    unscored,
)

REFERENCE = (
    "CASPR paper, the baseline BS⁻¹; Zhang et al. 2020, BERTScore: Evaluating Text Generation "
    "with BERT: F1 and baseline rescaling"
)

_REQUIRES = Requirements(
    columns=("summary_a", "summary_b"), passes=(PassRequirement("token_scores", ("a", "b")),)
)
_COMPONENTS = ("precision", "recall", "f1", "baseline_f1", "layer")


def rescaled(f1: float, baseline_f1: float) -> float:
    """F' = (F − b) / (1 − b), Zhang et al. 2020, baseline rescaling: 0 for two random sentences."""
    if not baseline_f1 < 1:
        raise ValueError(f"the baseline must be below 1, not {baseline_f1}")
    return (f1 - baseline_f1) / (1 - baseline_f1)


def bs_inverse(f1: float, baseline_f1: float | None = None) -> float:
    """BS⁻¹ = 100·(1 − F'), with F' the BERTScore F1, rescaled where a baseline is given.

    CASPR paper; its figures (72.5 for the references) need the rescaled F1. Never clipped: two
    texts less alike than random ones have a negative F', so the value can exceed 100.
    """
    return 100 * (1 - (f1 if baseline_f1 is None else rescaled(f1, baseline_f1)))


def _score(tables: ChunkTables) -> list[Score]:
    of_sides = (pl.col("candidate_side") == "a") & (pl.col("reference_side") == "b")
    rows = {row["id"]: row for row in tables["token_scores"].filter(of_sides).iter_rows(named=True)}

    def score(record: dict[str, Any]) -> Score:
        row = rows.get(record["id"])
        if row is None or row["f1"] is None:
            return unscored(record["id"], "no token scores")
        if not math.isfinite(row["f1"]):
            reason = "the BERTScore F1 is not a number"
            return unscored(record["id"], reason, {"layer": row["layer"]})
        components: dict[str, object] = {name: row[name] for name in _COMPONENTS}
        return scored(record["id"], bs_inverse(row["f1"], row["baseline_f1"]), components)

    return score_records(tables, _REQUIRES, score)


BS_INVERSE = Metric(
    name="bs-inverse",
    version="v1",
    requires=_REQUIRES,
    score=_score,
    signature_keys=("token_encoder", "layer", "baseline", "dtype", "claimscore"),
    higher_is="less alike",
    range=(0.0, math.inf),
    description="100·(1 − BERTScore F1) of the two summaries, rescaled with the model's baseline",
    reference=REFERENCE,
)
