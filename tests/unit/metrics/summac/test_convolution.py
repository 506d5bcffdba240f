"""SummaC-Conv: the reference code's goldens, bins, categories, and weights that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from claimscore.errors import ConfigError
from claimscore.metrics import summac_conv
from claimscore.metrics.summac.convolution import (
    LABEL_SETS,
    PERCENTILE_EDGES,
    bin_edges,
    histograms,
)


def state(width: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights for histograms of so many numbers."""
    rng = np.random.default_rng(seed)
    shapes = {"mlp.weight": (1, width), "mlp.bias": (1,)}
    shapes |= {"layer_final.weight": (2, 3), "layer_final.bias": (2,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def counts_of(image: np.ndarray, bins: str, labels: str = "e") -> np.ndarray:
    n_document, n_summary, _ = image.shape
    sentences = np.tile(np.arange(n_summary), n_document)
    return histograms(image.reshape(-1, 3), sentences, n_summary, bin_edges(bins), labels)


def test_only_the_first_ten_sentences_count_in_the_code() -> None:
    """The eleventh changes nothing in `code` and something in `paper`."""
    image = np.random.default_rng(1).random((5, 11, 3))
    weights = state(23)
    assert summac_conv(image, weights) == summac_conv(image[:, :10], weights)
    assert summac_conv(image, weights, variant="paper") != summac_conv(image, weights)
    first_ten = summac_conv(image[:, :10], weights)
    assert summac_conv(image[:, :10], weights, variant="paper") == first_ten


@settings(max_examples=30)
@given(
    arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1, width=32)),
    st.sampled_from(["percentile", "even50", "even7", "even1"]),
)
def test_histograms_are_numpys(values: np.ndarray, bins: str) -> None:
    """A bin holds its lower edge, the last its upper one too; every value is counted once."""
    image = np.zeros((len(values), 1, 3))
    image[:, 0, 0] = values
    expected, _ = np.histogram(values, bins=bin_edges(bins))
    assert counts_of(image, bins)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("labels", LABEL_SETS)
def test_any_subset_of_the_categories(labels: str) -> None:
    """Table 4: one histogram a category, in the code's order e, c, n."""
    image = np.random.default_rng(2).random((6, 2, 3))
    counts = counts_of(image, "even10", labels)
    parts = [counts_of(image, "even10", label) for label in labels]
    assert counts.tolist() == np.concatenate(parts, axis=1).tolist()
    value = summac_conv(image, state(10 * len(labels)), bins="even10", labels=labels)
    assert value is not None
    assert 0 < value < 1


def test_categories_stand_in_the_order_of_the_code() -> None:
    """Entailment, contradiction, neutral, though an image has neutral second."""
    image = np.array([[[0.1, 0.5, 0.9]]])
    assert counts_of(image, "even3", "ecn").tolist() == [[1, 0, 0, 0, 0, 1, 0, 1, 0]]
    assert counts_of(image, "even3", "n").tolist() == [[0, 1, 0]]


def test_even_bins_are_the_codes() -> None:
    """`numpy.arange(0, 1, 1/50) + [1.0]`, and as many as the name says for every N."""
    assert list(bin_edges("even50")) == [*np.arange(0, 1, 1 / 50), 1.0]
    assert [len(bin_edges(f"even{n}")) for n in range(1, 200)] == list(range(2, 201))


@settings(max_examples=30)
@given(st.randoms(), st.sampled_from(["mean", "min", "max", "all"]))
def test_the_order_of_blocks_is_irrelevant(rng, aggregate: str) -> None:  # type: ignore[no-untyped-def]
    """Up to ten sentences; beyond that the first ten are another choice."""
    image = np.random.default_rng(3).random((7, 5, 3))
    rows, columns = list(range(7)), list(range(5))
    rng.shuffle(rows)
    rng.shuffle(columns)
    found = summac_conv(image[rows][:, columns], state(23), aggregate=aggregate)
    expected = summac_conv(image, state(23), aggregate=aggregate)
    assert found == pytest.approx(expected, abs=1e-12)


def test_counts_are_not_shares() -> None:
    """A document twice has twice the counts, so another score."""
    image = np.random.default_rng(4).random((3, 2, 3))
    twice = np.concatenate([image, image])
    assert counts_of(twice, "percentile").sum() == 2 * counts_of(image, "percentile").sum()
    assert summac_conv(twice, state(23)) != summac_conv(image, state(23))


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_values_stay_within_zero_and_one(scale: float) -> None:
    """Huge logits saturate and do not overflow."""
    weights = {name: value * scale for name, value in state(23).items()}
    value = summac_conv(np.ones((100, 3, 3)), weights)
    assert value is not None
    assert 0 <= value <= 1


@pytest.mark.parametrize("empty", [[], [[], []]], ids=["no document block", "no sentence"])
def test_nothing_to_compare_is_none(empty: list[object]) -> None:
    """The code gives 0.200109 with the published weights, a number like any other."""
    assert summac_conv(empty, state(23)) is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param({"bins": "even50"}, ConfigError, "take 23 numbers a sentence", id="bins"),
        pytest.param({"labels": "ec"}, ConfigError, "of labels ec are 46", id="labels"),
        pytest.param({"bins": "even0"}, ValueError, "percentile or evenN", id="no bins"),
        pytest.param({"bins": "odd"}, ValueError, "percentile or evenN", id="unknown bins"),
        pytest.param({"labels": "ce"}, ValueError, "labels is one of e, c", id="label order"),
        pytest.param({"aggregate": "sum"}, ValueError, "aggregate is one of", id="aggregate"),
        pytest.param({"variant": "best"}, ValueError, "variant is one of", id="variant"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error, message) -> None:  # type: ignore[no-untyped-def]
    """In one line that says what fits, whatever the image."""
    with pytest.raises(error, match=message):
        summac_conv([], state(len(PERCENTILE_EDGES) - 1), **options)
