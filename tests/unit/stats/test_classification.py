"""Measures of classifiers: golden numbers of the SummaC benchmark, and values by hand."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from claimscore.stats.agreement import (
    best_threshold,
    weighted_accuracy,
    weighted_auc,
)
from claimscore.stats.bootstrap import resamples
from tests.support.shared_data import shared


def test_golden_thresholds():
    golden = shared("data/summac_benchmark/threshold_golden.json").read_text(encoding="utf-8")
    cases = json.loads(golden)["cases"]
    assert len(cases) == 6
    for case in cases:
        scores, labels = case["scores"], case["labels"]
        threshold = best_threshold(scores, labels)
        assert threshold == case["threshold"]
        values, positive = np.array(scores), np.array(labels, dtype=bool)
        once = np.ones((1, len(scores)))
        accuracy = weighted_accuracy(values > threshold, positive)(once)
        assert accuracy == pytest.approx(case["balanced_accuracy"], abs=1e-8)
        assert weighted_auc(values, positive)(once) == pytest.approx(case["roc_auc"], abs=1e-8)


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
    with pytest.raises(ValueError, match=message):
        best_threshold(scores, labels)


def test_a_weight_is_as_many_equal_rows():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 6, size=30) / 6
    positive = rng.integers(0, 2, size=30).astype(bool)
    weights = np.concatenate(list(resamples(30, 25, seed=0)))
    accuracies = weighted_accuracy(scores > 0.4, positive)(weights)
    areas = weighted_auc(scores, positive)(weights)
    for counts, accuracy, area in zip(weights.astype(int), accuracies, areas, strict=True):
        values, labels = np.repeat(scores, counts), np.repeat(positive, counts)
        once = np.ones((1, 30))
        assert accuracy == pytest.approx(weighted_accuracy(values > 0.4, labels)(once)[0])
        test = stats.mannwhitneyu(values[labels], values[~labels], method="asymptotic")
        assert area == pytest.approx(test.statistic / (labels.sum() * (~labels).sum()))
    only_one = positive[None].astype(float)
    assert np.isnan(weighted_accuracy(scores > 0.4, positive)(only_one)).all()
    assert np.isnan(weighted_auc(scores, positive)(only_one)).all()
