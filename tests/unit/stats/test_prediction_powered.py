"""Prediction-powered means: coverage over simulations, width, and the draw of what is labelled."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.label_coverage import JUDGES, simulated
from claimscore.stats.prediction_powered import (
    UNIFORM_SHARE,
    LabelledSample,
    active_draw,
    corrected_difference,
    corrected_mean,
    share_bounds,
    stratified_draw,
)

SIMULATIONS = 120
TRUTH = float(stats.norm.cdf(1.2 / np.sqrt(2)))


def population(
    generator: np.random.Generator,
    informed: float,
    bias: float,
    n_records: int = 150,
    n_labels: int = 80,
    level: float = 1.2,
) -> LabelledSample:
    """Records of 2 to 9 items, true for `TRUTH` of them; the judge is as biased as it is told.

    Labels are drawn by the verdict and the prediction of the judge.
    """
    record = np.repeat(np.arange(n_records), generator.integers(2, 10, n_records))
    n = record.size
    hidden = generator.normal(size=n_records)[record] + generator.normal(size=n) + level
    seen = informed * hidden + (1 - informed) * 1.5 * generator.normal(size=n) + bias
    predicted = 1 / (1 + np.exp(-2 * seen))
    stratum = np.digitize(predicted, [0.15, 0.5])
    draw = stratified_draw(stratum, predicted, n_labels, int(generator.integers(2**31)))
    label, weight = np.full(n, np.nan), np.zeros(n)
    label[draw.places] = hidden[draw.places] > 0
    weight[draw.places] = draw.weights
    share = 1 / np.bincount(record)[record]
    metric = (predicted > 0.5).astype(float)
    return LabelledSample(record, share, metric, predicted, stratum, label, weight)


@pytest.mark.parametrize(
    ("informed", "bias", "ratio"), [(0.9, 0.8, 0.85), (0.5, -0.6, 0.95), (0.0, 0.0, 1.02)]
)
def test_intervals_hold_the_truth_and_are_shorter(informed: float, bias: float, ratio: float):
    """120 simulations with a biased judge: coverage of mean and difference, mean width.

    Coverage within the 99.8 % range of a binomial of 95 %; the corrected interval is shorter than
    the classical one where the judge knows something, and hardly wider where it knows nothing.
    """
    generator = np.random.default_rng([int(10 * informed), 7])
    held, held_difference = 0, 0
    widths = np.zeros(2)
    for seed in range(SIMULATIONS):
        one, other = (population(generator, informed, sign * bias) for sign in (1, -1))
        found = corrected_mean(one, samples=200, seed=seed)
        held += found.corrected.low <= TRUTH <= found.corrected.high
        widths += [own.high - own.low for own in (found.corrected, found.classical)]
        difference = corrected_difference(other, one, samples=200, seed=seed).corrected
        held_difference += difference.low <= 0 <= difference.high
    least = stats.binom.ppf(0.001, SIMULATIONS, 0.95)
    assert held >= least
    assert held_difference >= least
    assert widths[0] / widths[1] <= ratio


@pytest.mark.parametrize(("n", "hits"), [(1, 1), (1, 0), (6, 6), (10, 3), (30, 29), (90, 60)])
def test_shares_have_the_interval_of_clopper_and_pearson(n: int, hits: int):
    """Of equal weights, one label a record; within the error of 4,000 draws."""
    bounds = share_bounds(1.0 * (np.arange(n) < hits), np.ones(n), samples=4000, seed=0)
    exact = stats.binomtest(hits, n).proportion_ci(method="exact")
    assert list(bounds) == pytest.approx(list(exact), abs=0.02)
    doubled = share_bounds(2.0 * (np.arange(n) < hits), np.full(n, 2.0), samples=4000, seed=0)
    assert doubled == pytest.approx(bounds)
    assert share_bounds(np.zeros(2), np.zeros(2), samples=9, seed=0) == (None, None)


@pytest.mark.parametrize("level", [0.0, 2.5], ids=["half are true", "nearly all are true"])
@pytest.mark.parametrize("n_labels", range(1, 11))
def test_intervals_of_few_labels_hold_the_truth(n_labels: int, level: float):
    """1 to 10 labels of claims in records: at least the 0.1 % quantile of a binomial of 95 %."""
    generator = np.random.default_rng([n_labels, int(level)])
    truth = float(stats.norm.cdf(level / np.sqrt(2)))
    held = np.zeros(3)
    for seed in range(60):
        one, other = (population(generator, 0.7, bias, 40, n_labels, level) for bias in (0.4, -0.4))
        mean = corrected_mean(one, samples=200, seed=seed)
        difference = corrected_difference(one, other, samples=200, seed=seed)
        of_mean = [own.low <= truth <= own.high for own in (mean.corrected, mean.classical)]
        held += [*of_mean, difference.corrected.low <= 0 <= difference.corrected.high]
        assert mean.corrected.high > mean.corrected.low
    assert held.min() >= stats.binom.ppf(0.001, 60, 0.95)


def test_a_judge_without_an_error_among_few_labels_is_not_trusted():
    """12 labels that all fit a sure judge: one in 20 such labels may still be wrong."""
    sample = population(np.random.default_rng(5), 1.0, 0.0, 60, 12)
    predicted = (sample.predicted > 0.5).astype(float)
    fits = np.where(sample.labelled, predicted, np.nan)
    sure = dataclasses.replace(sample, predicted=predicted, label=fits)
    found = corrected_mean(sure, samples=300, seed=0).corrected
    assert found.high - found.low > 0.15


def test_no_label_corrects_nothing():
    sample = population(np.random.default_rng(5), 0.5, 0.0)
    none = np.full(sample.label.size, np.nan)
    with pytest.raises(ValueError, match="no item has a label"):
        corrected_mean(dataclasses.replace(sample, label=none), samples=200, seed=0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(1, 80),
    st.integers(0, 9),
)
def test_draws_stand_for_every_item(items: list[tuple[int, float]], n: int, seed: int):
    """No item twice, as many as asked for, and the weights of a stratum sum to its size."""
    stratum = np.array([place for place, _ in items])
    along = np.array([value for _, value in items])
    draw = stratified_draw(stratum, along, n, seed)
    assert len(set(draw.places.tolist())) == draw.places.size == min(n, stratum.size)
    again = stratified_draw(stratum, along, n, seed)
    assert again.places.tolist() == draw.places.tolist()
    for one in np.unique(stratum):
        drawn = stratum[draw.places] == one
        if drawn.any():
            assert draw.weights[drawn].sum() == pytest.approx((stratum == one).sum())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 30)), min_size=1, max_size=60),
    st.integers(1, 80),
    st.integers(0, 9),
)
def test_active_draws_have_their_number_and_bounded_weights(
    items: list[tuple[float, int]], n: int, seed: int
):
    """No item twice, as many as asked for; no weight beyond what the uniform share leaves."""
    predicted = np.array([value for value, _ in items])
    share = 1 / np.array([size for _, size in items])
    draw = active_draw(1 - np.abs(2 * predicted - 1), share, predicted, n, seed)
    assert len(set(draw.places.tolist())) == draw.places.size == min(n, predicted.size)
    assert draw.weights.min() >= 1
    most = share.sum() / (share[draw.places] * n * UNIFORM_SHARE)
    assert (draw.weights <= np.maximum(1, most) + 1e-6).all()
    again = active_draw(1 - np.abs(2 * predicted - 1), share, predicted, n, seed)
    assert again.places.tolist() == draw.places.tolist()


def test_active_draws_take_what_is_uncertain_and_are_unbiased():
    """Over 400 draws of 8 from 40: totals by weights are true ones, and chances are as said."""
    predicted = np.linspace(0, 1, 40)
    uncertainty, share = 1 - np.abs(2 * predicted - 1), np.ones(40)
    times, totals = np.zeros(40), []
    for seed in range(400):
        draw = active_draw(uncertainty, share, predicted, 8, seed)
        times[draw.places] += 1
        totals.append((draw.weights @ (predicted[draw.places] > 0.3), draw.weights.sum()))
    assert np.mean(totals, axis=0) == pytest.approx([28, 40], rel=0.03)
    deviation = 2 * np.sqrt(predicted * (1 - predicted))
    chance = 8 / 40 * (UNIFORM_SHARE + (1 - UNIFORM_SHARE) * deviation / deviation.mean())
    assert times / 400 == pytest.approx(chance, abs=0.1)


@pytest.mark.parametrize(("judge", "ratio"), [("sure", 0.75), ("overconfident", 0.85)])
def test_labels_of_uncertain_claims_give_shorter_intervals(judge: str, ratio: float):
    """60 labels of records of 1 to 30 claims, 60 simulations of `benchmarks/label_coverage.py`."""
    widths = []
    for draw in ("uncertainty", "verdict"):
        outcome = simulated(JUDGES[judge], draw, 60, simulations=60, samples=200, n_records=200)
        assert min(outcome.mean, outcome.difference) >= stats.binom.ppf(0.001, 60, 0.95) / 60
        widths.append(outcome.width)
    assert widths[0] / widths[1] <= ratio


@pytest.mark.parametrize("n", [2, 6, 20])
def test_few_uncertain_claims_with_labels_hold_the_truth(n: int):
    """Of a judge that is wrong where it is sure, half of the claims or nearly all are true."""
    for level in (0.0, 3.0):
        outcome = simulated(
            JUDGES["overconfident"],
            *("uncertainty", n),
            simulations=60,
            samples=200,
            n_records=60,
            level=level,
        )
        assert min(outcome.mean, outcome.difference) >= stats.binom.ppf(0.001, 60, 0.95) / 60


def test_no_end_of_a_difference_of_shares_lies_beyond_one():
    """Ten labels of 30 that differ almost everywhere."""
    generator = np.random.default_rng(4)
    both = []
    for share in (0.1, 0.95):
        true = (generator.random(30) < share).astype(float)
        predicted = np.clip(0.6 * true + 0.2 + generator.normal(0, 0.2, 30), 0, 1)
        label = np.where(np.arange(30) < 10, true, np.nan)
        items, ones = np.arange(30), np.ones(30)
        both.append(LabelledSample(items, ones, predicted, predicted, 0 * items, label, 3 * ones))
    for pair, end in ((both, "high"), (both[::-1], "low")):
        difference = corrected_difference(*pair, samples=200, seed=0).corrected
        assert abs(getattr(difference, end)) == 1.0
