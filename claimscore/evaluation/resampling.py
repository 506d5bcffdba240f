"""Bootstrap over cases: intervals of correlations, and whether two of them differ.

All draws depend on the number of cases, the number of samples and the seed alone, so that
correlations of the same cases are resampled together: their differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.metrics.correlation import Level, Method, case_correlations, settled

Array = NDArray[np.float64]

#: A measure of rows that are given weights: [sample, row] -> [sample].
Resampled = Callable[[Array], Array]

Seed = int | tuple[int, ...]

#: Numbers held in memory at a time.
_BLOCK = 1 << 21


class Bounds(NamedTuple):
    """A percentile interval; both None where no draw was defined."""

    low: float | None
    high: float | None


def percentile_bounds(draws: Array, alpha: float = 0.05) -> Bounds:
    """The interval that leaves out `alpha`/2 of the defined draws on either side."""
    defined = draws[~np.isnan(draws)]
    if not defined.size:
        return Bounds(None, None)
    low, high = np.percentile(defined, [50 * alpha, 100 - 50 * alpha])
    return Bounds(float(low), float(high))


def paired_p_value(difference: Array) -> float | None:
    """Two-sided bootstrap p-value of a difference being zero, never below 2/(draws + 1).

    Twice the smaller share of draws on the other side of zero (Efron and Tibshirani 1993,
    chapter 16, as used for metrics since Koehn 2004), with one draw added to it.
    """
    defined = difference[~np.isnan(difference)]
    if not defined.size:
        return None
    tail = min(np.count_nonzero(defined <= 0), np.count_nonzero(defined >= 0))
    return float(min(1.0, 2 * (tail + 1) / (defined.size + 1)))


def correlation_draws(
    method: Method, scores: Array, ratings: Array, *, level: Level, samples: int, seed: int
) -> Array:
    """The correlation in `samples` resamples of the cases; NaN where it is not defined there."""
    n_cases = len(scores)
    width = scores.size if level == "pooled" else max(n_cases, scores.shape[1] ** 2)
    if level == "summary":
        of_cases = case_correlations(method, scores, ratings)
    parts = []
    for drawn in drawn_cases(n_cases, samples, seed, width):
        if level == "pooled":
            x, y = (values[drawn].reshape(len(drawn), -1) for values in (scores, ratings))
            parts.append(case_correlations(method, x, y))
            continue
        counts = _counts(drawn, n_cases)
        if level == "summary":
            parts.append(_weighted_means(counts, of_cases))
        else:
            sums = (settled(counts @ values) for values in (scores, ratings))
            parts.append(case_correlations(method, *sums))
    return np.concatenate(parts)


def drawn_cases(n_cases: int, samples: int, seed: Seed, width: int) -> Iterator[NDArray[np.intp]]:
    """Blocks [sample, case] of case numbers, drawn with replacement.

    `width` is how many numbers one sample needs; the draws do not depend on it.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    block = max(1, _BLOCK // max(width, 1))
    for start in range(0, samples, block):
        size = (min(block, samples - start), n_cases)
        yield generator.integers(n_cases, size=size)


def _counts(drawn: NDArray[np.intp], n_cases: int) -> Array:
    """How often each case was drawn, [sample, case]."""
    rows = np.arange(len(drawn))[:, None] * n_cases
    counts = np.bincount((drawn + rows).ravel(), minlength=drawn.size)
    return counts.reshape(len(drawn), n_cases).astype(np.float64)


def _weighted_means(counts: Array, values: Array) -> Array:
    """Mean over the cases that have a value, for each row of counts."""
    defined = ~np.isnan(values)
    totals = counts[:, defined].sum(axis=1)
    sums = counts[:, defined] @ values[defined]
    return _ratio(sums, totals)


def resamples(n_rows: int, samples: int, seed: Seed) -> Iterator[Array]:
    """Blocks of weights [sample, row]: how often each row was drawn, with replacement."""
    for drawn in drawn_cases(n_rows, samples, seed, n_rows):
        yield _counts(drawn, n_rows)


def subsets(n_rows: int, samples: int, share: float, seed: Seed) -> Iterator[Array]:
    """Blocks of weights [sample, row]: 1 for the rows of a random `share`, 0 for the others."""
    generator = np.random.Generator(np.random.PCG64(seed))
    order = generator.permuted(np.tile(np.arange(n_rows), (samples, 1)), axis=1)
    yield (order < int(share * n_rows)).astype(np.float64)


def resampled_accuracy(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> Resampled:
    """Balanced accuracy; NaN where a label was not drawn."""

    def measure(weights: Array) -> Array:
        recall = _ratio(weights @ (predicted & positive), weights @ positive)
        specificity = _ratio(weights @ (~predicted & ~positive), weights @ ~positive)
        return (recall + specificity) / 2

    return measure


def resampled_auc(scores: Array, positive: NDArray[np.bool_]) -> Resampled:
    """Area under the ROC curve, ties one half; NaN where a label was not drawn."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    is_positive = positive[order]

    def measure(weights: Array) -> Array:
        in_order = weights[:, order]
        positives = np.add.reduceat(in_order * is_positive, starts, axis=1)
        negatives = np.add.reduceat(in_order * ~is_positive, starts, axis=1)
        below = np.cumsum(negatives, axis=1) - negatives / 2
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        return _ratio((positives * below).sum(axis=1), pairs)

    return measure


def _ratio(numerator: Array, denominator: Array) -> Array:
    """The quotient, NaN where it is 0/0."""
    zero = denominator == 0
    return np.where(zero, np.nan, numerator / np.where(zero, 1.0, denominator))
