"""Train SummaC-Conv on labelled documents and summaries: `claimscore train summac-conv`.

Laban et al. 2022, SummaC, and `train_summac.py` of its authors: Adam, learning rate 1e-2, batches
of 32, cross-entropy of the two logits, no class weights. The same table, settings and NLI model
give the same weights on the same machine.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.blocks import GRANULARITIES, KEEP, SPLITTERS
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.metrics.summac.convolution import (
    AGGREGATES,
    CODE_SENTENCES,
    LABEL_SETS,
    VARIANTS,
    bin_edges,
)
from claimscore.metrics.summac.pair_matrices import cut_pass
from claimscore.metrics.summac.weights import ConvWeights, as_weights
from claimscore.pipeline.encoders import load_pair_classifier
from claimscore.pipeline.encoders.protocols import PairClassifier
from claimscore.training.summac_data import (
    SOURCE_COLUMNS,
    Columns,
    Example,
    Half,
    Padded,
    examples,
    make_images,
    pad_examples,
    read_labelled,
)
from claimscore.training.summac_runs import Judged, are_runs, read_runs

WEIGHTS_FILE = "summac_conv.safetensors"


@dataclasses.dataclass(frozen=True)
class SummaCTrainingConfig:
    """Settings that determine the weights, and paths.

    `tables` and `validation` are files or globs, or run directories, whose NLI is taken as it is.
    `split_by` is the column that `evaluate summac` draws into halves with `split_seed`: only the
    rows of `tables` that pick its threshold are trained on. Without `validation`, `holdout` of them
    is held out. The epoch with the lowest cross-entropy there is kept, the last where nothing is
    held out. `make_negatives` adds a rule-made inconsistent summary for each consistent one of
    `tables`.
    """

    tables: tuple[str, ...]
    out: Path
    validation: tuple[str, ...] = ()
    columns: Columns = SOURCE_COLUMNS
    split_by: str | None = None
    split_seed: int = 0
    make_negatives: bool = False
    granularity: str = "sentence"
    splitter: str = "rules"
    blocks: str = "code"
    bins: str = "even50"
    labels: str = "e"
    aggregate: str = "mean"
    variant: str = "code"
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-2
    holdout: float = 0.1
    seed: int = 0
    encoders: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)

    def __post_init__(self) -> None:
        for side in self.granularity.split("-", 1):
            _one_of("granularity", side, GRANULARITIES)
        _one_of("splitter", self.splitter, SPLITTERS)
        _one_of("blocks", self.blocks, KEEP)
        _one_of("labels", self.labels, LABEL_SETS)
        _one_of("aggregate", self.aggregate, AGGREGATES)
        _one_of("variant", self.variant, VARIANTS)
        if min(self.epochs, self.batch_size) < 1 or not self.learning_rate > 0:
            raise ConfigError("--epochs, --batch-size and --learning-rate must be above zero")
        if not 0 <= self.holdout < 1:
            raise ConfigError(f"--holdout is a share below 1, not {self.holdout}")
        if self.split_by == "even":
            raise ConfigError("--split-by names a column here; even rows are for evaluate only")
        try:
            bin_edges(self.bins)
        except ValueError as exc:
            raise ConfigError(f"--{exc}") from None

    def settings(self) -> dict[str, str]:
        """Settings that a metric must share with the training."""
        names = ("granularity", "splitter", "blocks", "bins", "labels", "aggregate", "variant")
        return {name: getattr(self, name) for name in names}

    @property
    def half(self) -> Half | None:
        return None if self.split_by is None else Half(self.split_by, self.split_seed)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"--{name} is one of {', '.join(known)}, not {value}")


class Progress(NamedTuple):
    """The work at hand and how far it is: `images` (records) or `epochs`, with the loss."""

    stage: str
    step: int
    steps: int
    loss: float | None = None


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


class _Tensors(NamedTuple):
    counts: Tensor
    used: Tensor
    labels: Tensor

    def rows(self, indices: Tensor) -> _Tensors:
        return _Tensors(self.counts[indices], self.used[indices], self.labels[indices])


def train_summac_conv(
    config: SummaCTrainingConfig,
    progress: Callable[[Progress], None] = lambda _: None,
    classifier: PairClassifier | None = None,
) -> SummaCTrainingResult:
    """Make the NLI images, train, and write every epoch's weights and the chosen ones.

    The folder then has `summac_conv.safetensors`, `epochs/`, and the images, which a later call
    uses again. `InputError` for a table with one label only or without any image.
    """
    records = _records(config)
    held_out = _validation_records(config) if config.validation else None

    @functools.cache
    def model() -> PairClassifier:
        return classifier or load_pair_classifier(config.encoders)

    judged = _judge(config, records, model, "images", progress)
    found = _examples(config, judged)
    if held_out is None:
        training, validation = _split(found, config)
    else:
        of_validation = _judge(config, held_out, model, "validation-images", progress)
        if of_validation.nli != judged.nli:
            raise ConfigError(f"--validation has NLI of {of_validation.nli}, not of {judged.nli}")
        training, validation = found, _examples(config, of_validation)
    _check_labels(config, training)
    epochs = list(fit(config, training, validation, progress))
    best = min(epochs, key=lambda e: e.validation_loss or 0.0) if validation else epochs[-1]
    for epoch in epochs:
        path = config.out / "epochs" / f"epoch-{epoch.number:03d}.safetensors"
        epoch.weights.save(path, {**config.settings(), "nli": judged.nli})
    best.weights.save(config.out / WEIGHTS_FILE, {**config.settings(), "nli": judged.nli})
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


def _records(config: SummaCTrainingConfig) -> pl.DataFrame | Judged:
    if are_runs(config.tables):
        if config.make_negatives:
            raise ConfigError("--make-negatives needs files of texts: a run has no NLI for them")
        need = cut_pass(config.settings())
        return read_runs(config.tables, config.columns.label, need, config.half)
    seed = config.seed if config.make_negatives else None
    return read_labelled(config.tables, config.columns, negatives_seed=seed, half=config.half)


def _validation_records(config: SummaCTrainingConfig) -> pl.DataFrame | Judged:
    if are_runs(config.validation):
        return read_runs(config.validation, config.columns.label, cut_pass(config.settings()))
    return read_labelled(config.validation, config.columns)


def _judge(
    config: SummaCTrainingConfig,
    records: pl.DataFrame | Judged,
    load: Callable[[], PairClassifier],
    folder: str,
    progress: Callable[[Progress], None],
) -> Judged:
    """The records with their images; those of runs have them."""
    if isinstance(records, Judged):
        return records

    def show(done: int, total: int) -> None:
        progress(Progress(folder, done, total))

    model = load()
    images = make_images(records, cut_pass(config.settings()), model, config.out / folder, show)
    return Judged(records, images, f"{model.info.model}@{model.info.revision}")


def _examples(config: SummaCTrainingConfig, judged: Judged) -> list[Example]:
    edges = bin_edges(config.bins)
    return list(examples(judged.records, judged.images, edges, config.labels))


def _split(
    found: list[Example], config: SummaCTrainingConfig
) -> tuple[list[Example], list[Example]]:
    """A seeded share of the examples for validation, the others for training."""
    order = np.random.default_rng(config.seed).permutation(len(found))
    held_out = set(order[: round(config.holdout * len(found))].tolist())
    parts: tuple[list[Example], list[Example]] = ([], [])
    for place, example in enumerate(found):
        parts[place in held_out].append(example)
    return parts


def _check_labels(config: SummaCTrainingConfig, training: list[Example]) -> None:
    where = ", ".join(config.tables)
    labels = {example.label for example in training}
    if not labels:
        raise InputError(f"{where}: no record has a block of text on both sides")
    if len(labels) == 1:
        raise InputError(
            f"{where}: every label is {labels.pop()}; training needs consistent and "
            "inconsistent summaries (--make-negatives makes the latter)"
        )


class Epoch(NamedTuple):
    """The weights after an epoch, and their mean losses."""

    number: int
    weights: ConvWeights
    train_loss: float
    validation_loss: float | None


def fit(
    config: SummaCTrainingConfig,
    training: list[Example],
    validation: list[Example],
    progress: Callable[[Progress], None] = lambda _: None,
) -> Iterator[Epoch]:
    """Yield each epoch of a training from freshly drawn weights."""
    width = (len(bin_edges(config.bins)) - 1) * len(config.labels)
    most = CODE_SENTENCES if config.variant == "code" else None
    data, held_out = (_tensors(pad_examples(e, width, most)) for e in (training, validation))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = ConvModel(width, config.aggregate)
    shuffle = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    for number in range(1, config.epochs + 1):
        loss = _train_epoch(model, optimizer, data, config.batch_size, shuffle)
        tested = _loss(model, held_out) if validation else None
        progress(Progress("epochs", number, config.epochs, loss))
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        yield Epoch(number, as_weights(state), loss, tested)


def _tensors(padded: Padded) -> _Tensors:
    return _Tensors(*(torch.from_numpy(values) for values in padded))


def _train_epoch(
    model: ConvModel,
    optimizer: torch.optim.Adam,
    data: _Tensors,
    batch_size: int,
    shuffle: torch.Generator,
) -> float:
    total = 0.0
    order = torch.randperm(len(data.labels), generator=shuffle)
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        batch = data.rows(indices)
        loss = F.cross_entropy(model(batch.counts, batch.used), batch.labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
        optimizer.step()
        total += float(loss.detach()) * len(indices)
    return total / len(data.labels)


@torch.no_grad()
def _loss(model: ConvModel, data: _Tensors) -> float:
    return float(F.cross_entropy(model(data.counts, data.used), data.labels))
