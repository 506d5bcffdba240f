"""`claimscore train summac-conv`: SummaC-Conv from labelled documents and summaries.

Laban et al. 2022, SummaC, and `train_summac.py` of its authors: Adam, learning rate 1e-2, batches
of 32, cross-entropy of the two logits, no class weights. The same table, settings and NLI model
give the same weights on the same machine.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import ConfigError, InputError
from claimscore.metrics.summac.convolution import (
    CODE_SENTENCES,
    ConvWeights,
    as_weights,
    bin_edges,
)
from claimscore.metrics.summac.pair_matrices import cut_pass
from claimscore.pipeline.encoders import load_pair_classifier
from claimscore.pipeline.encoders.protocols import PairClassifier
from claimscore.pipeline.encoders.results import open_store
from claimscore.training.labelled_records import (
    ConvExample,
    LabelledRecords,
    are_runs,
    examples,
    make_matrices,
    pad_examples,
    read_labelled,
    read_runs,
)
from claimscore.training.loop import OnTraining, TrainingProgress, silent, take_step
from claimscore.training.recipes import SummaCTrainingConfig

logger = logging.getLogger("claimscore")

WEIGHTS_FILE = "summac_conv.safetensors"


@dataclasses.dataclass(frozen=True)
class SummaCTrainingResult:
    """The weights' file, and what it was made from; losses are cross-entropies, a mean each."""

    weights: Path
    examples: int
    consistent: int
    without_image: int
    validation_examples: int
    epoch: int
    train_loss: float
    validation_loss: float | None


class ConvModel(nn.Module):
    """The two linear layers, with the parameter names of the published checkpoint."""

    def __init__(self, width: int, aggregate: str) -> None:
        super().__init__()
        self.mlp = nn.Linear(width, 1)
        self.layer_final = nn.Linear(3, 2)
        self._aggregate = aggregate

    def forward(self, counts: Tensor, used: Tensor) -> Tensor:
        """Logits `[N, 2]` of counts `[N, R, H]`, of which the rows `used` `[N, R]` are real."""
        values = self.mlp(counts).squeeze(-1)
        lowest = values.masked_fill(~used, torch.inf).amin(dim=1)
        highest = values.masked_fill(~used, -torch.inf).amax(dim=1)
        mean = values.masked_fill(~used, 0.0).sum(dim=1) / used.sum(dim=1)
        found = {"min": lowest, "mean": mean, "max": highest}
        chosen = ("min", "mean", "max") if self._aggregate == "all" else (self._aggregate,) * 3
        logits: Tensor = self.layer_final(torch.stack([found[name] for name in chosen], dim=1))
        return logits


def train_summac_conv(
    config: SummaCTrainingConfig,
    progress: OnTraining = silent,
    classifier: PairClassifier | None = None,
) -> SummaCTrainingResult:
    """Make the NLI matrices, train, and write every epoch's weights and the chosen ones.

    The folder then has `summac_conv.safetensors` and `epochs/`. Results of the NLI model are stored
    as those of runs: a call that was interrupted goes on, and other bins or categories cost no
    model time. `InputError` for a table with one label only or without any matrix.
    """
    records = _read(config, config.tables, held_out=False)
    held_out = _read(config, config.validation, held_out=True) if config.validation else None

    @functools.cache
    def load() -> PairClassifier:
        store = open_store(None, on_notice=logger.warning)
        return cast(
            PairClassifier, store.around(classifier or load_pair_classifier(config.encoders))
        )

    def judge(records: pl.DataFrame | LabelledRecords, stage: str) -> LabelledRecords:
        """The records with their matrices; those of runs have them."""
        if isinstance(records, LabelledRecords):
            return records
        need, model = cut_pass(config.settings()), load()
        show = functools.partial(_show, progress, stage)
        matrices = make_matrices(records, need, model, show)
        return LabelledRecords(records, matrices, f"{model.info.model}@{model.info.revision}")

    edges = bin_edges(config.bins)
    judged = judge(records, "images")
    found = list(examples(judged, edges, config.labels))
    if held_out is None:
        training, validation = _split(found, config)
    else:
        other = judge(held_out, "validation-images")
        if other.nli != judged.nli:
            raise ConfigError(f"--validation has NLI of {other.nli}, not of {judged.nli}")
        training, validation = found, list(examples(other, edges, config.labels))
    _check_labels(config, training)
    epochs = list(fit(config, training, validation, progress))
    best = min(epochs, key=lambda e: e.validation_loss or 0.0) if validation else epochs[-1]
    settings = {**config.settings(), "nli": judged.nli}
    for epoch in epochs:
        path = config.out / "epochs" / f"epoch-{epoch.number:03d}.safetensors"
        epoch.weights.save(path, settings)
    best.weights.save(config.out / WEIGHTS_FILE, settings)
    return SummaCTrainingResult(
        weights=config.out / WEIGHTS_FILE,
        examples=len(training),
        consistent=sum(example.label for example in training),
        without_image=judged.records.height - len(found),
        validation_examples=len(validation),
        epoch=best.number,
        train_loss=best.train_loss,
        validation_loss=best.validation_loss,
    )


def _read(
    config: SummaCTrainingConfig, tables: tuple[str, ...], *, held_out: bool
) -> pl.DataFrame | LabelledRecords:
    """The records of files, or of runs with their matrices; held-out ones as they are."""
    half = None if held_out else config.half
    negatives = config.make_negatives and not held_out
    if not are_runs(tables):
        seed = config.seed if negatives else None
        return read_labelled(tables, config.columns, negatives_seed=seed, half=half)
    if negatives:
        raise ConfigError("--make-negatives needs files of texts: a run has no NLI for them")
    return read_runs(tables, str(config.columns.label), cut_pass(config.settings()), half)


def _show(progress: OnTraining, stage: str, done: int, total: int) -> None:
    progress(TrainingProgress(stage, done, total))


def _split(
    found: list[ConvExample], config: SummaCTrainingConfig
) -> tuple[list[ConvExample], list[ConvExample]]:
    """A seeded share of the examples for validation, the others for training."""
    order = np.random.default_rng(config.seed).permutation(len(found))
    held_out = set(order[: round(config.holdout * len(found))].tolist())
    parts: tuple[list[ConvExample], list[ConvExample]] = ([], [])
    for place, example in enumerate(found):
        parts[place in held_out].append(example)
    return parts


def _check_labels(config: SummaCTrainingConfig, training: list[ConvExample]) -> None:
    where = ", ".join(config.tables)
    labels = {example.label for example in training}
    if not labels:
        raise InputError(
            f"{where}: nothing to train on: no record that is not held out has a block of text on "
            "both sides"
        )
    if len(labels) == 1:
        raise InputError(
            f"{where}: every label is {labels.pop()}; training needs consistent and "
            "inconsistent summaries (--make-negatives makes the latter)"
        )


class ConvEpoch(NamedTuple):
    """The weights after an epoch, and their mean losses."""

    number: int
    weights: ConvWeights
    train_loss: float
    validation_loss: float | None


def fit(
    config: SummaCTrainingConfig,
    training: list[ConvExample],
    validation: list[ConvExample],
    progress: OnTraining = silent,
) -> Iterator[ConvEpoch]:
    """Yield each epoch of a training from freshly drawn weights."""
    width = (len(bin_edges(config.bins)) - 1) * len(config.labels)
    most = CODE_SENTENCES if config.variant == "code" else None
    data, held_out = (
        [torch.from_numpy(values) for values in pad_examples(found, width, most)]
        for found in (training, validation)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = ConvModel(width, config.aggregate)
    shuffle = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    for number in range(1, config.epochs + 1):
        total = 0.0
        order = torch.randperm(len(training), generator=shuffle)
        for indices in torch.split(order, config.batch_size):
            loss = _loss(model, *(values[indices] for values in data))
            total += take_step(loss, optimizer) * len(indices)
        mean, tested = total / len(training), None
        if validation:
            with torch.no_grad():
                tested = float(_loss(model, *held_out))
        progress(TrainingProgress("epochs", number, config.epochs, mean))
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        yield ConvEpoch(number, as_weights(state), mean, tested)


def _loss(model: ConvModel, counts: Tensor, used: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(counts, used), labels)
