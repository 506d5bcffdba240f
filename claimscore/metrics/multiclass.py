"""Right and wrong answers of a classifier of several classes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


class Interval(NamedTuple):
    """Lower and upper bound, fractions."""

    low: float
    high: float


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, classes: int) -> NDArray[np.int64]:
    """How often each class was called which: ``[class, prediction]``."""
    true, found = np.asarray(labels, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if true.ndim != 1 or found.shape != true.shape:
        raise ValueError(f"two lists of one length are needed, not {true.shape} and {found.shape}")
    both = np.concatenate([true, found])
    if both.size and (both.min() < 0 or both.max() >= classes):
        raise ValueError(f"classes must be from 0 to {classes - 1}")
    counts = np.bincount(true * classes + found, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int64)


def macro_f1(confusion: NDArray[np.int64]) -> float | None:
    """The plain mean of the classes' F1 = 2·TP / (2·TP + FP + FN), a fraction.

    Over the classes that have rows: a class that the data do not use has no F1, though calling a
    row by its name is an error of the right class. None where there are no rows.
    """
    rows = confusion.sum(axis=1)
    used = rows > 0
    if not used.any():
        return None
    found = np.diag(confusion)[used]
    return float((2 * found / (rows + confusion.sum(axis=0))[used]).mean())


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The score interval of a proportion: Wilson 1927, *Probable inference*, JASA 22.

    Unlike the normal interval it stays within 0 and 1 and is not empty where all are right.
    `ValueError` unless 0 <= successes <= trials and trials > 0.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes of {trials} trials")
    z = float(stats.norm.ppf((1 + confidence) / 2))
    share = successes / trials
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return Interval(max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))
