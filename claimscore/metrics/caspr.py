"""CASPR: how contrastive two summaries are, judged claim against claim by an NLI model.

Everything rests on signs: entailment +1, neutral 0, contradiction −1. The label of a pair is
the sign of the sum of its two directions, which is the table of appendix C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    PassRequirement,
    Requirements,
    Score,
    TaskRequirement,
)
from claimscore.metrics.ragged import (
    Cells,
    Ints,
    Matrices,
    Shapes,
    arrange,
    count_rows,
    reduce_runs,
    score_matrices,
    split_runs,
    transposed,
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
_REQUIRES = Requirements(
    columns=("summary_a", "summary_b"),
    tasks=(TaskRequirement("decompose", ("a", "b")),),
    passes=(PassRequirement("nli", ("a", "b")),),
)


def _score(tables: ChunkTables) -> list[Score]:
    ids, claims = tables.records["id"], tables["claims"]
    n_a, n_b = (count_rows(ids, claims.filter(pl.col("side") == side)["id"]) for side in ("a", "b"))
    judged = arrange(_cells(ids, tables["nli"]), Shapes(n_a, 2 * n_b))
    counts = [{"n_a": a, "n_b": b} for a, b in zip(n_a.tolist(), n_b.tolist(), strict=True)]

    def missing(number: int) -> str:
        a, b = counts[number].values()
        if not (a and b):
            return f"no claims in summary_{'b' if a else 'a'}"
        if not judged.complete[number]:
            found = f"{judged.n_found[number]} of {2 * a * b}"
            return f"nli rows do not match the claims: {found} are there, each once"
        return "nli probabilities are not numbers"

    return score_matrices(tables, _REQUIRES, judged, counts, _values(judged), missing)


def _cells(ids: pl.Series, nli: pl.DataFrame) -> Cells:
    """Claims of a by claims of b; the two directions of a pair are neighbours in a row."""
    return Cells.read(
        ids,
        pl.concat(
            nli.filter(
                (pl.col("premise_side") == premise) & (pl.col("hypothesis_side") == hypothesis)
            ).select("id", *LABELS, row=of_a, column=2 * pl.col(of_b) + place)
            for place, premise, hypothesis, of_a, of_b in (
                (0, "a", "b", "premise_index", "hypothesis_index"),
                (1, "b", "a", "hypothesis_index", "premise_index"),
            )
        ),
    )


def _values(judged: Matrices) -> Iterator[tuple[float, dict[str, object]]]:
    """Value and components of each complete record, as `sentence_scores` defines them."""
    shapes = Shapes(judged.shapes.n_rows, judged.shapes.n_columns // 2)
    signs = _SIGN_OF_COLUMN[judged.values.argmax(axis=1)]
    pairs = np.sign(signs[0::2] + signs[1::2]).astype(np.int64)
    owners = np.repeat(np.arange(len(judged.records)), shapes.sizes)
    of_label = np.bincount(3 * owners + 1 - pairs, minlength=3 * len(judged.records))
    of_a = _run_scores(pairs, shapes.row_lengths)
    of_b = _run_scores(transposed(pairs, shapes), shapes.column_lengths)
    for scores_a, scores_b, labels in zip(
        split_runs(of_a, shapes.n_rows),
        split_runs(of_b, shapes.n_columns),
        of_label.reshape(-1, 3).tolist(),
        strict=True,
    ):
        mean = (sum(scores_a) + sum(scores_b)) / (len(scores_a) + len(scores_b))
        yield (
            _caspr(mean),
            {
                "sentence_scores_a": scores_a,
                "sentence_scores_b": scores_b,
                "pairs": dict(zip(LABELS, labels, strict=True)),
            },
        )


def _run_scores(pairs: NDArray[np.int64], lengths: Ints) -> NDArray[np.int64]:
    decided = reduce_runs(np.abs(pairs), lengths, "max") > 0
    similar = decided & (reduce_runs(pairs, lengths, "mean") >= 0)
    return np.where(similar, -1, 1)


CASPR = Metric(
    name="caspr",
    version="v1",
    requires=_REQUIRES,
    score=_score,
    signature_keys=("decompose", "llm", "units", "granularity", "nli", "dtype", "claimscore"),
    higher_is="more contrastive",
    range=(0.0, 100.0),
    description="How far the claims of two summaries contradict, or do not repeat, each other",
    reference=REFERENCE,
)
