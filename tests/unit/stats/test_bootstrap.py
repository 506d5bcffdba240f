"""Bootstrap intervals of means."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from claimscore.metrics.ds import distinctiveness
from claimscore.stats.bootstrap import (
    MOST_RESAMPLED,
    bootstrap_means,
    mean_interval,
    paired_p_value,
    percentile_bounds,
)
from tests.support.shared_data import shared


def test_paper_interval_is_reproduced():
    """DS of the reference summaries is 73.6 ± 0.9 (CASPR paper, Table 3)."""
    lines = shared("data/caspr/comparisons.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["comparison"] == "ref_contrastive"]
    interval = mean_interval([distinctiveness([row["text_a"], row["text_b"]]) for row in rows])
    assert (round(interval.mean, 1), round(interval.half_width, 1)) == (73.6, 0.9)
    assert interval.half_width == pytest.approx(0.911, abs=0.02)
    assert interval.low == interval.mean - interval.half_width
    assert interval.high == interval.mean + interval.half_width


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_interval_holds_the_mean(values):
    interval = mean_interval(values, samples=50)
    assert interval.half_width >= 0
    assert interval.low <= interval.mean <= interval.high


def test_equal_values_have_no_width():
    assert mean_interval([42.5]) == (42.5, 0.0, 42.5, 42.5, 1)
    assert mean_interval([0.1] * (MOST_RESAMPLED + 7))[:2] == (0.1, 0.0)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf], [1.0, None], [[1], [2]]])
def test_values_without_a_mean_are_refused(values):
    with pytest.raises(ValueError, match="an interval needs"):
        mean_interval(values)
    with pytest.raises(ValueError, match="samples must be at least 1"):
        mean_interval([1.0, 2.0], samples=0)


def test_many_values_have_the_width_that_samples_tend_to():
    values = np.random.default_rng(2).exponential(3.0, MOST_RESAMPLED + 1)
    drawn = 1.96 * bootstrap_means(values, 2000, 0).std()
    interval = mean_interval(values)
    assert interval.half_width == pytest.approx(drawn, rel=0.05)
    assert interval.half_width == pytest.approx(1.96 * values.std() / np.sqrt(values.size))
    assert interval == mean_interval(values, seed=1)


def test_bounds_cover_the_normal_interval():
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
    assert percentile_bounds(np.ones(9)) == (None, None)  # equal draws tell no width


def test_paired_p_values():
    assert paired_p_value(np.ones(999)) == pytest.approx(0.002)
    assert paired_p_value(np.zeros(999)) == 1
    assert paired_p_value(np.array([math.nan])) is None
    assert paired_p_value(np.array([-1.0, 1.0] * 50)) == 1
