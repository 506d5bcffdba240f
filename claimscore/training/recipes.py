"""Settings of the trainings: options of `claimscore train`. Importing them needs no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.config import NLI_OPTIONS, EncoderConfig
from claimscore.errors import ConfigError
from claimscore.evaluation.inputs import read_table
from claimscore.option import argument, check_least, like, nested, option


@dataclasses.dataclass(frozen=True)
class LSTrainingConfig:
    """Settings of a training of LS_Score; those that are no option are for Python.

    ``backbone`` is the encoder to start from (embedded, a model of the hub, or a folder),
    ``epochs`` the most (0 writes the untrained model). ``holdout`` is a share of the documents;
    ``max_tokens`` cuts texts in the model that is written.
    `ConfigError` for a value out of its range.
    """

    tables: tuple[str, ...] = argument(
        help="Documents and good summaries (source, summary): JSONL, CSV or Parquet."
    )
    out: Path = option(
        kind="folder",
        short="o",
        panel="Essential",
        help="Folder to write; a run names it with --ls-model.",
    )
    backbone: str = "embedded"
    epochs: int = 3
    lr: float = 2e-5
    seed: int = option(40, panel="Training", help="Seed of the training.")
    device: str = like(EncoderConfig, "device")
    offline: bool = like(EncoderConfig, "offline")
    dropout: float = 0.1
    max_records: int = 800
    holdout: float = 0.1
    max_tokens: int = 512

    def __post_init__(self) -> None:
        if self.out.resolve() == Path(self.backbone).expanduser().resolve():
            raise ConfigError(f"{self.out} holds the backbone; name another --out")
        check_least(self, epochs=0, seed=0)

    def recipe(self) -> dict[str, Any]:
        """The settings that determine the result, without paths, for the model's file."""
        paths = ("tables", "out", "backbone", "device", "offline")
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name not in paths}


@dataclasses.dataclass(frozen=True)
class SummaCTrainingConfig:
    """Settings of a training of SummaC-Conv; those that are no option are for Python.

    ``holdout`` is a share of the rows. `ConfigError` for a value out of its range.
    """

    tables: tuple[str, ...] = argument(
        help="Labelled summaries (source, summary, label): JSONL, CSV or Parquet."
    )
    out: Path = option(
        kind="file", short="o", panel="Essential", help="Weights to write: a safetensors file."
    )
    seed: int = option(0, panel="Training", help="Seed of the training.")
    encoders: EncoderConfig = nested(EncoderConfig, only=NLI_OPTIONS)
    epochs: int = 20
    learning_rate: float = 1e-2
    batch_size: int = 32
    holdout: float = 0.1

    def __post_init__(self) -> None:
        check_least(self, epochs=1, seed=0)


def read_texts(tables: Sequence[str], *, labelled: bool = False) -> pl.DataFrame:
    """The rows of tables (`evaluation.inputs.read_table`): id, source, summary, label (1 or 0).

    Several documents of a row are joined by an empty line. Where no label is asked for, it is 1.
    `InputError` names the table, and line or column, of what cannot be used.
    """
    frames = []
    for name in tables:
        table = read_table(name, ("source", "summary", "label"))
        texts = pl.DataFrame([table.texts("source"), table.texts("summary")])
        label = table.labels("label") if labelled else pl.lit(1, pl.Int8).alias("label")
        frames.append(texts.with_columns(label))
    return pl.concat(frames).with_row_index("id").cast({"id": pl.String})
