"""LS_Score: how fluent a summary is to a trained model (L), and how close to its document (S).

As the paper defines it. The authors' program counts padding into L, which is then mostly the
summary's length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    "Wu et al. 2020, Unsupervised Reference-Free Summary Quality Evaluation via Contrastive "
    "Learning (EMNLP): L_Score, S_Score, LS_Score; whl97/LS-Score c8a57a2"
)

#: LS = ALPHA·L + BETA·S.
ALPHA, BETA = 0.01, 1.0

_EPS = 1e-6  # of the cosine in the published code
_REQUIRES = Requirements(
    columns=("source", "summary"), passes=(PassRequirement("ls", ("source", "summary")),)
)


class LSScore(NamedTuple):
    """L, S = cosine of the two [CLS] vectors, and their weighted sum LS."""

    linguistic: float
    semantic: float
    score: float


def ls_score(log_probs: ArrayLike, cls_document: ArrayLike, cls_summary: ArrayLike) -> LSScore:
    """LS_Score of one summary from its token log-probabilities and the two [CLS] vectors.

    `log_probs[i]` is the natural log of the probability that the head gives token i at its own
    place, nothing masked, [CLS] and [SEP] included. The vectors are `[hidden]`.

    Wu et al. 2020: L = (1/n)·Σ_i log p(x_i) over the n tokens, S = cos(document, summary),
    LS = 0.01·L + S. `ValueError` for no tokens, shapes that do not fit, or values that are no
    numbers.
    """
    values = np.asarray(log_probs, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"one log-probability a token, not {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("a log-probability is no number")
    semantic = cosine(np.asarray(cls_document, np.float64), np.asarray(cls_summary, np.float64))
    return combined(float(values.mean()), semantic)


def combined(linguistic: float, semantic: float) -> LSScore:
    """LS = 0.01·L + S."""
    return LSScore(linguistic, semantic, ALPHA * linguistic + BETA * semantic)


def cosine(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The cosine of two vectors, in [−1, 1]; the product of the norms counts as 1e-6 at least."""
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"two vectors of one length, not {first.shape} and {second.shape}")
    norms = max(float(np.linalg.norm(first) * np.linalg.norm(second)), _EPS)
    value = float(first @ second) / norms
    if not math.isfinite(value):
        raise ValueError("a [CLS] vector holds values that are no numbers")
    return min(1.0, max(-1.0, value))


def _score(tables: ChunkTables) -> list[Score]:
    of_summaries = text_numbers(tables, ("ls",), "summary", "source")

    def score_row(row: Mapping[str, Any]) -> Score:
        return _score_record(row["id"], of_summaries.get(row["id"], {}))

    return score_records(tables, _REQUIRES, score_row)


def _score_record(record: str, numbers: Mapping[int | None, Mapping[str, Any]]) -> Score:
    """`numbers` are by the place of the source; those of the summary alone are the same in all."""
    rows = [numbers[index] for index in sorted(numbers)]  # type: ignore[type-var] # has no None
    if not rows:
        return unscored(record, "no LS_Score rows")
    summary, semantic = rows[0], float(np.mean([row["semantic"] for row in rows]))
    result = combined(summary["linguistic"], semantic)
    components: dict[str, object] = {
        "summary_tokens": int(summary["summary_tokens"]),
        "summary_cut": int(summary["summary_cut"]),
        "n_sources": len(rows),
        "linguistic": result.linguistic,
        "semantic": result.semantic,
        "linguistic_without_special": summary["linguistic_inner"],
    }
    return scored(record, result.score, components)


LS_SCORE = Metric(
    name="ls-score",
    requires=_REQUIRES,
    score=_score,
    signature_keys=("ls_model", "dtype", "claimscore"),
    higher_is="more fluent, and closer to the document",
    range=(-math.inf, 1.0),
    description="Likelihood of the summary's words to a trained model, and its [CLS] cosine "
    "with the document",
    reference=REFERENCE,
)
