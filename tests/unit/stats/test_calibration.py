"""Calibration measures against values computed by hand, and what must hold for any model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.stats.calibration import (
    best_temperature,
    expected_calibration_error,
    negative_log_likelihood,
    with_temperature,
)

Array = NDArray[np.float64]

#: Confidences .8 .8 .6 .9; right, wrong, right, right.
FOUR = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.05, 0.9, 0.05]]
LABELS = [0, 2, 2, 1]


@st.composite
def judged(draw: st.DrawFn) -> tuple[Array, NDArray[np.int64]]:
    """Probabilities of three classes, labels drawn from them after some distortion."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, spread = draw(st.integers(2, 60)), draw(st.floats(0.1, 4.0))
    logits = rng.normal(scale=spread, size=(rows, 3))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), rng.integers(0, 3, size=rows)


def test_the_calibration_error_by_hand() -> None:
    """Bins of 1/15: two rows of .8 with half right, one of .6 and one of .9 all right."""
    wanted = (2 * abs(0.8 - 0.5) + abs(0.6 - 1) + abs(0.9 - 1)) / 4
    assert expected_calibration_error(FOUR, LABELS) == pytest.approx(wanted)


def test_a_bin_holds_its_upper_edge() -> None:
    """.6 is the edge of (.4, .6] of five bins, so .6 and .55 are one bin: gap of their means."""
    rows = [[0.6, 0.4], [0.55, 0.45]]
    assert expected_calibration_error(rows, [0, 1], bins=5) == pytest.approx(abs(0.575 - 0.5))
    assert expected_calibration_error([[0.6, 0.4], [0.65, 0.35]], [0, 1], bins=5) == pytest.approx(
        (0.4 + 0.65) / 2
    )


def test_the_likelihood_by_hand() -> None:
    nll = -(math.log(0.8) + math.log(0.1) + math.log(0.6) + math.log(0.9)) / 4
    assert negative_log_likelihood(FOUR, LABELS) == pytest.approx(nll)
    assert negative_log_likelihood(np.eye(3), [1, 2, 0]) == pytest.approx(-math.log(2**-126))


def test_the_temperature_of_two_classes_by_hand() -> None:
    """Says .9 and is right three times of four: ln 9 / T must be ln 3, so T is 2."""
    rows = [[0.9, 0.1]] * 4
    assert best_temperature(rows, [0, 0, 0, 1]) == pytest.approx(2, abs=1e-4)
    assert with_temperature(rows, 2.0)[0] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        pytest.param([[0.6, 0.4], [0.3, 0.7]], [0, 1], id="all right"),
        pytest.param([[0.9, 0.1], [0.8, 0.2]], [1, 1], id="all wrong"),
        pytest.param([[0.5, 0.5], [0.5, 0.5]], [0, 1], id="says nothing"),
    ],
)
def test_there_may_be_no_best_temperature(rows: list[list[float]], labels: list[int]) -> None:
    assert best_temperature(rows, labels) is None


@settings(max_examples=60, deadline=None)
@given(judged(), st.floats(0.2, 5.0))
def test_a_temperature_changes_no_prediction(
    case: tuple[Array, NDArray[np.int64]], temperature: float
) -> None:
    probabilities, _ = case
    scaled = with_temperature(probabilities, temperature)
    assert scaled.sum(axis=1) == pytest.approx(1)
    assert (scaled.argmax(axis=1) == probabilities.argmax(axis=1)).all()
    assert with_temperature(scaled, 1 / temperature) == pytest.approx(probabilities, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(judged())
def test_the_best_temperature_is_best(case: tuple[Array, NDArray[np.int64]]) -> None:
    probabilities, labels = case
    best = best_temperature(probabilities, labels)
    if best is None:
        return
    fitted = with_temperature(probabilities, best)
    least = negative_log_likelihood(fitted, labels)
    for other in (0.5, 0.9, 1.1, 2.0):
        there = with_temperature(probabilities, best * other)
        assert negative_log_likelihood(there, labels) >= least - 1e-9
    again = best_temperature(fitted, labels)
    assert again is None or again == pytest.approx(1, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(judged())
def test_measures_do_not_depend_on_order(case: tuple[Array, NDArray[np.int64]]) -> None:
    probabilities, labels = case
    rows = np.random.default_rng(0).permutation(len(labels))
    columns = np.array([2, 0, 1])
    renamed = np.argsort(columns)[labels[rows]]
    for measure, bound in (
        (expected_calibration_error, 1),
        (negative_log_likelihood, math.inf),
    ):
        value = measure(probabilities, labels)
        assert 0 <= value <= bound
        assert measure(probabilities[rows][:, columns], renamed) == pytest.approx(value)
