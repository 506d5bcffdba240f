"""CASPR: how contrastive two summaries are, judged claim against claim by an NLI model.

Everything rests on signs: entailment +1, neutral 0, contradiction −1. The label of a pair is
the sign of the sum of its two directions, which is the table of appendix C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    Needs,
    PassNeed,
    Score,
    TaskNeed,
    failure_reasons,
    scored,
    unscored,
)

REFERENCE = "CASPR paper, section 2.2 and appendix C"

#: The three labels, in the order of the probability columns everywhere in claimscore.
LABELS = ("entailment", "neutral", "contradiction")

Signs = NDArray[np.int8]
Matrix = Sequence[Sequence[str]] | Sequence[Sequence[Sequence[float]]] | NDArray[Any]

_SIGN_OF_COLUMN = np.array([1, 0, -1], dtype=np.int8)
_SIGN_OF_LABEL = dict(zip(LABELS, (1, 0, -1), strict=True))
_LABEL_OF_SIGN = {sign: label for label, sign in _SIGN_OF_LABEL.items()}


class SentenceScores(NamedTuple):
    """+1 (contrastive) or −1 (similar) for every claim of the two summaries."""

    a: list[int]
    b: list[int]


def caspr_from_labels(forward: Matrix, backward: Matrix) -> float | None:
    """CASPR of two summaries from the NLI labels of their claims; None where both are empty.

    `forward[i][j]` belongs to premise a_i and hypothesis b_j, `backward[j][i]` to premise b_j
    and hypothesis a_i: a label, or the probabilities of entailment, neutral, contradiction,
    of which the largest counts.

    CASPR = 50·(L̂ + 1), L̂ the mean of the scores of all m + n claims, pooled (CASPR paper,
    section 2.2 and appendix C; see `pair_labels` and `sentence_scores`). In [0, 100]. Where
    only one summary has claims the formula gives 100.
    """
    scores = sentence_scores(forward, backward)
    pooled = [*scores.a, *scores.b]
    return _caspr(float(np.mean(pooled))) if pooled else None


def pair_labels(forward: Matrix, backward: Matrix) -> list[list[str]]:
    """One label for each pair (a_i, b_j) from its two directions.

    CASPR paper, appendix C: both neutral is neutral; entailment with entailment or neutral is
    entailment; contradiction with contradiction or neutral is contradiction; entailment with
    contradiction is neutral.
    """
    return [[_LABEL_OF_SIGN[sign] for sign in row] for row in _pair_signs(forward, backward)]


def sentence_scores(forward: Matrix, backward: Matrix) -> SentenceScores:
    """The score of each claim, from its pairs with all claims of the other summary.

    CASPR paper, section 2.2 and appendix C: all neutral gives +1; else at least as many
    entailments as contradictions give −1; else +1.
    """
    pairs = _pair_signs(forward, backward)
    return SentenceScores(_sentence_scores(pairs, 1), _sentence_scores(pairs, 0))


def _caspr(mean: float) -> float:
    return 50 * (mean + 1)


def _sentence_scores(pairs: Signs, axis: int) -> list[int]:
    decided = (pairs != 0).any(axis=axis)
    similar = decided & (pairs.sum(axis=axis, dtype=np.int64) >= 0)
    scores: list[int] = np.where(similar, -1, 1).tolist()
    return scores


def _pair_signs(forward: Matrix, backward: Matrix) -> Signs:
    shape = (len(forward), len(backward))
    there = _signs(forward, shape, "forward")
    back = _signs(backward, shape[::-1], "backward")
    pairs: Signs = np.sign(there + back.T)
    return pairs


def _signs(matrix: Matrix, shape: tuple[int, int], name: str) -> Signs:
    """The matrix as signs; `ValueError` where it has not that shape or other labels."""
    if any(len(row) != shape[1] for row in matrix):
        raise ValueError(f"{name} must have {shape[0]} rows of {shape[1]}, as the other side has")
    if 0 in shape:
        return np.zeros(shape, dtype=np.int8)
    if isinstance(matrix[0][0], str):
        return _signs_of_labels(matrix, name)
    return _signs_of_probabilities(matrix, name)


def _signs_of_labels(matrix: Matrix, name: str) -> Signs:
    try:
        signs = [[_SIGN_OF_LABEL[str(label)] for label in row] for row in matrix]
    except KeyError as exc:
        raise ValueError(f"{name}: {exc} is not one of {', '.join(LABELS)}") from None
    return np.array(signs, dtype=np.int8)


def _signs_of_probabilities(matrix: ArrayLike, name: str) -> Signs:
    probabilities = np.asarray(matrix, dtype=np.float64)
    if probabilities.ndim != 3 or probabilities.shape[2] != len(LABELS):
        raise ValueError(f"{name} must hold labels or rows of {len(LABELS)} probabilities")
    if not np.isfinite(probabilities).all():
        raise ValueError(f"{name} holds a probability that is not a number")
    signs: Signs = _SIGN_OF_COLUMN[probabilities.argmax(axis=2)]
    return signs


#: The pass judges both directions.
_NEEDS = Needs(
    columns=("summary_a", "summary_b"),
    tasks=(TaskNeed("decompose", ("a", "b")),),
    passes=(PassNeed("nli", ("a", "b")),),
)


def _score(tables: ChunkTables) -> list[Score]:
    failed = failure_reasons(tables, _NEEDS)
    return [_score_row(row, failed.get(row["id"])) for row in _summarise(tables)]


def _score_row(row: dict[str, Any], failure: str | None) -> Score:
    counts: dict[str, object] = {"n_a": row["n_a"], "n_b": row["n_b"]}
    reason = failure or _missing(row)
    if reason:
        return unscored(row["id"], reason, counts)
    scores_a, scores_b = row["scores_a"], row["scores_b"]
    mean = (sum(scores_a) + sum(scores_b)) / (len(scores_a) + len(scores_b))
    components = counts | {
        "sentence_scores_a": scores_a,
        "sentence_scores_b": scores_b,
        "pairs": {label: row[label] for label in LABELS},
    }
    return scored(row["id"], _caspr(mean), components)


def _missing(row: dict[str, Any]) -> str | None:
    """Why the claims and NLI rows of a record do not make a score; None where they do."""
    for side in ("a", "b"):
        if not row[f"n_{side}"]:
            return f"no claims in summary_{side}"
    wanted = row["n_a"] * row["n_b"]
    if not row["n_rows_a"] == row["n_rows_b"] == row["n_pairs"] == wanted:
        return f"nli rows do not match the claims: {row['n_pairs'] or 0} of {wanted} pairs"
    if not row["finite"]:
        return "nli probabilities are not numbers"
    return None


def _summarise(tables: ChunkTables) -> list[dict[str, Any]]:
    """One row a record: counts of claims, NLI rows and pair labels, and the claims' scores."""
    forward, backward = _direction(tables["nli"], "a", "b"), _direction(tables["nli"], "b", "a")
    pairs = forward.join(backward, on=("id", "i", "j")).select(
        "id",
        "i",
        "j",
        pair=(pl.col("sign") + pl.col("sign_right")).sign(),
        finite=pl.col("finite") & pl.col("finite_right"),
    )
    counts = {
        "n_a": tables["claims"].filter(pl.col("side") == "a"),
        "n_b": tables["claims"].filter(pl.col("side") == "b"),
        "n_rows_a": forward,
        "n_rows_b": backward,
    }
    records = tables.records.select("id")
    for name, frame in counts.items():
        per_record = frame.group_by("id").agg(pl.len().alias(name))
        records = records.join(per_record, on="id", how="left", maintain_order="left")
    for frame in (
        _pair_counts(pairs),
        _side_scores(pairs, "i", "a"),
        _side_scores(pairs, "j", "b"),
    ):
        records = records.join(frame, on="id", how="left", maintain_order="left")
    return records.with_columns(pl.col("n_a", "n_b").fill_null(0)).to_dicts()


def _direction(nli: pl.DataFrame, premise: str, hypothesis: str) -> pl.DataFrame:
    """The rows of one direction as id, i (claim of a), j (claim of b), sign, finite."""
    rows = nli.filter(
        (pl.col("premise_side") == premise) & (pl.col("hypothesis_side") == hypothesis)
    )
    probabilities = rows.select(LABELS).to_numpy().reshape(-1, len(LABELS))
    return rows.select(
        "id",
        i=pl.col(f"{'premise' if premise == 'a' else 'hypothesis'}_index"),
        j=pl.col(f"{'premise' if premise == 'b' else 'hypothesis'}_index"),
        sign=pl.Series(_SIGN_OF_COLUMN[probabilities.argmax(axis=1)]),
        finite=pl.Series(np.isfinite(probabilities).all(axis=1)),
    )


def _pair_counts(pairs: pl.DataFrame) -> pl.DataFrame:
    of_label = {label: (pl.col("pair") == _SIGN_OF_LABEL[label]).sum() for label in LABELS}
    return pairs.group_by("id").agg(n_pairs=pl.len(), finite=pl.col("finite").all(), **of_label)


def _side_scores(pairs: pl.DataFrame, index: str, side: str) -> pl.DataFrame:
    """For each record the scores of one side's claims, in the order of the claims."""
    similar = (pl.col("pair") != 0).any() & (pl.col("pair").cast(pl.Int32).sum() >= 0)
    return (
        pairs.group_by("id", index)
        .agg(score=pl.when(similar).then(-1).otherwise(1))
        .sort("id", index)
        .group_by("id", maintain_order=True)
        .agg(pl.col("score").alias(f"scores_{side}"))
    )


CASPR = Metric(
    name="caspr",
    version="v1",
    needs=_NEEDS,
    score=_score,
    signature_keys=("decompose", "llm", "units", "granularity", "nli", "dtype", "claimscore"),
    higher_is="more contrastive",
    range=(0.0, 100.0),
    description="How far the claims of two summaries contradict, or do not repeat, each other",
    reference=REFERENCE,
)
