"""The reference code's goldens come out of the metrics."""

from __future__ import annotations

import pytest

from claimscore.metrics import load_metric
from tests.support.shared_data import shared
from tests.support.summac_goldens import WEIGHTS, golden, probabilities
from tests.unit.metrics.summac.test_families import chunk

LONG = "a text of more than ten characters"


def test_goldens_come_out_of_the_metrics() -> None:
    """The run's metrics agree with the reference code on its 16 images."""
    cases = golden()["cases"]
    given = chunk({case["name"]: probabilities(case) for case in cases})
    expected = {
        "summac-zs": "zs_paper",
        "summac-zs:variant=code": "zs_default",
        f"summac-conv:weights={shared(WEIGHTS)}": "conv_default",
    }
    for name, key in expected.items():
        metric = load_metric(name)
        assert metric.name == name
        for case, score in zip(cases, metric.score(given), strict=True):
            assert score.id == case["name"]
            assert score.value == pytest.approx(case[key], abs=1e-5), case["name"]
            low, high = metric.range
            assert low <= score.value <= high
