"""Scores as a classifier of consistent summaries: the SummaC benchmark's measures.

Laban et al. 2022, *SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization*, the SummaC benchmark; `utils_scorer.py` of tingofurro/summac. Label 1 is consistent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

#: Percentiles of the scores that are tried as threshold: 0, 0.2, ... 99.8.
PERCENTILES = np.arange(0, 100, 0.2)

_Floats = NDArray[np.float64]


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
    positives, negatives = _sorted_by_label(scores, labels)
    ranks = stats.rankdata(np.concatenate([positives, negatives]))
    n, m = len(positives), len(negatives)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def checked_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[_Floats, NDArray[np.bool_]]:
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


def _sorted_by_label(scores: ArrayLike, labels: ArrayLike) -> tuple[_Floats, _Floats]:
    """The scores of label 1 and of label 0, each in ascending order."""
    values, positive = checked_labels(scores, labels)
    return np.sort(values[positive]), np.sort(values[~positive])


def _accuracies(positives: _Floats, negatives: _Floats, thresholds: _Floats) -> _Floats:
    above = len(positives) - np.searchsorted(positives, thresholds, side="right")
    not_above = np.searchsorted(negatives, thresholds, side="right")
    accuracies: _Floats = (not_above / len(negatives) + above / len(positives)) / 2
    return accuracies
