"""SummaC-Conv: the reference code's goldens, from the published weights."""

from __future__ import annotations

import json

import numpy as np
import pytest

from claimscore.metrics import summac_conv
from claimscore.metrics.summac.convolution import (
    bin_edges,
    histograms,
    sentence_values,
)
from claimscore.metrics.summac.weights import load_weights
from tests.support.shared_data import shared
from tests.support.summac_goldens import WEIGHTS, golden, probabilities


def counts_of(image: np.ndarray, bins: str, labels: str = "e") -> np.ndarray:
    n_document, n_summary, _ = image.shape
    sentences = np.tile(np.arange(n_summary), n_document)
    return histograms(image.reshape(-1, 3), sentences, n_summary, bin_edges(bins), labels)


def test_goldens_with_every_aggregate() -> None:
    """The published weights on 16 images, to the file's tolerance."""
    data, weights = golden(), shared(WEIGHTS)
    for case in data["cases"]:
        image = probabilities(case)
        for aggregate, expected in case["conv"].items():
            found = summac_conv(image, weights, bins="percentile", aggregate=aggregate)
            assert found == pytest.approx(expected, abs=data["tolerance"]), case["name"]
        assert summac_conv(image, weights) == pytest.approx(case["conv_default"], abs=1e-5)


def test_golden_histograms_and_sentence_values() -> None:
    """Counts are equal, the first layer's values to the file's tolerance."""
    data, weights = golden(), load_weights(shared(WEIGHTS))
    assert list(bin_edges("percentile")) == data["percentile_bin_edges"]
    for case in data["cases"]:
        image, n = probabilities(case), case["conv_rows_used"]
        percentile, even = counts_of(image, "percentile"), counts_of(image, "even50")
        assert percentile[:n].tolist() == case["hist_percentile_23"]
        assert even[:n].tolist() == case["hist_even50"]
        values = sentence_values(percentile, weights)[:n]
        assert values == pytest.approx(case["conv_sentence_values"], abs=data["tolerance"])


def test_the_loaded_state_gives_what_the_file_gives() -> None:
    """A state of tensors, of arrays, and the numbers printed beside the checkpoint."""
    import torch

    loaded = torch.load(shared(WEIGHTS), weights_only=True)
    text = shared("data/summac/summac_conv_vitc_sent_perc_e.json").read_text()
    image = np.random.default_rng(0).random((4, 3, 3))
    expected = summac_conv(image, str(shared(WEIGHTS)))
    assert summac_conv(image, loaded) == expected
    assert summac_conv(image, json.loads(text)["state_dict"]) == expected
