"""The records of a run: read and checked once, and copied into its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import polars as pl

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics.base import Metric
from claimscore.records.columns import ALTERNATIVES
from claimscore.records.dataset import (
    Dataset,
    Required,
    Selection,
    prepare,
)
from claimscore.runs import RunDirectory


def _required(metrics: Sequence[Metric]) -> Required:
    return {metric.name: metric.requires.columns for metric in metrics}


def read_records(
    config: RunConfig, metrics: Sequence[Metric], spool: Path, stdin: BinaryIO | None
) -> Dataset:
    """Validate the input of a run (`prepare`)."""
    selection = Selection(config.columns, config.limit, config.strip_html)
    required = _required(metrics)
    return prepare(config.input, spool=spool, required=required, stdin=stdin, selection=selection)


def copy_records(dataset: Dataset, size: int, directory: RunDirectory) -> None:
    """Write the chunks of `size` records that the folder lacks; a complete one is left as it is."""
    if directory.steps_done("records") == directory.n_chunks:
        return
    for chunk, frame in enumerate(dataset.chunks(size)):
        if not directory.manifest.has(chunk, "records"):
            directory.write_parts(chunk, "records", {"records": frame})


def check_columns(directory: RunDirectory, metrics: Sequence[Metric]) -> None:
    """`ConfigError` where a column that a metric needs is missing or null in some record."""
    records = directory.scan("records")
    present = records.collect_schema().names()
    for metric, columns in _required(metrics).items():
        for column in columns:
            served = [name for name in ALTERNATIVES.get(column, (column,)) if name in present]
            if not served:
                raise ConfigError(
                    f"{metric} needs the column {column}; the records of {directory.name} "
                    f"have: {', '.join(present)}"
                )
            nothing = pl.all_horizontal(pl.col(name).is_null() for name in served)
            missing = records.filter(nothing).select("id").head(1).collect()
            if missing.height:
                raise ConfigError(
                    f"{metric} needs the column {column}; it is missing in record "
                    f"{missing['id'][0]!r} of {directory.name}"
                )
