"""Labelled records of finished runs with the NLI that is there: no model is asked again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.errors import ConfigError, InputError
from claimscore.metrics.base import ChunkTables, PassRequirement
from claimscore.metrics.summac.pair_matrices import PairMatrices, read_pair_matrices
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.training.summac_data import Half, read_label


class Judged(NamedTuple):
    """Records (`id`, `label`), the images of those that have one, and the model that judged."""

    records: pl.DataFrame
    images: PairMatrices
    nli: str


def are_runs(tables: Sequence[str]) -> bool:
    """Whether the tables are run directories; `InputError` where some are and some are not."""
    runs = [table for table in tables if Path(table).is_dir()]
    if runs and len(runs) < len(tables):
        raise InputError(f"{runs[0]} is a folder and others are files; name one kind")
    return bool(runs)


def read_runs(
    tables: Sequence[str], label: str, need: PassRequirement, half: Half | None = None
) -> Judged:
    """The records of run directories and the images that the pass of `need` made there.

    `ConfigError` where that pass is not finished, or the runs have it from different models.
    """
    found = [_read_run(Path(table), label, need, half) for table in tables]
    models = sorted({model for one in found for model in one.models})
    if len(models) > 1:
        raise ConfigError(f"the runs have the NLI of different models: {', '.join(models)}")
    records, rows = (
        pl.concat(
            frame.with_columns(id=pl.format("{}/{}", pl.lit(number), "id"))
            for number, frame in enumerate(frames)
        )
        for frames in zip(*((one.records, one.rows) for one in found), strict=True)
    )
    if records.is_empty():
        raise InputError(f"{', '.join(tables)}: no row to train on")
    chunk = ChunkTables({"records": records, "block_nli": rows}.__getitem__)
    return Judged(records, read_pair_matrices(chunk, need), models[0] if models else "")


class _Run(NamedTuple):
    records: pl.DataFrame
    rows: pl.DataFrame
    models: list[str]


def _read_run(path: Path, label: str, need: PassRequirement, half: Half | None) -> _Run:
    directory = RunDirectory.reader(path)
    done, wanted = directory.steps_done(need.step), directory.n_chunks
    if done < wanted or not wanted:
        raise ConfigError(
            f"{path}: NLI of {' with '.join(need.over)} is there for {done} of {wanted} parts; run "
            "it to the end with a metric that needs it, such as summac-zs"
        )
    with damage_as_error(path):
        records = directory.scan("records").collect()
        columns = (label, half.column) if half else (label,)
        for column in columns:
            if column not in records.columns:
                raise InputError(
                    f"{path}: no column {column}; there are: {', '.join(records.columns)}"
                )
        labels = [read_label(value, f"{path}: {label}") for value in records[label]]
        records = records.with_columns(label=pl.Series(labels, dtype=pl.Int64))
        if half:
            drawn = [half.has(value, f"{path}: {half.column}") for value in records[half.column]]
            records = records.filter(pl.Series(drawn, dtype=pl.Boolean))
        records = records.select("id", "label")
        cuts = [item.partition(".")[2] for item in need.over]
        rows = directory.scan("block_nli").filter(premise_cut=cuts[0], hypothesis_cut=cuts[1])
        kept = rows.join(records.lazy().select("id"), on="id", how="semi").collect()
    models = kept.select(pl.format("{}@{}", "model", "revision").unique()).to_series()
    return _Run(records, kept, models.to_list())
