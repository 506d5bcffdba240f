"""LS_Score: how fluent a summary is to a trained model (L), and how close to its document (S).

`paper` is the definition as published, `code` what the authors' program computes; they differ in
L alone, by the padding that the program counts in and by a shift and a scale.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    option,
    option_facts,
    score_records,
    scored,
    text_numbers,
    unscored,
)

REFERENCE = (
    "Wu et al. 2020, Unsupervised Reference-Free Summary Quality Evaluation via Contrastive "
    "Learning (EMNLP): L_Score, S_Score, LS_Score; whl97/LS-Score c8a57a2 (code)"
)

#: LS = ALPHA·L + BETA·S in the paper; in the code both weights are 1 after L's own scaling.
ALPHA, BETA = 0.01, 1.0
VARIANTS = ("paper", "code")

_EPS = 1e-6  # of the cosine in the published code
_COLUMNS = ("source", "summary")
_LS_PASS = PassRequirement("ls", ("source", "summary"))
_PADDED_PASS = PassRequirement("ls_padded", ("summary",))


class LSScore(NamedTuple):
    """L (as the variant scales it), S = cosine of the two [CLS] vectors, and their sum LS."""

    linguistic: float
    semantic: float
    score: float


def ls_score(
    log_probs: ArrayLike,
    cls_document: ArrayLike,
    cls_summary: ArrayLike,
    *,
    variant: str,
    n_tokens: int | None = None,
) -> LSScore:
    """LS_Score of one summary from its token log-probabilities and the two [CLS] vectors.

    `log_probs[i]` is the natural log of the probability that the head gives token i at its own
    place, nothing masked, [CLS] and [SEP] included; from `n_tokens` on (None: nowhere) they are of
    padded positions. The vectors are `[hidden]`.

    Wu et al. 2020, `paper`: L = (1/n)·Σ_i log p(x_i) over the n tokens,
    S = cos(document, summary), LS = 0.01·L + S.
    `code`: L = ((1/n)·Σ log p + 200) / 100 with the sum over every position given (512 in
    the published code, of which the padded ones ask for [PAD]) and n without padding;
    LS = L + S. `ValueError` for no tokens, shapes that do not fit, or values that are no numbers.
    """
    values = np.asarray(log_probs, np.float64)
    n = len(values) if n_tokens is None else n_tokens
    if values.ndim != 1 or not 0 < n <= len(values):
        raise ValueError(f"one log-probability a token, not {values.shape} for {n} tokens")
    if not np.isfinite(values).all():
        raise ValueError("a log-probability is no number")
    if variant not in VARIANTS:
        raise ValueError(f"variant is paper or code, not {variant!r}")
    code = code_linguistic(float(values.sum()), n)
    linguistic = code if variant == "code" else float(values[:n].mean())
    semantic = cosine(np.asarray(cls_document, np.float64), np.asarray(cls_summary, np.float64))
    return combined(linguistic, semantic, variant)


def code_linguistic(log_prob: float, n_tokens: int) -> float:
    """L of the published code: the sum over all positions by the tokens, shifted and scaled."""
    return (log_prob / n_tokens + 200) / 100


def combined(linguistic: float, semantic: float, variant: str) -> LSScore:
    """LS = 0.01·L + S (`paper`), or L + S (`code`)."""
    weight = ALPHA if variant == "paper" else 1.0
    return LSScore(linguistic, semantic, weight * linguistic + BETA * semantic)


def cosine(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The cosine of two vectors, in [−1, 1]; the product of the norms counts as 1e-6 at least."""
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"two vectors of one length, not {first.shape} and {second.shape}")
    norms = max(float(np.linalg.norm(first) * np.linalg.norm(second)), _EPS)
    value = float(first @ second) / norms
    if not math.isfinite(value):
        raise ValueError("a [CLS] vector holds values that are no numbers")
    return min(1.0, max(-1.0, value))


@dataclasses.dataclass(frozen=True)
class LSOptions:
    """Options of `ls-score`."""

    variant: str = option(
        "paper",
        "The definition of the paper, or of the published code.",
        VARIANTS,
    )


def _make(name: str, options: LSOptions) -> Metric:
    passes = (_LS_PASS, _PADDED_PASS) if options.variant == "code" else (_LS_PASS,)
    requires = Requirements(columns=_COLUMNS, passes=passes)

    def score(tables: ChunkTables) -> list[Score]:
        of_summaries = text_numbers(tables, ("ls", "ls_padded"), "summary")
        of_sources = text_numbers(tables, ("ls",), "source")

        def score_row(row: Mapping[str, Any]) -> Score:
            record = row["id"]
            if record not in of_summaries and record not in of_sources:
                return unscored(record, "no LS_Score rows")
            numbers, sources = of_summaries.get(record, {}), of_sources.get(record, {})
            return _score_record(record, numbers, sources, options.variant)

        return score_records(tables, requires, score_row)

    return Metric(
        name=name,
        requires=requires,
        score=score,
        signature_keys=("ls_model", "dtype", "claimscore"),
        higher_is="more fluent, and closer to the document",
        range=(-math.inf, {"paper": 1.0, "code": 3.0}[options.variant]),
        description="Likelihood of the summary's words to a trained model, and its [CLS] cosine "
        "with the document",
        reference=REFERENCE,
        facts=option_facts(options),
    )


_Numbers = Mapping[int | None, Mapping[str, Any]]


def _score_record(record: str, numbers: _Numbers, sources: _Numbers, variant: str) -> Score:
    """`numbers` are the summary's: its own under None, those with a source by its place."""
    summary = numbers.get(None, {})
    with_source = [numbers[index] for index in sorted(i for i in numbers if i is not None)]
    components: dict[str, object] = {
        "summary_tokens": _integer(summary.get("tokens")),
        "summary_cut": _integer(summary.get("cut")),
        "source_cut": int(sum(row.get("cut", 0) for row in sources.values())),
        "n_sources": len(sources),
    }
    name = "linguistic" if variant == "paper" else "linguistic_code"
    if name not in summary:
        return unscored(record, "no LS_Score rows", components)
    semantic = float(np.mean([row["semantic"] for row in with_source]))
    result = combined(summary[name], semantic, variant)
    components |= {"linguistic": result.linguistic, "semantic": result.semantic}
    if variant == "paper":
        components["linguistic_without_special"] = summary["linguistic_inner"]
    return scored(record, result.score, components)


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)


LS_SCORE = MetricFamily("ls-score", LSOptions, _make)
