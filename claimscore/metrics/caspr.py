"""CASPR: how contrastive two summaries are, judged claim against claim by an NLI model.

Everything rests on signs: entailment +1, neutral 0, contradiction −1. The label of a pair is
the sign of the sum of its two directions, which is the table of appendix C.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    TaskRequirement,
    option_facts,
    score_records,
    scored,
    unscored,
)
from claimscore.metrics.claims import (
    EACH,
    NO_CELLS,
    cells_by_record,
    counted,
    repeats_option,
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
    return _caspr(scores) if scores.a or scores.b else None


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
    return _sentence_scores(_pair_signs(forward, backward))


def _caspr(scores: SentenceScores) -> float:
    pooled = [*scores.a, *scores.b]
    return 50 * (sum(pooled) / len(pooled) + 1)


def _sentence_scores(pairs: Signs) -> SentenceScores:
    """Of the signs ``[claim of a, claim of b]``."""
    similar = (
        (pairs != 0).any(axis=axis) & (pairs.sum(axis=axis, dtype=np.int64) >= 0) for axis in (1, 0)
    )
    return SentenceScores(*(np.where(claims, -1, 1).tolist() for claims in similar))


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


@dataclasses.dataclass(frozen=True)
class CasprOptions:
    """Options of `caspr`."""

    repeats: str = repeats_option(EACH)


def _score(options: CasprOptions, tables: ChunkTables) -> list[Score]:
    ordered = tables["claims"].sort("sentence_index", "claim_index", maintain_order=True)
    grouped = ordered.group_by("id", "side", maintain_order=True).agg("text")
    claims = {(record, side): texts for record, side, texts in grouped.iter_rows()}
    cells = cells_by_record(_cells(tables["nli"]))

    def score(row: Mapping[str, Any]) -> Score:
        record = row["id"]
        a, b = (claims.get((record, side), []) for side in ("a", "b"))
        n_a, n_b = len(a), len(b)
        of_a, of_b = (counted(texts, options.repeats) for texts in (a, b))
        components: dict[str, object] = {
            "n_a": n_a,
            "n_b": n_b,
            "repeats": options.repeats,
            "n_repeats_a": of_a.n_repeats,
            "n_repeats_b": of_b.n_repeats,
        }
        if not (n_a and n_b):
            return unscored(record, tables.no_claims(record, "b" if n_a else "a"), components)
        judged = cells.get(record, NO_CELLS).matrix((n_a, 2 * n_b))
        if judged is None:
            reason = "nli rows do not match the claims, or are no numbers"
            return unscored(record, reason, components)
        signs = _SIGN_OF_COLUMN[judged.argmax(axis=2)]
        pairs = np.sign(signs[:, 0::2] + signs[:, 1::2])[np.ix_(of_a.places, of_b.places)]
        scores = _sentence_scores(pairs)
        components |= {
            "sentence_scores_a": of_a.by_claim(scores.a),
            "sentence_scores_b": of_b.by_claim(scores.b),
            "pairs": {name: int((pairs == sign).sum()) for name, sign in _SIGN_OF_LABEL.items()},
        }
        return scored(record, _caspr(scores), components)

    return score_records(tables, _REQUIRES, score)


def _cells(nli: pl.DataFrame) -> pl.DataFrame:
    """Claims of a by claims of b; the two directions of a pair are neighbours in a row."""
    return pl.concat(
        nli.filter(
            (pl.col("premise_side") == premise) & (pl.col("hypothesis_side") == hypothesis)
        ).select("id", *LABELS, row=of_a, column=2 * pl.col(of_b) + place)
        for place, premise, hypothesis, of_a, of_b in (
            (0, "a", "b", "premise_index", "hypothesis_index"),
            (1, "b", "a", "hypothesis_index", "premise_index"),
        )
    )


def _make(name: str, options: CasprOptions) -> Metric:
    return Metric(
        name=name,
        requires=_REQUIRES,
        score=functools.partial(_score, options),
        signature_keys=("decompose", "units", "granularity", "nli", "dtype", "claimscore"),
        higher_is="more contrastive",
        range=(0.0, 100.0),
        description="How far the claims of two summaries contradict, or do not repeat, each other",
        reference=REFERENCE,
        facts=option_facts(options),
        verdict="{mean} of 100: 0 is to say the same, 100 to contradict or to share no claim",
        worst="highest",
    )


CASPR = MetricFamily("caspr", CasprOptions, _make)
