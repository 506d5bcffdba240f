"""SummaC-Conv: a histogram of each summary sentence's evidence, and two linear layers on it.

Laban et al. 2022, SummaC, SummaC_Conv, and their code, `SummaCConv`. Histograms hold counts,
not shares, as the code's do (its option `norm_histo` does nothing).

Weights are read from what is published and kept as safetensors. A torch checkpoint is read with
`weights_only=True`, so no code in it runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from claimscore.atomic import atomic_file, os_errors
from claimscore.errors import ConfigError
from claimscore.metrics.base import Metric, MetricFamily, nothing_to_check, option, unscored
from claimscore.metrics.summac import (
    CONTRADICTION,
    CUT_VALUES,
    ENTAILMENT,
    NEUTRAL,
    REFERENCE,
    SIGNATURE_KEYS,
    Values,
    check,
    cut_requirements,
    pair_matrix,
    score_matrices,
    summac_facts,
)

#: The edges of the released weights' 23 bins; the paper describes 50 even ones (`even50`).
PERCENTILE_EDGES = (
    *(0.0, 0.01, 0.02, 0.03, 0.04, 0.07, 0.13, 0.37, 0.90, 0.91, 0.92, 0.93),
    *(0.94, 0.95, 0.955, 0.96, 0.965, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995, 1.0),
)

#: NLI categories whose histograms a sentence has, one after the other in this order (Table 4).
LABEL_SETS = ("e", "c", "n", "ec", "en", "cn", "ecn")
_PLACES = {"e": ENTAILMENT, "c": CONTRADICTION, "n": NEUTRAL}

AGGREGATES = ("mean", "min", "max", "all")

#: `paper` reads all summary sentences, `code` the first 10 only.
VARIANTS = ("paper", "code")
CODE_SENTENCES = 10

_EVEN = re.compile(r"even([1-9]\d{0,3})")

Counts = NDArray[np.int64]


# Weights

FORMAT = "claimscore-summac-conv-1"
METADATA_KEY = "claimscore"

#: A file of these weights has a few kilobytes; a larger one is not read.
MAX_BYTES = 1 << 22

_NAMES = ("mlp.weight", "mlp.bias", "layer_final.weight", "layer_final.bias")


@dataclasses.dataclass(frozen=True, eq=False)
class ConvWeights:
    """Two linear layers: histogram to one value a sentence, three features to two logits.

    `mlp_weight` is [H], `final_weight` [2, 3], `final_bias` [2]; the second logit is
    consistency. `settings` are what the file says of bins, labels, granularity, model; a
    published checkpoint says nothing.
    """

    mlp_weight: Values
    mlp_bias: float
    final_weight: Values
    final_bias: Values
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def width(self) -> int:
        """H, the numbers of one sentence's histograms together."""
        return len(self.mlp_weight)

    def check_width(self, wanted: int, what: str) -> None:
        """`ConfigError` unless the weights are for histograms of that many numbers."""
        if self.width != wanted:
            raise ConfigError(
                f"the SummaC-Conv weights take {self.width} numbers a sentence, but {what} are "
                f"{wanted}; choose the bins and labels that they were trained with"
            )

    @property
    def digest(self) -> str:
        """12 hex digits of the SHA-256 over the numbers, the same in every file format."""
        digest = hashlib.sha256()
        for value in self._state().values():
            digest.update(np.ascontiguousarray(value, dtype="<f4").tobytes())
        return digest.hexdigest()[:12]

    def _state(self) -> dict[str, NDArray[np.float32]]:
        values = (self.mlp_weight[None, :], [self.mlp_bias], self.final_weight, self.final_bias)
        return {
            name: np.asarray(value, dtype=np.float32)
            for name, value in zip(_NAMES, values, strict=True)
        }

    def save(self, path: Path, settings: Mapping[str, str]) -> None:
        """Write a safetensors file with the settings in its metadata; equal input, equal bytes."""
        from safetensors.numpy import save

        described = json.dumps({**settings, "format": FORMAT}, sort_keys=True)
        with os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as stream:
            stream.write(save(self._state(), metadata={METADATA_KEY: described}))


def as_weights(given: str | Path | Mapping[str, ArrayLike] | ConvWeights) -> ConvWeights:
    """The weights in a file, or those of a loaded state (tensors or arrays by name)."""
    if isinstance(given, ConvWeights):
        return given
    if isinstance(given, str | Path):
        return load_weights(Path(given))
    return _from_state(given, "the given state", {})


def load_weights(path: Path) -> ConvWeights:
    """The weights in a safetensors file or a torch checkpoint, by content, not by name.

    `ConfigError` for a file that is missing, damaged, of another model, or not plain tensors.
    """
    with os_errors(path):
        with path.open("rb") as file:
            start = file.read(9)
        size = path.stat().st_size
    if size > MAX_BYTES:
        raise ConfigError(f"{path}: not SummaC-Conv weights: {size:,} bytes are far too many")
    if start[8:9] == b"{":
        return _load_safetensors(path)
    with _readable(path, "a torch checkpoint of plain tensors"):
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
    return _from_state(state, str(path), {})


def _load_safetensors(path: Path) -> ConvWeights:
    with _readable(path, "a safetensors file"):
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            described = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        settings = {str(name): str(value) for name, value in described.items()}
    return _from_state(state, str(path), settings)


@contextlib.contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    """Whatever a damaged or foreign file makes the readers raise, as one line of `ConfigError`."""
    try:
        yield
    except ImportError:
        raise
    except Exception as exc:  # torch and safetensors share no class for what they refuse
        raise ConfigError(
            f"{path}: not SummaC-Conv weights: it is damaged or not {what}; nothing in it was run"
        ) from exc


def _from_state(state: Any, where: str, settings: Mapping[str, str]) -> ConvWeights:
    """A state of exactly the four tensors, with shapes that fit each other."""
    if not isinstance(state, Mapping) or set(state) != set(_NAMES):
        raise ConfigError(f"{where}: not SummaC-Conv weights: they have {', '.join(_NAMES)}")
    try:
        mlp, mlp_bias, final, final_bias = (
            np.asarray(state[name], dtype=np.float64) for name in _NAMES
        )
    except (TypeError, ValueError, RuntimeError) as exc:
        raise ConfigError(f"{where}: not SummaC-Conv weights: a value is no tensor") from exc
    shapes = (mlp_bias.shape, final.shape, final_bias.shape)
    if mlp.ndim != 2 or mlp.shape[0] != 1 or not mlp.size or shapes != ((1,), (2, 3), (2,)):
        raise ConfigError(f"{where}: not SummaC-Conv weights: the tensors have other shapes")
    if not all(np.isfinite(value).all() for value in (mlp, mlp_bias, final, final_bias)):
        raise ConfigError(f"{where}: the weights hold numbers that are not finite")
    return ConvWeights(mlp[0], float(mlp_bias[0]), final, final_bias, settings)


# The score


def summac_conv(
    probabilities: ArrayLike,
    weights: str | Path | Mapping[str, ArrayLike] | ConvWeights,
    *,
    bins: str = "percentile",
    aggregate: str = "mean",
    labels: str = "e",
    variant: str = "paper",
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
    matrix = pair_matrix(probabilities)
    if matrix is None:
        return None
    values = sentence_values(histograms(matrix, edges, labels), state)
    return _probability(values, state, aggregate, variant)


def bin_edges(bins: str) -> Values:
    """The edges of `percentile` or of `evenN`, N equal bins; `ValueError` for another name."""
    if bins == "percentile":
        return np.array(PERCENTILE_EDGES)
    even = _EVEN.fullmatch(bins)
    if not even:
        raise ValueError(f"bins is percentile or evenN such as even50, not {bins!r}")
    return np.append(np.arange(int(even[1])) * (1 / int(even[1])), 1.0)


def histograms(matrix: Values, edges: Values, labels: str) -> Counts:
    """Counts `[summary sentence, len(labels) * bins]` of a pair matrix.

    A bin holds its lower edge, and the last its upper one too.
    """

    def count(values: Values) -> NDArray[np.int64]:
        return np.histogram(values, edges)[0]

    counts = [np.apply_along_axis(count, 0, matrix[:, :, _PLACES[label]]) for label in labels]
    return np.concatenate(counts, axis=0).T


def sentence_values(counts: Counts, weights: ConvWeights) -> Values:
    """The first layer's output for each histogram: r_j = w·h_j + b, one a summary sentence."""
    return counts @ weights.mlp_weight + weights.mlp_bias


def _probability(values: Values, weights: ConvWeights, aggregate: str, variant: str) -> float:
    """The probability of consistency of a summary; in `code` its first 10 sentences count."""
    counted = values[:CODE_SENTENCES] if variant == "code" else values
    names = ("min", "mean", "max") if aggregate == "all" else (aggregate,) * 3
    features = np.array([getattr(counted, name)() for name in names])
    return float(_consistency(features, weights))


def _consistency(features: Values, weights: ConvWeights) -> Values:
    """The second layer's probability of each row of three features."""
    logits = features @ weights.final_weight.T + weights.final_bias
    probabilities: Values = special.expit(logits[..., 1] - logits[..., 0])
    return probabilities


#: Reads as the weights' file says, else as the paper.
TRAINED = "trained"

#: What the weights' file may say, and its values, the default first.
_TRAINED = {**CUT_VALUES, "labels": LABEL_SETS, "aggregate": AGGREGATES, "variant": VARIANTS}


@dataclasses.dataclass(frozen=True)
class ConvolutionOptions:
    """Options of `summac-conv`."""

    weights: str = option("", "The file of the trained weights.")
    variant: str = option(
        TRAINED, "Read all sentences (paper), or the first ten (code).", (TRAINED, *VARIANTS)
    )


def _make(name: str, options: ConvolutionOptions) -> Metric:
    if not options.weights:
        return _without_weights(name)
    weights = load_weights(Path(options.weights).expanduser())
    settings = _settings(options.variant, weights)
    edges = _edges(settings, weights)
    requires = cut_requirements(settings)

    def score(matrix: Values) -> tuple[float, dict[str, object]]:
        values = sentence_values(histograms(matrix, edges, settings["labels"]), weights)
        alone = _consistency(np.tile(values[:, None], 3), weights)
        value = _probability(values, weights, settings["aggregate"], settings["variant"])
        return value, {
            "n_document_blocks": len(matrix),
            "n_summary_blocks": len(values),
            "sentence_scores": alone.tolist(),
            "sentence_values": values.tolist(),
        }

    metric = _without_weights(name)
    facts = summac_facts(settings, "bins", "labels", "aggregate", "variant")
    return dataclasses.replace(
        metric,
        requires=requires,
        score=lambda tables: score_matrices(tables, requires, score),
        facts=(*facts, ("weights", weights.digest)),
        check=nothing_to_check,
    )


def _without_weights(name: str) -> Metric:
    """The metric as it stands in lists; its `check` says what is missing."""

    def check() -> None:
        raise ConfigError(
            f"metric {name} needs weights: {name}:weights=FILE, made by `claimscore train "
            "summac-conv` or published by its authors (summac_conv_vitc_sent_perc_e.bin)"
        )

    return Metric(
        name=name,
        requires=cut_requirements({name: values[0] for name, values in CUT_VALUES.items()}),
        score=lambda tables: [unscored(record, "no weights") for record in tables.records["id"]],
        signature_keys=SIGNATURE_KEYS,
        higher_is="more consistent",
        range=(0.0, 1.0),
        description="probability of consistency from histograms of each summary sentence's NLI",
        reference=f"{REFERENCE}, SummaC_Conv",
        check=check,
    )


def _settings(variant: str, weights: ConvWeights) -> dict[str, str]:
    """What the weights' file says, else the defaults."""
    named = {**weights.settings, **({} if variant == TRAINED else {"variant": variant})}
    settings = {name: named.get(name, known[0]) for name, known in _TRAINED.items()}
    for name, value in settings.items():
        if value not in _TRAINED[name]:
            raise ConfigError(f"metric summac-conv: {name} is one of {', '.join(_TRAINED[name])}")
    return {**settings, "bins": named.get("bins") or _likely_bins(weights, settings)}


def _likely_bins(weights: ConvWeights, settings: Mapping[str, str]) -> str:
    """The bins of a file that does not name them: 23 a label are the released ones."""
    per_label = weights.width // len(settings["labels"])
    released = per_label == len(PERCENTILE_EDGES) - 1
    return "percentile" if released else f"even{per_label}"


def _edges(settings: Mapping[str, str], weights: ConvWeights) -> Values:
    try:
        edges = bin_edges(settings["bins"])
    except ValueError as exc:
        raise ConfigError(f"metric summac-conv: {exc}") from None
    labels = settings["labels"]
    what = f"bins {settings['bins']} of labels {labels}"
    weights.check_width((len(edges) - 1) * len(labels), what)
    return edges


SUMMAC_CONV = MetricFamily("summac-conv", ConvolutionOptions, _make)
