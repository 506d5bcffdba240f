"""Bootstrap: paired, independent of memory blocks, and right where it can be computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from claimscore.evaluation import resampling
from claimscore.evaluation.resampling import (
    correlation_draws,
    drawn_cases,
    paired_p_value,
    percentile_bounds,
    resampled_accuracy,
    resampled_auc,
    resamples,
    subsets,
)
from claimscore.metrics import balanced_accuracy, roc_auc
from claimscore.metrics.correlation import LEVELS, METHODS, correlation

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(2, 12, 4)).round(1)  # tenths: sums that are equal but for rounding


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", METHODS)
def test_draws_are_correlations_of_resampled_cases(method: str, level: str):
    """Each draw is the plain function on the drawn cases."""
    draws = correlation_draws(method, X, Y, level=level, samples=20, seed=3)
    drawn = np.concatenate(list(drawn_cases(len(X), 20, 3, 1)))
    expected = [correlation(method, X[cases], Y[cases], level=level).value for cases in drawn]
    assert draws == pytest.approx(np.array(expected, dtype=float), nan_ok=True)


@pytest.mark.parametrize("level", LEVELS)
def test_draws_do_not_depend_on_the_memory_blocks(level: str, monkeypatch: pytest.MonkeyPatch):
    """Otherwise two metrics would not be resampled together."""
    whole = correlation_draws("kendall", X, Y, level=level, samples=50, seed=0)
    monkeypatch.setattr(resampling, "_BLOCK", 100)
    blocks = correlation_draws("kendall", X, Y, level=level, samples=50, seed=0)
    assert blocks == pytest.approx(whole, abs=1e-12)


def test_bounds_cover_the_normal_interval():
    """Percentiles of many draws; nothing defined, no interval."""
    draws = np.random.default_rng(0).normal(size=100_000)
    assert percentile_bounds(draws) == pytest.approx((-1.96, 1.96), abs=0.03)
    assert percentile_bounds(draws, 0.05 / 14)[1] == pytest.approx(
        stats.norm.ppf(1 - 0.025 / 14), abs=0.05
    )
    assert percentile_bounds(np.array([math.nan, 1.0, 3.0, math.nan])) == (
        pytest.approx(1.05),
        pytest.approx(2.95),
    )
    assert percentile_bounds(np.array([math.nan])) == (None, None)


def test_paired_p_values():
    """Small where all draws agree, 1 where the difference is zero, none without draws."""
    assert paired_p_value(np.ones(999)) == pytest.approx(0.002)
    assert paired_p_value(np.zeros(999)) == 1
    assert paired_p_value(np.array([math.nan])) is None
    assert paired_p_value(np.array([-1.0, 1.0] * 50)) == 1


def test_weighted_measures_equal_the_plain_ones():
    """Balanced accuracy and AUC of drawn rows, ties included; NaN where a label is missing."""
    scores = RNG.integers(0, 6, size=30) / 6
    positive = RNG.integers(0, 2, size=30).astype(bool)
    weights = np.concatenate(list(resamples(30, 25, seed=0)))
    accuracies = resampled_accuracy(scores > 0.4, positive)(weights)
    areas = resampled_auc(scores, positive)(weights)
    for counts, accuracy, area in zip(weights.astype(int), accuracies, areas, strict=True):
        drawn = np.repeat(np.arange(30), counts)
        assert accuracy == pytest.approx(balanced_accuracy(scores[drawn], positive[drawn], 0.4))
        assert area == pytest.approx(roc_auc(scores[drawn], positive[drawn]))
    only_one = positive[None].astype(float)
    assert np.isnan(resampled_accuracy(scores > 0.4, positive)(only_one)).all()
    assert np.isnan(resampled_auc(scores, positive)(only_one)).all()


def test_subsets_hold_each_row_at_most_once():
    """70 % of 30 rows are 21."""
    (weights,) = subsets(30, 100, 0.7, seed=0)
    assert weights.shape == (100, 30)
    assert set(weights.sum(axis=1)) == {21}
    assert set(weights.ravel()) == {0, 1}
    assert len({tuple(row) for row in weights}) > 90
