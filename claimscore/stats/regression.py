"""Ridge regression (Hoerl and Kennard 1970), its penalty chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from claimscore.stats.bootstrap import Array

#: Penalties that are tried, by the largest squared singular value of the predictors.
PENALTIES = tuple(10.0**power for power in range(-6, 2))


def regression(x: Array, y: Array) -> Callable[[Array], tuple[Array, Array]]:
    """Regression of y ``[n, r]`` on x ``[n, d]``: gives the weights ``[d, r]`` and intercepts
    ``[r]`` for penalties ``[r]``.

    They minimise Σ(y − x·w − b)² + p·σ²·|w|², σ the largest singular value of x less its mean.
    """
    mean, level = x.mean(axis=0), y.mean(axis=0)
    u, s, vt = np.linalg.svd(x - mean, full_matrices=False)
    varies = s > s[0] * 1e-12
    u, s, vt = u[:, varies], s[varies, None], vt[varies]
    along = u.T @ (y - level)

    def fit(penalty: Array) -> tuple[Array, Array]:
        weights = vt.T @ (s / (s**2 + penalty * s.max(initial=0.0) ** 2) * along)
        return weights, level - mean @ weights

    return fit


def best_penalty(x: Array, y: Array, folds: NDArray[np.int64]) -> Array:
    """Of each column of y the penalty with the least squared error on held-out folds."""
    errors = np.zeros((len(PENALTIES), y.shape[1]))
    for fold in np.unique(folds):
        own = folds == fold
        fit = regression(x[~own], y[~own])
        for place, penalty in enumerate(PENALTIES):
            weights, intercept = fit(np.full(y.shape[1], penalty))
            errors[place] += ((x[own] @ weights + intercept - y[own]) ** 2).sum(axis=0)
    best: Array = np.array(PENALTIES)[errors.argmin(axis=0)]
    return best


def cross_validated(x: Array, y: Array, folds: NDArray[np.int64]) -> Array:
    """Predictions of y ``[n, r]``, each fold's by the others, which choose the penalty too."""
    found = np.empty_like(y)
    for fold in np.unique(folds):
        own = folds == fold
        penalty = best_penalty(x[~own], y[~own], folds[~own])
        weights, intercept = regression(x[~own], y[~own])(penalty)
        found[own] = x[own] @ weights + intercept
    return found
