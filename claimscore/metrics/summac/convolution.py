"""SummaC-Conv: a histogram of each summary sentence's evidence, and two linear layers on it.

Laban et al. 2022, SummaC, SummaC_Conv, and their code, `SummaCConv`. Histograms hold counts,
not shares, as the code's do (its option `norm_histo` does nothing).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.summac.image import (
    CONTRADICTION,
    ENTAILMENT,
    NEUTRAL,
    Values,
    as_image,
    check,
)
from claimscore.metrics.summac.weights import ConvWeights, as_weights

#: The edges of the released weights' 23 bins; the paper describes 50 even ones (`even50`).
PERCENTILE_EDGES = (
    *(0.0, 0.01, 0.02, 0.03, 0.04, 0.07, 0.13, 0.37, 0.90, 0.91, 0.92, 0.93),
    *(0.94, 0.95, 0.955, 0.96, 0.965, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995, 1.0),
)

#: NLI categories whose histograms a sentence has, one after the other in this order (Table 4).
LABEL_SETS = ("e", "c", "n", "ec", "en", "cn", "ecn")
_PLACES = {"e": ENTAILMENT, "c": CONTRADICTION, "n": NEUTRAL}

AGGREGATES = ("mean", "min", "max", "all")

#: `code` reads the first 10 summary sentences only, `paper` reads all.
VARIANTS = ("code", "paper")
CODE_SENTENCES = 10

_EVEN = re.compile(r"even([1-9]\d{0,3})")

Counts = NDArray[np.int64]


def summac_conv(
    probabilities: ArrayLike,
    weights: str | Path | Mapping[str, ArrayLike] | ConvWeights,
    *,
    bins: str = "percentile",
    aggregate: str = "mean",
    labels: str = "e",
    variant: str = "code",
) -> float | None:
    """SummaC-Conv of one document and summary, in [0, 1]; None where either has no block.

    `probabilities[document block][summary sentence]` is (entailment, neutral, contradiction).
    `weights` is a file (safetensors or a torch checkpoint) or the state that it holds. `bins` is
    `percentile` or `evenN`; `aggregate` mean, min, max, or all (the three as features).
    `ConfigError` for weights that cannot be read or do not fit the bins, `ValueError` for a wrong
    shape or option.
    """
    check("aggregate", aggregate, AGGREGATES)
    check("variant", variant, VARIANTS)
    edges = bin_edges(bins)
    check("labels", labels, LABEL_SETS)
    state = as_weights(weights)
    state.check_width((len(edges) - 1) * len(labels), f"bins {bins} of labels {labels}")
    image = as_image(probabilities)
    if image is None:
        return None
    n_document, n_summary, _ = image.shape
    sentences = np.tile(np.arange(n_summary), n_document)
    counts = histograms(image.reshape(-1, 3), sentences, n_summary, edges, labels)
    lengths = np.array([n_summary])
    values = sentence_values(counts, state)
    return float(probabilities_of(values, lengths, state, aggregate, variant)[0])


def bin_edges(bins: str) -> Values:
    """The edges of `percentile` or of `evenN`, N equal bins; `ValueError` for another name."""
    if bins == "percentile":
        return np.array(PERCENTILE_EDGES)
    even = _EVEN.fullmatch(bins)
    if not even:
        raise ValueError(f"bins is percentile or evenN such as even50, not {bins!r}")
    return np.append(np.arange(int(even[1])) * (1 / int(even[1])), 1.0)


def histograms(
    pairs: Values, sentences: NDArray[np.int64], n_sentences: int, edges: Values, labels: str
) -> Counts:
    """Counts `[n_sentences, len(labels) * bins]` of rows (entailment, neutral, contradiction).

    `sentences` says to which sentence each row belongs. As in `numpy.histogram`, a bin holds
    its lower edge, and the last its upper one too.
    """
    n_bins = len(edges) - 1
    counts = [
        np.bincount(
            sentences * n_bins + _bins(pairs[:, _PLACES[label]], edges),
            minlength=n_sentences * n_bins,
        ).reshape(n_sentences, n_bins)
        for label in labels
    ]
    return np.concatenate(counts, axis=1)


def _bins(values: Values, edges: Values) -> NDArray[np.int64]:
    found = np.searchsorted(edges, values, side="right") - 1
    return np.clip(found, 0, len(edges) - 2).astype(np.int64)


def sentence_values(counts: Counts, weights: ConvWeights) -> Values:
    """The first layer's output for each histogram: r_j = w·h_j + b, one a summary sentence."""
    return counts @ weights.mlp_weight + weights.mlp_bias


def probabilities_of(
    values: Values, lengths: NDArray[np.int64], weights: ConvWeights, aggregate: str, variant: str
) -> Values:
    """The probability of consistency of each summary, of which `lengths` values follow each other.

    Every summary has at least one sentence. In `code` the first 10 of each count.
    """
    starts = np.cumsum(lengths) - lengths
    if variant == "code":
        values = values[np.arange(len(values)) - np.repeat(starts, lengths) < CODE_SENTENCES]
        lengths = np.minimum(lengths, CODE_SENTENCES)
        starts = np.cumsum(lengths) - lengths
    if not len(lengths):
        return np.zeros(0)
    found = {
        "min": np.minimum.reduceat(values, starts),
        "mean": np.add.reduceat(values, starts) / lengths,
        "max": np.maximum.reduceat(values, starts),
    }
    chosen = ("min", "mean", "max") if aggregate == "all" else (aggregate,) * 3
    features = np.stack([found[name] for name in chosen], axis=1)
    logits = features @ weights.final_weight.T + weights.final_bias
    return _sigmoid(logits[:, 1] - logits[:, 0])


def _sigmoid(values: Values) -> Values:
    """1 / (1 + e^−x), of which no exponential overflows."""
    small = np.exp(-np.abs(values))
    found: Values = np.where(values >= 0, 1.0, small) / (1 + small)
    return found
