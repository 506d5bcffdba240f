"""Measures of a score as a classifier of two labels.

Two labels, where 1 is consistent: the measures of the SummaC benchmark (Laban et al. 2022,
*SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in Summarization*;
`utils_scorer.py` of tingofurro/summac).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from claimscore.stats.bootstrap import Array, WeightedMeasure, ratio

#: Percentiles of the scores that are tried as threshold: 0, 0.2, ... 99.8.
PERCENTILES = np.arange(0, 100, 0.2)


def balanced_accuracy(scores: ArrayLike, labels: ArrayLike, threshold: float) -> float:
    """Mean of the recalls of both labels where `score > threshold` predicts 1; a fraction.

    `scores` finite numbers, `labels` as many zeros and ones. `ValueError` for anything else,
    and where only one label occurs: the other's recall is then 0/0.
    """
    positives, negatives = _sorted_by_label(scores, labels)
    return float(_accuracies(positives, negatives, np.array([threshold]))[0])


def best_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """The threshold of the highest balanced accuracy, found as the benchmark's code does.

    Candidates are the percentiles 0, 0.2, ... 99.8 of the scores (linear interpolation); of
    equally good ones the last wins. `ValueError` as `balanced_accuracy`.
    """
    positives, negatives = _sorted_by_label(scores, labels)
    candidates = np.percentile(np.concatenate([positives, negatives]), PERCENTILES)
    accuracies = _accuracies(positives, negatives, candidates)
    last = len(accuracies) - 1 - int(np.argmax(accuracies[::-1]))
    return float(candidates[last])


def roc_auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve: how often a consistent summary scores above an inconsistent one.

    Ties count one half, as in scikit-learn's `roc_auc_score`. `ValueError` as
    `balanced_accuracy`.
    """
    values, positive = checked_labels(scores, labels)
    test = stats.mannwhitneyu(values[positive], values[~positive], method="asymptotic")
    return float(test.statistic / (positive.sum() * (~positive).sum()))


def checked_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """Scores, and whether each label is 1; `ValueError` where they cannot be used."""
    values, given = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if values.ndim != 1 or given.shape != values.shape:
        raise ValueError(
            f"scores and labels must be two lists of one length, not {values.shape} and "
            f"{given.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite numbers; leave missing ones out first")
    if not np.isin(given, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    positive = given.astype(bool)
    if positive.all() or not positive.any():
        raise ValueError("both labels must occur; balanced accuracy is not defined for one")
    return values, positive


def _sorted_by_label(scores: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    """The scores of label 1 and of label 0, each in ascending order."""
    values, positive = checked_labels(scores, labels)
    return np.sort(values[positive]), np.sort(values[~positive])


def _accuracies(positives: Array, negatives: Array, thresholds: Array) -> Array:
    above = len(positives) - np.searchsorted(positives, thresholds, side="right")
    not_above = np.searchsorted(negatives, thresholds, side="right")
    accuracies: Array = (not_above / len(negatives) + above / len(positives)) / 2
    return accuracies


def weighted_accuracy(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> WeightedMeasure:
    """Balanced accuracy of rows with weights; NaN where a label has no weight."""

    def measure(weights: Array) -> Array:
        recall = ratio(weights @ (predicted & positive), weights @ positive)
        specificity = ratio(weights @ (~predicted & ~positive), weights @ ~positive)
        return (recall + specificity) / 2

    return measure


def weighted_auc(scores: Array, positive: NDArray[np.bool_]) -> WeightedMeasure:
    """Area under the ROC curve of rows with weights, ties one half; NaN without one label."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    is_positive = positive[order]

    def measure(weights: Array) -> Array:
        in_order = weights[:, order]
        positives = np.add.reduceat(in_order * is_positive, starts, axis=1)
        negatives = np.add.reduceat(in_order * ~is_positive, starts, axis=1)
        below = np.cumsum(negatives, axis=1) - negatives / 2
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        return ratio((positives * below).sum(axis=1), pairs)

    return measure
