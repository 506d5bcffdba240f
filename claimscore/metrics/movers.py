"""Word and sentence mover's similarity, and MoverScore: the cost of moving one text into another.

The vectors are contextual token embeddings; the transport problem is solved exactly by POT.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError
from claimscore.metrics.base import Metric, MetricFamily, PassRequirement, option
from claimscore.metrics.reference_texts import TextOptions, read_number, value_metric

SENTENCE_REFERENCE = (
    "Clark, Celikyilmaz and Smith 2019, Sentence Mover's Similarity: Automatic Evaluation for "
    "Multi-Sentence Texts; smd.py of eaclark07/sms; Kusner et al. 2015, From Word Embeddings To "
    "Document Distances (WMD)"
)
MOVER_REFERENCE = (
    "Zhao et al. 2019, MoverScore: Text Generation Evaluating with Contextualized Embeddings and "
    "Earth Mover Distance; moverscore.py of AIPHES/emnlp19-moverscore"
)

#: The layers that MoverScore reads: the last so many.
MOVER_LAYERS = 5

#: Lengths of n-grams, and the ways to measure the cost of a step.
NGRAMS = (1, 2)
VARIANTS = ("paper", "code")

Vectors = NDArray[np.floating[Any]]


class Bag(NamedTuple):
    """Vectors ``[n, d]`` and what each weighs; the weights sum to one."""

    vectors: Vectors
    weights: NDArray[np.float64]


class MoverSimilarities(NamedTuple):
    """Similarity by words (WMS), by sentences (SMS), and by both together (S+WMS); in (0, 1]."""

    words: float
    sentences: float
    both: float


def check_transport() -> None:
    """`ConfigError` where the library for optimal transport is not installed."""
    if importlib.util.find_spec("ot") is None:
        raise ConfigError(
            "word and sentence mover's similarity and MoverScore need optimal transport: "
            "pip install 'claimscore[movers]'"
        )


def mover_distance(a: Bag, b: Bag, *, squared: bool = False) -> float:
    """The least cost of moving the weights of one bag onto the other: WMD.

    Kusner et al. 2015: min Σ T_ij·c(i, j) over T ≥ 0 whose rows sum to the weights of a and whose
    columns to those of b; c is the Euclidean distance, or its square. `ArithmeticError` where the
    solver finds no optimum.
    """
    check_transport()
    import ot

    cost, log = ot.emd2(a.weights, b.weights, _costs(a.vectors, b.vectors, squared), log=True)
    if log["warning"]:
        raise ArithmeticError(f"no optimal transport found: {log['warning']}")
    return max(float(cost), 0.0)


def _costs(a: Vectors, b: Vectors, squared: bool) -> NDArray[np.float64]:
    a, b = a.astype(np.float64), b.astype(np.float64)
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * (a @ b.T)
    # Equal vectors are 1e-16 apart by rounding, and 1e-8 after the root: that is no distance.
    squares[squares < 1e-12] = 0
    costs: NDArray[np.float64] = squares if squared else np.sqrt(squares)
    return np.ascontiguousarray(costs)


def mover_similarities(a: Sequence[Vectors], b: Sequence[Vectors]) -> MoverSimilarities | None:
    """WMS, SMS and S+WMS of two texts, each given as its sentences' word vectors ``[words, d]``.

    Clark et al. 2019: exp(−WMD) over the words, each occurrence with the same weight; over the
    sentences, each the mean of its words' vectors and as heavy as it has words; and over words
    and sentences together. None where a text has no word. Symmetric.
    """
    first, second = _bags(a), _bags(b)
    if first is None or second is None:
        return None
    return MoverSimilarities(
        *(math.exp(-mover_distance(x, y)) for x, y in zip(first, second, strict=True))
    )


def _bags(text: Sequence[Vectors]) -> tuple[Bag, Bag, Bag] | None:
    """The bags of the words, of the sentences, and of both."""
    sentences = [sentence for sentence in text if len(sentence)]
    if not sentences:
        return None
    words = np.concatenate(sentences)
    means = np.stack([sentence.mean(axis=0) for sentence in sentences])
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.float64)
    ones = np.ones(len(words))
    return (
        _bag(words, ones),
        _bag(means, lengths),
        _bag(np.concatenate([words, means]), np.concatenate([ones, lengths])),
    )


def _bag(vectors: Vectors, weights: NDArray[np.float64]) -> Bag:
    return Bag(vectors, weights / weights.sum())


def power_means(layers: Vectors) -> Vectors:
    """The least, mean and largest of each number over the layers: ``[L, n, d]`` to ``[n, 3d]``.

    Zhao et al. 2019: power means with p = −∞, 1, ∞, one after the other. The layers
    have unit length, as in the authors' code.
    """
    return np.concatenate([layers.min(axis=0), layers.mean(axis=0), layers.max(axis=0)], axis=-1)


def mover_score(a: Vectors, b: Vectors, *, n: int, variant: str) -> float | None:
    """MoverScore of two texts' token vectors ``[tokens, d]``: 1 − WMD over their n-grams.

    Zhao et al. 2019, all tokens with the same idf: an n-gram is the mean of its
    tokens' vectors, made unit length; a text of fewer than n tokens is one n-gram. `variant`
    `paper` moves by the Euclidean distance, `code` by its square. None where a text has no token.
    Symmetric; equal texts give 1.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant is one of {', '.join(VARIANTS)}, not {variant!r}")
    if not (len(a) and len(b)):
        return None
    first, second = (_bag(grams, np.ones(len(grams))) for grams in (_ngrams(a, n), _ngrams(b, n)))
    return 1 - mover_distance(first, second, squared=variant == "code")


def _ngrams(vectors: Vectors, n: int) -> Vectors:
    width = min(n, len(vectors))
    windows = np.lib.stride_tricks.sliding_window_view(vectors, width, axis=0)
    means = windows.mean(axis=-1)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    grams: Vectors = means / np.where(norms > 0, norms, 1)
    return grams


# The metrics: a pass has put the numbers into `text_scores`.


@dataclasses.dataclass(frozen=True)
class SmsOptions(TextOptions):
    """Options of `sms`."""

    words: bool = option(False, "Whether words are moved beside the sentences.", (False, True))


@dataclasses.dataclass(frozen=True)
class MoverScoreOptions(TextOptions):
    """Options of `moverscore`."""

    variant: str = option(
        "paper", "The distance: Euclidean as in the paper, or squared as in the code.", VARIANTS
    )
    n: int = option(1, "The length of the n-grams.", NGRAMS)


def _make_sentence_movers(name: str, options: TextOptions) -> Metric:
    both = isinstance(options, SmsOptions) and options.words
    unit = "sentence" if isinstance(options, SmsOptions) else "word"
    return _metric(
        name,
        options,
        ("sentence_movers", "s+wms" if both else f"{unit[0]}ms"),
        range=(0.0, 1.0),
        description=f"exp(−{unit} mover's distance) of the summary and its references or source",
        reference=SENTENCE_REFERENCE,
    )


def _make_moverscore(name: str, options: MoverScoreOptions) -> Metric:
    return _metric(
        name,
        options,
        ("mover_score", mover_score_name(options.n, options.variant)),
        range=(-1.0, 1.0) if options.variant == "paper" else (-3.0, 1.0),
        description="1 − word mover's distance over n-grams of power means of the last layers",
        reference=MOVER_REFERENCE,
    )


def mover_score_name(n: int, variant: str) -> str:
    """The MoverScore of `text_scores`."""
    return f"{variant}-{n}"


def _metric(name: str, options: TextOptions, number: tuple[str, str], **more: Any) -> Metric:
    """The metric over one number of `text_scores`: its measure and its name there."""
    measure = number[0]
    return value_metric(
        name,
        options,
        read_number(*number, options.against),
        "mover's score",
        (PassRequirement(measure, ("summary", options.against)),),
        signature_keys=("token_encoder", "layer", "dtype", "claimscore"),
        higher_is="more alike",
        **more,
    )


WMS = MetricFamily("wms", TextOptions, _make_sentence_movers)
SMS = MetricFamily("sms", SmsOptions, _make_sentence_movers)
MOVERSCORE = MetricFamily("moverscore", MoverScoreOptions, _make_moverscore)
