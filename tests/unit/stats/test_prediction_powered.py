"""Prediction-powered means: coverage over simulations, width, and the draw of what is labelled."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from claimscore.stats.prediction_powered import (
    LabelledSample,
    corrected_difference,
    corrected_mean,
    stratified_draw,
)

SIMULATIONS = 200
TRUTH = float(stats.norm.cdf(1.2 / np.sqrt(2)))


def population(generator: np.random.Generator, informed: float, bias: float) -> LabelledSample:
    """150 records of 2 to 9 items, true for `TRUTH` of them; the judge is as biased as it is told.

    Labels are drawn for 80 items, by the verdict and the prediction of the judge.
    """
    record = np.repeat(np.arange(150), generator.integers(2, 10, 150))
    n = record.size
    hidden = generator.normal(size=150)[record] + generator.normal(size=n) + 1.2
    seen = informed * hidden + (1 - informed) * 1.5 * generator.normal(size=n) + bias
    predicted = 1 / (1 + np.exp(-2 * seen))
    stratum = np.digitize(predicted, [0.15, 0.5])
    draw = stratified_draw(stratum, predicted, 80, int(generator.integers(2**31)))
    label, weight = np.full(n, np.nan), np.zeros(n)
    label[draw.places] = hidden[draw.places] > 0
    weight[draw.places] = draw.weights
    share = 1 / np.bincount(record)[record]
    metric = (predicted > 0.5).astype(float)
    return LabelledSample(record, share, metric, predicted, stratum, label, weight)


@pytest.mark.parametrize(
    ("informed", "bias", "ratio"), [(0.9, 0.8, 0.8), (0.5, -0.6, 0.95), (0.0, 0.0, 1.06)]
)
def test_intervals_hold_the_truth_and_are_shorter(informed: float, bias: float, ratio: float):
    """200 simulations with a biased judge: coverage of mean and difference, mean width.

    Coverage within the 99.8 % range of a binomial of 95 %; the corrected interval is shorter than
    the classical one where the judge knows something, and hardly wider where it knows nothing.
    """
    generator = np.random.default_rng([int(10 * informed), 7])
    held, held_difference = 0, 0
    widths = np.zeros(2)
    for seed in range(SIMULATIONS):
        one, other = (population(generator, informed, sign * bias) for sign in (1, -1))
        found = corrected_mean(one, samples=300, seed=seed)
        held += found.corrected.low <= TRUTH <= found.corrected.high
        widths += [own.high - own.low for own in (found.corrected, found.classical)]
        difference = corrected_difference(other, one, samples=300, seed=seed).corrected
        held_difference += difference.low <= 0 <= difference.high
    least = stats.binom.ppf(0.001, SIMULATIONS, 0.95)
    assert held >= least
    assert held_difference >= least
    assert widths[0] / widths[1] <= ratio


def test_the_correction_takes_the_bias_away():
    """Where every item has a label, corrected and classical are the labels' mean by records."""
    sample = population(np.random.default_rng(3), 0.3, 1.5)
    truth = np.random.default_rng(4).integers(0, 2, sample.label.size).astype(float)
    full = dataclasses.replace(sample, label=truth, weight=np.ones(truth.size))
    found = corrected_mean(full, samples=50, seed=0)
    expected = (full.share * truth).sum() / 150
    assert found.corrected.value == pytest.approx(expected)
    assert found.classical.value == pytest.approx(expected)
    assert found.uncorrected.value == pytest.approx((full.share * full.metric).sum() / 150)
    assert found.least_half_width == pytest.approx(found.half_width)
    assert found.labels_needed(found.half_width / 2) is None


def test_fewer_labels_than_five_give_no_interval():
    sample = population(np.random.default_rng(5), 0.5, 0.0)
    label = np.full(sample.label.size, np.nan)
    label[[3, 40, 90]] = 1.0
    few = dataclasses.replace(sample, label=label, weight=np.ones(label.size))
    found = corrected_mean(few, samples=50, seed=0)
    assert found.corrected.interval is None
    assert found.labels_needed(0.1) is None
    with pytest.raises(ValueError, match="no item has a label"):
        corrected_mean(dataclasses.replace(few, label=label * np.nan), samples=50, seed=0)


def test_more_labels_make_the_interval_that_is_promised():
    """Twice `labels_needed` of a width between today's and the least is narrower than the width."""
    sample = population(np.random.default_rng(6), 0.5, 0.4)
    found = corrected_mean(sample, samples=500, seed=0)
    wanted = (found.half_width + found.least_half_width) / 2
    assert found.n_labels < found.labels_needed(wanted) < 4 * found.n_labels
    assert found.labels_needed(found.half_width) == found.n_labels
    assert found.labels_needed(found.least_half_width) is None


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
