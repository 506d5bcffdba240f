"""A metric's scores beside people: correlation with ratings, and how they tell two labels apart.

Arrays are ``[case, system]``: a case is a text to summarise, a system wrote the summary.

- `system`: the correlation over systems of their mean score and their mean rating over cases.
- `summary`: one correlation a case, over its systems; then the mean over cases.
- `pooled`: one correlation over all summaries at once (LS_Score's "summary level").

**Constant vectors.** A correlation with a constant is 0/0. At the system and the pooled level the
value is then None. At the summary level a case with a constant vector of scores or of ratings has
no correlation and is left out of the mean, not counted as zero; None where no case has one.

Values and p-values of one pair of vectors are scipy's. Thousands of resamples take the vectorised
functions of this file, because those of scipy loop over rows.

**Two labels**, 1 is consistent: the measures of the SummaC benchmark (Laban et al. 2022, *SummaC:
Re-Visiting NLI-based Models for Inconsistency Detection in Summarization*; `utils_scorer.py` of
tingofurro/summac).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from claimscore.stats.bootstrap import (
    Array,
    Seed,
    WeightedMeasure,
    drawn_rows,
    ratio,
    row_counts,
)

Level = Literal["system", "summary", "pooled"]
Method = Literal["kendall", "spearman", "pearson"]

LEVELS: tuple[Level, ...] = get_args(Level)
METHODS: tuple[Method, ...] = get_args(Method)

#: Vectors up to this length are compared pair by pair, all rows at once.
_PAIRWISE = 64

#: For Pearson's r a vector that varies less than this, relative to its mean, is constant.
_CONSTANT = 1e-13


class Correlation(NamedTuple):
    """A correlation and the p-value of its being zero; both None where it is not defined."""

    value: float | None
    p_value: float | None


def correlation(
    method: Method, scores: ArrayLike, ratings: ArrayLike, *, level: Level
) -> Correlation:
    """A correlation of arrays [case, system], in [−1, 1]; `kendall` is tau-b.

    System and summary level as in OpinSummEval (Shen and Wan 2023). The p-value is
    scipy's, two-sided; at the summary level that of Student's t-test that the mean of the
    cases' correlations is zero (None for fewer than two of them). No sign is flipped:
    a score where lower is better correlates negatively.

    `ValueError` for arrays of other or different shapes, a NaN or infinity, and fewer than two
    systems (two summaries where pooled).
    """
    x, y = checked(scores, ratings, level)
    if level == "summary":
        return _mean_correlation(case_correlations(method, x, y))
    return _vector_correlation(method, level_vector(x, level), level_vector(y, level))


def checked(scores: ArrayLike, ratings: ArrayLike, level: Level) -> tuple[Array, Array]:
    """Both arrays, if a correlation at that level can be asked for; else `ValueError`."""
    if level not in LEVELS:
        raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
    x, y = (np.asarray(values, dtype=np.float64) for values in (scores, ratings))
    if x.ndim == 1 and level == "pooled":
        x, y = x[:, None], y[..., None]
    if x.ndim != 2 or x.shape != y.shape:
        raise ValueError(
            f"scores and ratings must be arrays [case, system] of one shape, "
            f"not {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("scores and ratings must be finite numbers; leave missing ones out first")
    if not x.size or (x.size if level == "pooled" else x.shape[1]) < 2:
        raise ValueError("a correlation needs at least two systems (pooled: two summaries)")
    return x, y


def level_vector(values: Array, level: Level) -> Array:
    """The values that are correlated at the system level (means over cases) or pooled (everything).

    The means are `settled`, so that the order of the cases makes and breaks no ties.
    """
    if level == "pooled":
        return values.ravel()
    sums = np.array([math.fsum(column) for column in values.T.tolist()])
    return settled(sums) / len(values)


def settled(sums: Array) -> Array:
    """Sums to 12 digits of the largest: those that differ by rounding alone become ties."""
    scale = float(np.abs(sums).max()) or 1.0
    rounded: Array = (sums / scale).round(12) * scale
    return rounded


def case_correlations(method: Method, scores: Array, ratings: Array) -> Array:
    """One correlation a row of two arrays [row, item]; NaN where a row is constant."""
    return _ROWS[method](scores, ratings)


def _mean_correlation(values: Array) -> Correlation:
    """Mean of the cases that have a correlation, and the t-test that it is zero; no p-value where
    the cases do not differ, since the test then has no variance."""
    defined = values[~np.isnan(values)]
    n = defined.size
    if not n:
        return Correlation(None, None)
    mean = math.fsum(defined.tolist()) / n
    if n == 1 or float(defined.std(ddof=1)) / math.sqrt(n) < _CONSTANT:
        return Correlation(mean, None)
    return Correlation(mean, float(stats.ttest_1samp(defined, 0).pvalue))


def _vector_correlation(method: Method, x: Array, y: Array) -> Correlation:
    if _constant(method, x) or _constant(method, y):
        return Correlation(None, None)
    if method == "kendall":
        test = stats.kendalltau(x, y)
    elif x.size == 2:  # always ±1, which says nothing: scipy gives a NaN or warns
        return Correlation(float(np.sign(x[1] - x[0]) * np.sign(y[1] - y[0])), None)
    else:
        test = (stats.spearmanr if method == "spearman" else stats.pearsonr)(x, y)
    p_value = float(test.pvalue)
    return Correlation(float(test.statistic), None if math.isnan(p_value) else p_value)


def _constant(method: Method, x: Array) -> bool:
    return bool(np.ptp(x) <= (_CONSTANT * abs(x.mean()) if method == "pearson" else 0))


def _kendall_rows(x: Array, y: Array) -> Array:
    """Tau-b a row: (concordant − discordant) / √(pairs untied in x · pairs untied in y)."""
    if x.shape[1] > _PAIRWISE:
        rows = zip(x, y, strict=True)
        values = (_vector_correlation("kendall", a, b).value for a, b in rows)
        return np.array([math.nan if value is None else value for value in values])
    first, second = np.triu_indices(x.shape[1], 1)
    sign_x, sign_y = (_order(values[:, first], values[:, second]) for values in (x, y))
    agreement = (sign_x * sign_y).sum(axis=1, dtype=np.float64)
    untied = np.count_nonzero(sign_x, axis=1) * np.count_nonzero(sign_y, axis=1)
    return ratio(agreement, np.sqrt(untied))


def _order(a: Array, b: Array) -> NDArray[np.int8]:
    return (a > b).astype(np.int8) - (a < b).astype(np.int8)


def _pearson_rows(x: Array, y: Array) -> Array:
    products: Array = (_unit_rows(x) * _unit_rows(y)).sum(axis=1)
    return products.clip(-1, 1)


def _unit_rows(values: Array) -> Array:
    mean = values.mean(axis=1, keepdims=True)
    centred = values - mean
    norm = np.linalg.norm(centred, axis=1, keepdims=True)
    varies = np.ptp(values, axis=1, keepdims=True) > _CONSTANT * np.abs(mean)
    return ratio(centred, np.where(varies, norm, 0.0))


def _spearman_rows(x: Array, y: Array) -> Array:
    return _pearson_rows(stats.rankdata(x, axis=1), stats.rankdata(y, axis=1))


def correlation_draws(
    method: Method, scores: Array, ratings: Array, *, level: Level, samples: int, seed: Seed
) -> Array:
    """The correlation in `samples` resamples of the cases; NaN where it is not defined there."""
    n_cases = len(scores)
    width = scores.size if level == "pooled" else max(n_cases, scores.shape[1] ** 2)
    of_cases = case_correlations(method, scores, ratings) if level == "summary" else np.empty(0)
    defined = ~np.isnan(of_cases)
    parts = []
    for drawn in drawn_rows(n_cases, samples, seed, width):
        if level == "pooled":
            x, y = (values[drawn].reshape(len(drawn), -1) for values in (scores, ratings))
            parts.append(case_correlations(method, x, y))
            continue
        counts = row_counts(drawn, n_cases)
        if level == "summary":
            counts = counts[:, defined]
            parts.append(ratio(counts @ of_cases[defined], counts.sum(axis=1)))
        else:
            sums = (settled(counts @ values) for values in (scores, ratings))
            parts.append(case_correlations(method, *sums))
    return np.concatenate(parts)


_ROWS: dict[Method, Callable[[Array, Array], Array]] = {
    "kendall": _kendall_rows,
    "spearman": _spearman_rows,
    "pearson": _pearson_rows,
}


# Scores as classifiers of two labels

#: Percentiles of the scores that are tried as threshold: 0, 0.2, ... 99.8.
PERCENTILES = np.arange(0, 100, 0.2)


def best_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """The threshold above which a score predicts 1 with the highest balanced accuracy, found as the
    benchmark's code does.

    Candidates are the percentiles 0, 0.2, ... 99.8 of the scores (linear interpolation); of
    equally good ones the last wins. `ValueError` as `checked_labels`.
    """
    values, positive = checked_labels(scores, labels)
    candidates, once = np.percentile(values, PERCENTILES), np.ones((1, values.size))
    accuracies = [weighted_accuracy(values > at, positive)(once)[0] for at in candidates]
    last = len(accuracies) - 1 - int(np.argmax(accuracies[::-1]))
    return float(candidates[last])


def checked_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """Scores, and whether each label is 1; `ValueError` where they are not as many finite numbers
    as zeros and ones, and where only one label occurs: the other's recall is then 0/0."""
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
