"""Measures of classifiers: golden numbers of the SummaC benchmark, and values by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from claimscore.stats.agreement import (
    balanced_accuracy,
    best_threshold,
    roc_auc,
    weighted_accuracy,
    weighted_auc,
)
from claimscore.stats.bootstrap import resamples
from tests.support.shared_data import shared

samples = st.lists(
    st.tuples(st.integers(-8, 8).map(lambda n: n / 8), st.integers(0, 1)), min_size=2, max_size=40
)


def columns(rows: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    scores, labels = zip(*rows, strict=True)
    assume(0 < sum(labels) < len(labels))
    return list(scores), list(labels)


def test_golden_thresholds():
    golden = shared("data/summac_benchmark/threshold_golden.json").read_text(encoding="utf-8")
    cases = json.loads(golden)["cases"]
    assert len(cases) == 6
    for case in cases:
        scores, labels = case["scores"], case["labels"]
        threshold = best_threshold(scores, labels)
        assert threshold == case["threshold"]
        accuracy = balanced_accuracy(scores, labels, threshold)
        assert accuracy == pytest.approx(case["balanced_accuracy"], abs=1e-8)
        assert roc_auc(scores, labels) == pytest.approx(case["roc_auc"], abs=1e-8)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, math.nan], [0, 1], "finite"),
        ([0.1, 0.2], [0, 1, 1], "one length"),
        ([0.1, 0.2], [1, 1], "both labels"),
        ([0.1, 0.2], [0, 2], "0 or 1"),
        ([], [], "both labels"),
    ],
)
def test_wrong_input_is_refused(scores, labels, message: str):
    for call in (
        lambda: best_threshold(scores, labels),
        lambda: balanced_accuracy(scores, labels, 0.5),
        lambda: roc_auc(scores, labels),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_weighted_measures_equal_the_plain_ones():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 6, size=30) / 6
    positive = rng.integers(0, 2, size=30).astype(bool)
    weights = np.concatenate(list(resamples(30, 25, seed=0)))
    accuracies = weighted_accuracy(scores > 0.4, positive)(weights)
    areas = weighted_auc(scores, positive)(weights)
    for counts, accuracy, area in zip(weights.astype(int), accuracies, areas, strict=True):
        drawn = np.repeat(np.arange(30), counts)
        assert accuracy == pytest.approx(balanced_accuracy(scores[drawn], positive[drawn], 0.4))
        assert area == pytest.approx(roc_auc(scores[drawn], positive[drawn]))
    only_one = positive[None].astype(float)
    assert np.isnan(weighted_accuracy(scores > 0.4, positive)(only_one)).all()
    assert np.isnan(weighted_auc(scores, positive)(only_one)).all()
