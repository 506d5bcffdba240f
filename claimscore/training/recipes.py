"""Settings of the trainings: options of `claimscore train`. Importing them needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from claimscore.blocks import GRANULARITIES, SPLITTERS
from claimscore.config import NLI_OPTIONS, EncoderConfig, check_least
from claimscore.errors import ConfigError
from claimscore.metrics.summac.convolution import AGGREGATES, LABEL_SETS, VARIANTS, bin_edges
from claimscore.metrics.summac.pair_matrices import CUT_VALUES
from claimscore.option import argument, like, nested, option
from claimscore.training.labelled_records import FirstHalf, TextColumns
from claimscore.training.ls_candidates import NEGATIVES


@dataclasses.dataclass(frozen=True)
class NLITrainingConfig:
    """Everything that determines an adapter, and where things lie.

    ``data`` are Parquet files, or folders whose ``train*.parquet`` are taken. A source weight of
    2.0 shows that source's pairs twice a pass, 0.5 every other pass; names are prefixes of the
    ``source`` column, the first match counts, others weigh 1, and 0 leaves a source out.

    The learning rate falls slowly, as if to reach 0 at ``horizon`` times ``samples``, and over the
    last ``cooldown`` share of them straight to 0. ``start`` is an adapter to go on from: the next
    phase of a training, such as that of the shipped adapter (``scripts/judge/train.py``).
    """

    data: tuple[Path, ...] = option(
        repeated=True,
        kind="path",
        metavar="PATH",
        panel="Essential",
        help="Parquet file of labelled pairs, or folder of train*.parquet and dev_*.parquet. "
        "May be repeated.",
    )
    out: Path = option(
        kind="file", short="o", panel="Essential", help="Adapter to write: a safetensors file."
    )
    backbone: Path | None = option(
        None, kind="folder", panel="Models", help="Folder of all-MiniLM-L6-v2; default: embedded."
    )
    start: Path | None = None
    samples: int = option(
        282_000,
        name="pairs",
        panel="Training",
        help="Number of pairs to train on, repeats counted.",
    )
    horizon: float = 1.3
    seed: int = option(0, panel="Training", help="Seed of the training.")
    batch_size: int = 64
    max_length: int = 128
    encoder_lr: float = 1.5e-4
    head_lr: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.05
    cooldown: float = 0.3
    dropout: float = 0.1
    frozen_layers: int = 1
    bf16: bool = True
    checkpoint_every: int = 500
    source_weights: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        check_least(self, samples=1, batch_size=1, checkpoint_every=1, seed=0)
        if not (0.0 <= self.warmup < 1.0 and 0.0 <= self.cooldown <= 1.0):
            raise ConfigError("warmup and cooldown are shares of the steps, at most 1")

    @property
    def steps(self) -> int:
        """Number of optimiser steps."""
        return math.ceil(self.samples / self.batch_size)

    @property
    def horizon_steps(self) -> int:
        """Number of steps that the slow part of the learning rate is laid out for."""
        return max(self.steps, math.ceil(self.horizon * self.samples / self.batch_size))

    def recipe(self) -> dict[str, object]:
        """Return the settings that determine the result, without paths, for the adapter file."""
        paths = {"data", "out", "backbone", "start", "checkpoint_every"}
        settings = {
            name: value for name, value in dataclasses.asdict(self).items() if name not in paths
        }
        return settings | {"start_sha256": _sha256(self.start) if self.start else None}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclasses.dataclass(frozen=True)
class LSTrainingConfig:
    """Everything that determines a checkpoint, and where things lie.

    ``loss``: `paper` is one hinge on LS for every negative; `code` the published program's hinges
    on L (deleted, disordered) and on S (deleted, added), with L over all ``max_tokens`` positions
    of the padded summary; `code-unpadded` the same over the summary's own tokens. ``trained`` is
    `all`, or `head` to leave the backbone as it is. ``train_tokens`` cuts texts in training alone.
    """

    tables: tuple[str, ...] = argument(help="Documents and summaries: JSONL, CSV or Parquet.")
    out: Path = option(
        kind="folder",
        short="o",
        panel="Essential",
        help="Folder to write; a run names it with --ls-model.",
    )
    document: str = option(
        "source", metavar="COLUMN", panel="Data", help="Column of the documents."
    )
    summary: str = option(
        "summary", metavar="COLUMN", panel="Data", help="Column of the summaries."
    )
    label: str | None = option(
        None, metavar="COLUMN", panel="Data", help="Column that is 1 or true in rows to train on."
    )
    backbone: str = option(
        "embedded",
        metavar="MODEL",
        panel="Models",
        help="Encoder to start from: embedded, HF_ID[@REV], or a folder.",
    )
    head: Literal["ls", "bert-linear"] = option(
        "ls", panel="Models", help="Layer above the encoder: LS_Score's, or one linear layer."
    )
    ratings: tuple[str, ...] = option(
        (),
        metavar="COLUMNS",
        panel="Data",
        help="Ratings of people, to fit a bert-linear head to.",
    )
    folds: int = option(10, panel="Data", help="Number of folds of documents with --ratings.")
    loss: Literal["paper", "code", "code-unpadded"] = option(
        "paper",
        panel="Training",
        help="Loss: one hinge on LS, or the published code's on L and S.",
    )
    negatives: tuple[str, ...] = option(
        NEGATIVES,
        choices=NEGATIVES,
        panel="Training",
        help="Kinds of damage of the negative summaries.",
    )
    trained: Literal["all", "head"] = option(
        "all", panel="Training", help="Parts to train; head leaves the encoder as it is."
    )
    epochs: int = option(3, panel="Training", help="Most epochs; 0 writes the untrained model.")
    patience: int = option(3, panel="Training", help="Epochs without improvement until the end.")
    lr: float = option(
        2e-5, name="learning-rate", panel="Training", help="Learning rate of the encoder."
    )
    head_lr: float = option(
        1e-3, name="head-learning-rate", panel="Training", help="Learning rate of the head."
    )
    weight_decay: float = option(0.0, panel="Training", help="Weight decay.")
    dropout: float = option(0.1, panel="Training", help="Dropout of the head.")
    batch_size: int = option(4, panel="Training", help="Number of records in a step.")
    max_records: int = option(800, panel="Data", help="Most pairs to draw from the tables.")
    validation: float = option(
        0.1, name="holdout", panel="Data", help="Share of the documents held out."
    )
    max_tokens: int = option(
        512, panel="Models", help="Most tokens of a text, special tokens included."
    )
    train_tokens: int = option(128, panel="Training", help="Most tokens of a text in training.")
    seed: int = option(40, panel="Training", help="Seed of the training.")
    device: str = like(EncoderConfig, "device")
    offline: bool = like(EncoderConfig, "offline")

    def __post_init__(self) -> None:
        unknown = [name for name in self.negatives if name not in NEGATIVES]
        if unknown or not self.negatives:
            raise ConfigError(f"unknown negative {unknown}; known: {', '.join(NEGATIVES)}")
        if self.out.resolve() == Path(self.backbone).expanduser().resolve():
            raise ConfigError(f"{self.out} holds the backbone; name another --out")
        losses = get_args(get_type_hints(type(self))["loss"])
        if self.loss not in losses:
            raise ConfigError(f"the loss is one of {', '.join(losses)}, not {self.loss!r}")
        if self.ratings and (self.head != "bert-linear" or self.label):
            raise ConfigError(
                "--ratings fits a linear head to all rows: --head bert-linear, no --label"
            )
        check_least(self, batch_size=1, patience=1, epochs=0, max_records=2, seed=0, folds=3)
        if not 0 < self.validation < 1 or not 0 <= self.dropout < 1:
            raise ConfigError("holdout and dropout are shares, between 0 and 1")
        if not (0 < self.lr < math.inf and 0 < self.head_lr < math.inf):
            raise ConfigError("the learning rates must be numbers above zero")
        if not 0 <= self.weight_decay < math.inf:
            raise ConfigError(f"--weight-decay must be 0 or more, not {self.weight_decay}")

    @property
    def columns(self) -> TextColumns:
        """The columns of the tables."""
        return TextColumns(self.document, self.summary, self.label)

    def recipe(self) -> dict[str, Any]:
        """The settings that determine the result, without paths, for the checkpoint."""
        if self.ratings:
            return {
                name: getattr(self, name) for name in ("ratings", "folds", "max_tokens", "seed")
            }
        paths = (
            "ratings",
            "folds",
            "tables",
            "out",
            "document",
            "summary",
            "label",
            "backbone",
            "device",
            "offline",
        )
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name not in paths}


@dataclasses.dataclass(frozen=True)
class SummaCTrainingConfig:
    """Settings that determine the weights, and paths.

    `tables` and `validation` are files or globs, or run directories, whose NLI is taken as it is.
    `split_by` is the column of which `evaluate summac` draws halves with `split_seed`: only the
    rows of `tables` that pick its threshold are trained on. Without `validation`, `holdout` of them
    is held out. The epoch with the lowest cross-entropy there is kept, the last where nothing is
    held out. `make_negatives` adds a rule-made inconsistent summary for each consistent one of
    `tables`.
    """

    tables: tuple[str, ...] = argument(
        help="Labelled summaries: JSONL, CSV, Parquet, or run directories, whose NLI is used."
    )
    out: Path = option(
        kind="folder", short="o", panel="Essential", help="Folder to write the weights into."
    )
    validation: tuple[str, ...] = option(
        (),
        repeated=True,
        metavar="TABLE",
        panel="Data",
        help="Table that chooses the epoch; default: a share of the rows. May be repeated.",
    )
    document: str = option(
        "source", metavar="COLUMN", panel="Data", help="Column of the documents."
    )
    summary: str = option(
        "summary", metavar="COLUMN", panel="Data", help="Column of the summaries."
    )
    label: str = option(
        "label", metavar="COLUMN", panel="Data", help="Column of the labels; 1 is consistent."
    )
    split_by: str | None = option(
        None,
        metavar="COLUMN",
        panel="Data",
        help="Train only on the val half of `evaluate summac --split-by`.",
    )
    split_seed: int = option(0, panel="Data", help="Seed of the halves of --split-by.")
    make_negatives: bool = option(
        False, panel="Data", help="Add an inconsistent summary to each, by rules."
    )
    granularity: str = option(
        "sentence",
        panel="Models",
        help="Blocks of the texts: sentence, 2sents, paragraph, ..., or document-summary.",
    )
    splitter: str = option(
        "rules", choices=SPLITTERS, panel="Models", help="Method that finds sentences."
    )
    blocks: str = option(
        "variant",
        choices=CUT_VALUES["blocks"],
        panel="Models",
        help="Blocks to read: all, or those of the published code; default: as --variant.",
    )
    bins: str = option(
        "even50", panel="Models", help="Bins of the histograms: percentile, or evenN (even50)."
    )
    labels: str = option(
        "e", name="nli-labels", choices=LABEL_SETS, panel="Models", help="NLI labels to count."
    )
    aggregate: str = option(
        "mean", choices=AGGREGATES, panel="Models", help="Summary's score from its sentences."
    )
    variant: str = option(
        "paper",
        choices=VARIANTS,
        panel="Models",
        help="Sentences to read: all (paper), or the first 10 (code).",
    )
    epochs: int = option(20, panel="Training", help="Number of epochs.")
    batch_size: int = option(32, panel="Training", help="Number of summaries in a step.")
    learning_rate: float = option(1e-2, panel="Training", help="Learning rate.")
    holdout: float = option(
        0.1, panel="Data", help="Share of the rows held out, without --validation."
    )
    seed: int = option(0, panel="Training", help="Seed of the training.")
    encoders: EncoderConfig = nested(EncoderConfig, only=NLI_OPTIONS)

    def __post_init__(self) -> None:
        sides = (("granularity", side, GRANULARITIES) for side in self.granularity.split("-", 1))
        for name, value, known in (
            *sides,
            ("splitter", self.splitter, SPLITTERS),
            ("blocks", self.blocks, CUT_VALUES["blocks"]),
            ("labels", self.labels, LABEL_SETS),
            ("aggregate", self.aggregate, AGGREGATES),
            ("variant", self.variant, VARIANTS),
        ):
            if value not in known:
                raise ConfigError(f"--{name} is one of {', '.join(known)}, not {value}")
        check_least(self, epochs=1, batch_size=1, seed=0)
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"--learning-rate must be above zero, not {self.learning_rate}")
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
    def columns(self) -> TextColumns:
        """The columns of the tables."""
        return TextColumns(self.document, self.summary, self.label)

    @property
    def half(self) -> FirstHalf | None:
        """The half of `split_by`; None for all rows."""
        return None if self.split_by is None else FirstHalf(self.split_by, self.split_seed)
