"""Measure and calibrate an NLI model on labelled sentence pairs.

Accuracy counts the largest of the three logits, also on sets that use two labels only (MED, MoNLI,
the sentiment set), so that numbers of different models compare. Calibration is one temperature,
the standard remedy of Guo et al. 2017 (https://arxiv.org/abs/1706.04599): it changes no label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BertTokenizer

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.embedded import (
    ID2LABEL,
    EmbeddedNLI,
    load_embedded_nli,
    read_adapter,
    write_adapter,
)
from claimscore.stats.calibration import best_temperature, expected_calibration_error
from claimscore.training.nli import NLITrainingConfig, Progress, train, two_phases
from claimscore.training.nli_data import (
    Examples,
    make_batch,
    pair_lengths,
    read_pairs,
    tokenize,
)

CALIBRATION_SETS = ("dev_snli", "dev_mnli_matched")
MAX_LENGTH = 256


@dataclass(frozen=True)
class DevResult:
    """How a model does on one set; ``confusion`` rows are true labels, columns predicted ones."""

    name: str
    pairs: int
    accuracy: float
    ece: float
    nll: float
    confusion: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class NLITrainingResult:
    """The result of ``train_nli``: the adapter, its temperature, and its figures on each set."""

    adapter: Path
    temperature: float
    dev: tuple[DevResult, ...]


def train_nli(
    config: NLITrainingConfig, progress: Callable[[Progress], None] = lambda _: None
) -> NLITrainingResult:
    """Train in two phases, fit the temperature and evaluate: `claimscore train nli`.

    The sets are the ``dev_*.parquet`` in the data folders; where the calibration sets are not
    among them, the temperature stays 1. Called again after an interruption it goes on from the
    last checkpoint. The first phase's adapter stays beside the result.
    """
    for phase in two_phases(config):
        train(phase, progress)
    files = dev_files(config.data)
    calibration = [file for file in files if file.stem in CALIBRATION_SETS]
    temperature = calibrate(config.out, calibration, config.backbone) if calibration else 1.0
    model, tokenizer = load_embedded_nli(config.backbone, adapter=config.out)
    results = evaluate(model, tokenizer, files)
    return NLITrainingResult(config.out, temperature, tuple(results))


def dev_files(data: Sequence[Path]) -> list[Path]:
    """Return the evaluation sets in the folders of ``data``, by name."""
    return sorted(file for path in data if path.is_dir() for file in path.glob("dev_*.parquet"))


def evaluate(
    model: EmbeddedNLI, tokenizer: BertTokenizer, files: Sequence[Path]
) -> list[DevResult]:
    """Return one result for each file of labelled pairs, in float32."""
    results = []
    for file in files:
        examples = tokenize(read_pairs([file]), tokenizer, MAX_LENGTH)
        logits = predict_logits(model, tokenizer, examples)
        results.append(measure(file.stem, logits, torch.from_numpy(examples.labels)))
    return results


def measure(name: str, logits: Tensor, labels: Tensor) -> DevResult:
    """Return accuracy, calibration error and confusion of some logits; no pairs are an error."""
    if not len(labels):
        raise ConfigError(f"the evaluation set {name} is empty")
    predicted = logits.argmax(dim=-1)
    counts = torch.bincount(labels * len(ID2LABEL) + predicted, minlength=len(ID2LABEL) ** 2)
    rows = counts.reshape(len(ID2LABEL), len(ID2LABEL)).tolist()
    return DevResult(
        name=name,
        pairs=len(labels),
        accuracy=float((predicted == labels).double().mean()),
        ece=expected_calibration_error(_probabilities(logits), labels.numpy()),
        nll=float(F.cross_entropy(logits, labels)),
        confusion=tuple(tuple(int(cell) for cell in row) for row in rows),
    )


@torch.inference_mode()
def predict_logits(
    model: EmbeddedNLI, tokenizer: BertTokenizer, examples: Examples, batch_size: int = 64
) -> Tensor:
    """Return the logits of each pair in the order given, computed in batches of like lengths."""
    model.eval()
    order = np.argsort(pair_lengths(examples), kind="stable")
    logits = torch.zeros(len(order), len(ID2LABEL))
    for begin in range(0, len(order), batch_size):
        indices = order[begin : begin + batch_size]
        batch = make_batch(examples, indices, tokenizer, MAX_LENGTH)
        rows = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        logits[torch.from_numpy(indices)] = rows.float()
    return logits


def calibrate(adapter: Path, files: Sequence[Path], backbone: Path | None = None) -> float:
    """Fit the temperature on the pairs of ``files``, write it into the adapter, return it."""
    model, tokenizer = load_embedded_nli(backbone, adapter=adapter)
    examples = tokenize(read_pairs(files), tokenizer, MAX_LENGTH)
    logits = predict_logits(model, tokenizer, examples) * model.temperature
    temperature = fit_temperature(logits, torch.from_numpy(examples.labels))
    content = read_adapter(adapter)
    write_adapter(adapter, content.tensors, {**content.metadata, "temperature": repr(temperature)})
    return temperature


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature of least negative log-likelihood, to four digits; 1 without one."""
    found = best_temperature(_probabilities(logits), labels.numpy())
    return 1.0 if found is None else round(found, 4)


def _probabilities(logits: Tensor) -> np.ndarray:
    probabilities: np.ndarray = logits.double().softmax(dim=-1).numpy()
    return probabilities
