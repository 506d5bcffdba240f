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
    failure_reasons,
    no_text_reason,
    scored,
    unscored,
)

REFERENCE = (
    "CASPR paper, the baseline BS⁻¹; Zhang et al. 2020, BERTScore: Evaluating Text Generation "
    "with BERT: F1 and baseline rescaling"
)

_NEEDS = Requirements(
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
    failed = failure_reasons(tables, _NEEDS)
    of_sides = (pl.col("candidate_side") == "a") & (pl.col("reference_side") == "b")
    rows = {row["id"]: row for row in tables["token_scores"].filter(of_sides).iter_rows(named=True)}
    records = tables.records.select("id", *_NEEDS.columns).iter_rows()
    return [
        unscored(record, failed[record])
        if record in failed
        else _score_record(record, rows.get(record), text_a, text_b)
        for record, text_a, text_b in records
    ]


def _score_record(
    record: str, row: dict[str, Any] | None, text_a: str | None, text_b: str | None
) -> Score:
    empty = no_text_reason((("summary_a", text_a), ("summary_b", text_b)))
    if empty:
        return unscored(record, empty)
    if row is None or row["f1"] is None:
        return unscored(record, "no token scores")
    components: dict[str, object] = {name: row[name] for name in _COMPONENTS}
    if not math.isfinite(row["f1"]):
        return unscored(record, "the BERTScore F1 is not a number", {"layer": row["layer"]})
    return scored(record, bs_inverse(row["f1"], row["baseline_f1"]), components)


BS_INVERSE = Metric(
    name="bs-inverse",
    version="v1",
    requires=_NEEDS,
    score=_score,
    signature_keys=("token_encoder", "layer", "baseline", "dtype", "claimscore"),
    higher_is="less alike",
    range=(0.0, math.inf),
    description="100·(1 − BERTScore F1) of the two summaries, rescaled with the model's baseline",
    reference=REFERENCE,
)
