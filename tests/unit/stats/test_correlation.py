"""Correlations: the published values, the rules for constants, and what may not change them."""

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from scipy import stats

from claimscore.stats import bootstrap
from claimscore.stats.agreement import (
    LEVELS,
    METHODS,
    case_correlations,
    correlation,
    correlation_draws,
)
from claimscore.stats.bootstrap import drawn_rows
from tests.support.shared_data import shared

SCIPY = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}

#: Whole numbers, so that ties occur and sums are exact.
grids = nps.array_shapes(min_dims=2, max_dims=2, min_side=3, max_side=6).flatmap(
    lambda shape: st.tuples(
        *[nps.arrays(np.float64, shape, elements=st.integers(-5, 5).map(float))] * 2
    )
)


@cache
def opinsummeval() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    lines = shared("data/opinsummeval.jsonl").read_text(encoding="utf-8").splitlines()
    expected = shared("data/opinsummeval_expected.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in lines], json.loads(expected)["rows"]


def table(cases: list[dict[str, Any]], part: str, key: str) -> np.ndarray:
    systems = list(cases[0]["systems"])
    return np.array([[case["systems"][name][part][key] for name in systems] for case in cases])


def test_opinsummeval_to_four_decimals():
    cases, rows = opinsummeval()
    checked = 0
    for row in rows.values():
        for dimension, expected in row["dimensions"].items():
            key = row["score_key"]
            scores = table(cases, "scores", key if isinstance(key, str) else key[dimension])
            ratings = table(cases, "human_mean", dimension)
            system = correlation("kendall", scores, ratings, level="system")
            summary = correlation("kendall", scores, ratings, level="summary")
            assert system.value == pytest.approx(expected["system_tau"], abs=5.1e-5)
            assert system.p_value == pytest.approx(expected["system_p"], abs=5.1e-5)
            assert summary.value == pytest.approx(expected["summary_tau"], abs=5.1e-5)
            checked += 1
    assert checked == 72


@pytest.mark.parametrize("name", METHODS)
def test_levels_by_hand(name: str):
    x = np.array([[1.0, 2.0, 4.0], [2.0, 1.0, 5.0], [0.0, 3.0, 2.0]])
    y = np.array([[1.0, 3.0, 3.5], [1.0, 2.0, 5.0], [1.0, 2.0, 4.0]])
    scipy = SCIPY[name]
    of_means = scipy(x.mean(axis=0), y.mean(axis=0))
    assert correlation(name, x, y, level="system") == pytest.approx(
        (of_means.statistic, of_means.pvalue)
    )
    pooled = scipy(x.ravel(), y.ravel())
    assert correlation(name, x, y, level="pooled") == pytest.approx(
        (pooled.statistic, pooled.pvalue)
    )
    of_cases = [scipy(a, b).statistic for a, b in zip(x, y, strict=True)]
    t_test = stats.ttest_1samp(of_cases, 0)
    assert correlation(name, x, y, level="summary") == pytest.approx(
        (np.mean(of_cases), t_test.pvalue)
    )


@pytest.mark.parametrize("name", METHODS)
@given(grids)
@settings(max_examples=30)
def test_rows_equal_scipy(name: str, arrays: tuple[np.ndarray, np.ndarray]):
    x, y = arrays
    for found, a, b in zip(case_correlations(name, x, y), x, y, strict=True):
        if np.ptp(a) == 0 or np.ptp(b) == 0:
            assert math.isnan(found)
        else:
            assert found == pytest.approx(SCIPY[name](a, b).statistic, abs=1e-12)


def test_the_order_of_cases_breaks_no_ties():
    x = np.array([[0.1, 0.3, 0.5], [0.2, 0.2, 0.5], [0.3, 0.1, 0.5]])
    y = np.array([[1.0, 2.0, 3.0]] * 3)
    orders = (0, 1, 2), (2, 1, 0), (1, 0, 2)
    values = {correlation("kendall", x[list(order)], y, level="system") for order in orders}
    assert len(values) == 1
    assert values.pop().value == pytest.approx(2 / math.sqrt(6))


@pytest.mark.parametrize("name", METHODS)
def test_constants_have_no_correlation(name: str):
    """None at system and pooled level; a constant case is left out of the mean, not zero."""
    varied, constant = np.array([[1.0, 2.0, 3.0]] * 3), np.full((3, 3), 2.0)
    for level in LEVELS:
        assert correlation(name, constant, varied, level=level) == (None, None)
        assert correlation(name, varied, constant, level=level) == (None, None)
    mixed = np.vstack([constant[:1], varied[:2]])
    assert correlation(name, mixed, varied, level="summary").value == pytest.approx(1)
    one = correlation(name, np.vstack([constant[:2], varied[:1]]), varied, level="summary")
    assert one == (pytest.approx(1), None)
    assert correlation(name, varied, varied, level="summary") == (pytest.approx(1), None)


@pytest.mark.parametrize(
    ("x", "y", "level", "message"),
    [
        ([[1, math.nan, 2]], [[1, 2, 3]], "system", "finite"),
        ([[1, 2, 3]], [[1, math.inf, 3]], "pooled", "finite"),
        ([[1, 2, 3]], [[1, 2]], "system", "one shape"),
        ([1, 2, 3], [1, 2, 3], "system", "one shape"),
        ([[1], [2]], [[1], [2]], "summary", "two systems"),
        ([], [], "pooled", "two systems"),
        ([[1, 2]], [[1, 2]], "corpus", "level is one of"),
    ],
)
def test_wrong_input_is_refused(x, y, level: str, message: str):
    for name in METHODS:
        with pytest.raises(ValueError, match=message):
            correlation(name, x, y, level=level)


#: Tenths: sums that are equal but for rounding.
RATED = np.random.default_rng(1).normal(size=(2, 12, 4)).round(1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", METHODS)
def test_draws_are_correlations_of_resampled_cases(
    method: str, level: str, monkeypatch: pytest.MonkeyPatch
):
    x, y = RATED
    draws = correlation_draws(method, x, y, level=level, samples=20, seed=3)
    drawn = np.concatenate(list(drawn_rows(len(x), 20, 3, 1)))
    expected = [correlation(method, x[cases], y[cases], level=level).value for cases in drawn]
    assert draws == pytest.approx(np.array(expected, dtype=float), nan_ok=True)
    monkeypatch.setattr(bootstrap, "_BLOCK", 100)
    blocks = correlation_draws(method, x, y, level=level, samples=20, seed=3)
    assert blocks == pytest.approx(draws, abs=1e-9, nan_ok=True)
