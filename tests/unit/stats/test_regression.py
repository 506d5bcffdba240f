"""Ridge regression beside its normal equations, and cross-validation that sees no own fold."""

from __future__ import annotations

import numpy as np
import pytest

from claimscore.stats.regression import PENALTIES, best_penalty, cross_validated, regression


def problem(n: int = 40, d: int = 5, noise: float = 0.5):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=(d, 2)) + 3 + noise * rng.normal(size=(n, 2))
    return x, y, np.arange(n) % 4


@pytest.mark.parametrize("penalty", [0.0, 0.01, 3.0])
def test_weights_solve_the_normal_equations(penalty: float) -> None:
    x, y, _ = problem()
    weights, intercept = regression(x, y)(np.array([penalty, 0.0]))
    centred = x - x.mean(0)
    ridge = penalty * np.linalg.norm(centred, 2) ** 2 * np.eye(5)
    expected = np.linalg.solve(centred.T @ centred + ridge, centred.T @ y[:, 0])
    np.testing.assert_allclose(weights[:, 0], expected)
    plain = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y[:, 1], rcond=None)[0]
    np.testing.assert_allclose([*weights[:, 1], intercept[1]], plain)


def test_predictors_that_do_not_vary_give_the_mean() -> None:
    _, y, folds = problem()
    found = cross_validated(np.ones((len(y), 3)), y, folds)
    np.testing.assert_allclose(found[folds == 1], np.tile(y[folds != 1].mean(0), (10, 1)))


def test_noise_chooses_a_larger_penalty() -> None:
    clean, noisy = (problem(n=24, d=20, noise=noise) for noise in (1e-6, 30.0))
    assert (best_penalty(*clean) < best_penalty(*noisy)).all()
    assert set(best_penalty(*noisy)) <= set(PENALTIES)


def test_no_fold_sees_its_own_values() -> None:
    """Another y in a fold changes the predictions of all folds but that one."""
    x, y, folds = problem()
    other = np.where(folds[:, None] == 2, -y, y)
    before, after = cross_validated(x, y, folds), cross_validated(x, other, folds)
    np.testing.assert_array_equal(before[folds == 2], after[folds == 2])
    assert (before[folds != 2] != after[folds != 2]).all()
