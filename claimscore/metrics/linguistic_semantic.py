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
VARIANTS = ("paper", "code", "bert-linear")

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
    token_ids: ArrayLike,
    log_probs: ArrayLike,
    cls_document: ArrayLike,
    cls_summary: ArrayLike,
    *,
    variant: str,
    special_tokens: bool = True,
    pad_token_id: int = 0,
) -> LSScore:
    """LS_Score of one summary from its token log-probabilities and the two [CLS] vectors.

    `token_ids` are the summary's ids, [CLS] and [SEP] included; trailing `pad_token_id` is
    padding. `log_probs[i]` is the natural log of the probability that the head gives token i at
    its own place, nothing masked; or a row `[vocabulary]` of which that token's is taken. The
    rows may go on after the ids: those are padded positions. The vectors are `[hidden]`.

    Wu et al. 2020, `paper`: L = (1/n)·Σ_i log p(x_i) over the n tokens ([CLS] and
    [SEP] unless `special_tokens` is false), S = cos(document, summary), LS = 0.01·L + S.
    `code`: L = ((1/n)·Σ log p + 200) / 100 with the sum over every position given (512 in
    the published code, of which the padded ones ask for [PAD]) and n without padding;
    LS = L + S. `ValueError` for no tokens, shapes that do not fit, or values that are no numbers.
    """
    values, n = _own_log_probs(np.asarray(token_ids), np.asarray(log_probs), pad_token_id)
    if variant == "paper":
        counted = values[:n] if special_tokens else values[1 : n - 1]
        if not len(counted):
            raise ValueError("a summary without tokens has no L")
        linguistic = float(counted.mean())
    elif variant == "code":
        linguistic = code_linguistic(float(values.sum()), n)
    else:
        raise ValueError(f"variant is paper or code, not {variant!r}")
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


def _own_log_probs(
    ids: NDArray[Any], log_probs: NDArray[Any], pad_token_id: int
) -> tuple[NDArray[np.float64], int]:
    """The log-probability of the token at every position, and how many are no padding."""
    if ids.ndim != 1 or log_probs.ndim not in (1, 2) or len(log_probs) < len(ids):
        raise ValueError(
            f"one log-probability (or row) a token, not {log_probs.shape} for ids {ids.shape}"
        )
    own = np.flatnonzero(ids != pad_token_id)
    if not len(own):
        raise ValueError("a summary without tokens has no L")
    if log_probs.ndim == 2:
        padded = np.full(len(log_probs), pad_token_id, dtype=np.int64)
        padded[: len(ids)] = ids
        log_probs = log_probs[np.arange(len(log_probs)), padded]
    values = log_probs.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a log-probability is no number")
    return values, int(own[-1]) + 1


@dataclasses.dataclass(frozen=True)
class LSOptions:
    """Options of `ls-score`."""

    variant: str = option(
        "paper",
        "The definition of the paper, of the published code, or of a model with a linear head.",
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
            own, sources = of_summaries.get(record, {}), of_sources.get(record, {})
            return _score_record(record, own, sources, options.variant)

        return score_records(tables, requires, score_row)

    return Metric(
        name=name,
        version="v1",
        requires=requires,
        score=score,
        signature_keys=("ls_model", "dtype", "claimscore"),
        higher_is="more fluent, and closer to the document",
        range=(-math.inf, {"paper": 1.0, "code": 3.0}.get(options.variant, math.inf)),
        description="Likelihood of the summary's words to a trained model, and its [CLS] cosine "
        "with the document",
        reference=REFERENCE,
        facts=option_facts(options),
    )


_Numbers = Mapping[int | None, Mapping[str, Any]]


def _score_record(record: str, own: _Numbers, sources: _Numbers, variant: str) -> Score:
    """`own` are the summary's numbers: its own under None, those with a source by its place."""
    summary = own.get(None, {})
    with_source = [own[index] for index in sorted(index for index in own if index is not None)]
    components: dict[str, object] = {
        "summary_tokens": _integer(summary.get("tokens")),
        "summary_cut": _integer(summary.get("cut")),
        "source_cut": int(sum(each.get("cut", 0) for each in sources.values())),
        "n_sources": len(sources),
    }
    linear = [each["linear"] for each in with_source if "linear" in each]
    if variant == "bert-linear":
        if not linear:
            return unscored(record, "the model has LS_Score's head: use ls-score", components)
        return scored(record, float(np.mean(linear)), components)
    name = "linguistic" if variant == "paper" else "linguistic_code"
    if name not in summary:
        reason = "the model has a linear head: use ls-score:variant=bert-linear"
        return unscored(record, reason if linear else "no LS_Score rows", components)
    semantic = float(np.mean([each["semantic"] for each in with_source]))
    result = combined(summary[name], semantic, variant)
    components |= {"linguistic": result.linguistic, "semantic": result.semantic}
    if variant == "paper":
        components["linguistic_without_special"] = summary["linguistic_inner"]
    return scored(record, result.score, components)


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)


LS_SCORE = MetricFamily("ls-score", LSOptions, _make)
