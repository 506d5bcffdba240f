"""Paired statistics: known values, coverage over simulations, symmetry."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from claimscore.stats import paired
from claimscore.stats.bootstrap import MIN_VALUES, MOST_RESAMPLED
from claimscore.stats.paired import (
    LEVEL,
    holm,
    least_detectable,
    one_sided_bound,
    paired_difference,
    paired_interval,
    records_needed,
    verdict,
)

SIMULATIONS = 200

VALUES = st.lists(st.integers(-300, 300).map(lambda n: n / 3), min_size=1, max_size=12)


def draws(kind: str, n: int, generator: np.random.Generator) -> np.ndarray:
    """Differences of `n` records whose true mean is 1."""
    if kind == "normal":
        return generator.normal(1.0, 5.0, n)
    if kind == "mostly unchanged":
        return np.where(generator.random(n) < 0.6, 0.0, generator.normal(2.5, 4.0, n))
    return generator.choice([-3.0, 0.0, 1.0, 6.0], n)


@pytest.mark.parametrize(
    ("kind", "n"), [("normal", 12), ("normal", 60), ("mostly unchanged", 120), ("discrete", 60)]
)
def test_intervals_hold_the_truth_as_often_as_stated(kind: str, n: int):
    """Over 200 seeded simulations, within the 99.8 % range of a binomial of the stated rate."""
    generator = np.random.default_rng([n, len(kind)])
    held = 0
    for seed in range(SIMULATIONS):
        interval = paired_interval(draws(kind, n, generator), samples=500, seed=seed)
        held += interval.low <= 1.0 <= interval.high
    low, high = stats.binom.ppf([0.001, 0.999], SIMULATIONS, LEVEL)
    assert low <= held <= high, held


@pytest.mark.parametrize("shift", [-0.01, 0.005, 5.0])
def test_many_differences_have_the_interval_that_resampling_comes_to(shift: float):
    d = np.random.default_rng(2).normal(shift, 1, MOST_RESAMPLED)
    drawn = paired_interval(d, samples=1000, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paired, "MOST_RESAMPLED", 100)
        patch.delattr(paired, "bootstrap_means")
        limit = paired_interval(d, samples=1000, seed=0)
    sd = d.std() / np.sqrt(d.size)
    assert limit.low == pytest.approx(drawn.low, abs=0.15 * sd)
    assert limit.high == pytest.approx(drawn.high, abs=0.15 * sd)
    assert limit.p_value == pytest.approx(drawn.p_value, abs=0.05)
    assert (limit.p_value == drawn.p_value) == (shift == 5.0)
    t_test = stats.ttest_1samp(d, 0)
    assert [limit.low, limit.high] == pytest.approx(list(t_test.confidence_interval()), rel=1e-6)
    assert limit.p_value == pytest.approx(t_test.pvalue) or shift == 5.0


@pytest.mark.parametrize("n_changed", [0, 3, 40])
def test_few_changes_among_many_records_are_resampled(n_changed: int):
    d = np.zeros(500)
    d[:n_changed] = np.random.default_rng(4).exponential(1, n_changed)
    drawn = paired_interval(d, samples=4000, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paired, "MOST_RESAMPLED", 100)
        patch.setattr(paired, "_DRAWS", 5000)
        sparse = paired_interval(d, samples=4000, seed=0)
    sd = d.std() / np.sqrt(d.size)
    assert sparse.low == pytest.approx(drawn.low, abs=0.2 * sd)
    assert sparse.high == pytest.approx(drawn.high, abs=0.2 * sd)
    assert sparse.p_value == pytest.approx(drawn.p_value, abs=0.05)


def test_holm_by_hand():
    assert holm([0.01, None, 0.04, 0.03]) == [0.03, None, 0.06, 0.06]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_one_record_and_equal_differences_have_no_interval():
    found = paired_difference(np.array([1.0]), np.array([3.0]), samples=50, seed=0)
    assert (found.n, found.mean, found.low, found.p_value) == (1, 2.0, None, None)
    assert found.reason == f"fewer than {MIN_VALUES} records"
    assert verdict(found, None) == "too few"
    found = paired_difference(np.zeros(5), np.full(5, 50.0), samples=50, seed=0)
    assert (found.mean, found.low, found.high) == (50.0, None, None)
    assert found.reason == "all records changed by the same"


@given(VALUES)
@settings(max_examples=30)
def test_a_run_compared_with_itself_has_no_difference(values: list[float]):
    a = np.array(values)
    found = paired_difference(a, a, samples=50, seed=0)
    assert (found.mean, found.higher, found.lower, found.same) == (0.0, 0, 0, a.size)
    assert found.p_value is None
    assert verdict(found, found.p_value) == "same"


@given(VALUES, st.integers(0, 5))
@settings(max_examples=20)
def test_exchanging_the_runs_turns_every_sign(values: list[float], seed: int):
    a = np.array(values)
    b = np.random.default_rng(seed).permutation(a) + 1 / 7
    one, other = (paired_difference(*pair, samples=100, seed=seed) for pair in ((a, b), (b, a)))
    turned = {"mean", "low", "high"}
    swapped = {"low": "high", "mean_a": "mean_b", "higher": "lower"}
    swapped |= {value: key for key, value in swapped.items()}
    for field in dataclasses.fields(one):
        here = getattr(one, field.name)
        there = getattr(other, swapped.get(field.name, field.name))
        if field.name in turned and here is not None:
            here = -here
        if isinstance(here, float):
            assert here == pytest.approx(there, abs=1e-9), field.name
        else:
            assert here == there, field.name


def test_noise_of_machines_is_no_evidence():
    a = np.full(500, 0.5)
    b = a + np.array([1e-6] * 499 + [0.5])
    found = paired_difference(a, b, samples=2000, seed=0)
    assert (found.higher, found.same, found.low) == (1, 499, 0.0)
    assert found.p_value > 0.3
    assert verdict(found, found.p_value) == "not shown"
    assert found.mean == pytest.approx(0.001)


def test_a_least_detectable_difference_is_shown_as_often_as_stated():
    """By simulation: four in five t tests of normal differences with that mean are significant."""
    generator = np.random.default_rng(5)
    for n in (8, 40):
        least = least_detectable(3.0, n)
        d = generator.normal(least, 3.0, (4000, n))
        shown = (stats.ttest_1samp(d, 0, axis=1).pvalue <= 0.05).mean()
        assert shown == pytest.approx(0.8, abs=0.03)
        assert records_needed(3.0, least) == n
        assert records_needed(3.0, least / 2) > 3 * n
    assert records_needed(0.0, 1.0) == MIN_VALUES
    assert records_needed(1e6, 2e-5) == pytest.approx(1.96e22, rel=0.01)
    with pytest.raises(ValueError, match="above zero"):
        records_needed(1.0, 0.0)


def test_a_one_sided_bound_holds_in_nineteen_of_twenty_cases():
    generator = np.random.default_rng(7)
    held = [0, 0]
    for seed in range(400):
        d = generator.normal(1.0, 5.0, 30)
        for upper in (False, True):
            bound = one_sided_bound(d, upper=upper, end=99, samples=400, seed=seed)
            assert bound is not None
            held[upper] += bound >= 1 if upper else bound <= 1
    assert min(held) >= 366, "the 0.1 % quantile of a binomial of 400 and 0.95"
    assert max(held) <= 393


def test_equal_values_have_the_bound_of_what_may_not_have_been_drawn():
    """That of Clopper and Pearson for a share; none where there is no end."""
    for n, value, end in ((6, 0.0, 1.0), (40, 1.0, 0.0), (20, 0.5, 1.0), (9, 0.5, math.inf)):
        bound = one_sided_bound(np.full(n, value), upper=end > value, end=end, samples=20, seed=0)
        exact = value + (end - value) * stats.beta.ppf(0.95, 1, n)
        assert bound == (None if end == math.inf else pytest.approx(exact))
    assert stats.beta.ppf(0.95, 1, 6) == pytest.approx(0.393, abs=0.001)


def test_no_bound_of_a_mean_lies_beyond_the_values():
    d = np.where(np.arange(2 * MOST_RESAMPLED) < 2, 0.5, 1.0)
    interval = paired_interval(d, samples=100, seed=0)
    assert interval.low < d.mean() < interval.high == 1.0


def test_the_least_difference_of_a_comparison_is_of_its_records():
    a, b = np.zeros(10), np.arange(10.0)
    found = paired_difference(a, b, samples=100, seed=0)
    assert found.least_detectable == least_detectable(float(b.std(ddof=1)), 10)
    assert found.records_needed() == records_needed(float(b.std(ddof=1)), 4.5)
    few = paired_difference(a[:4], b[:4], samples=100, seed=0)
    assert (few.least_detectable, few.records_needed()) == (None, None)
    same = paired_difference(a, a, samples=100, seed=0)
    assert same.records_needed() is None
