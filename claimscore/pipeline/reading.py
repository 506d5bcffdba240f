"""The records of a run: read and checked once, and copied into its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics.base import Metric
from claimscore.records.columns import ALTERNATIVES, likely_columns
from claimscore.records.dataset import (
    Dataset,
    Required,
    Selection,
    prepare,
)
from claimscore.records.files import InputFile
from claimscore.runs import RunDirectory

#: What a run that names no metrics scores, by the columns that these read.
PAIR_METRICS = ("caspr", "ds", "bs-inverse")
BY_COLUMNS = {
    ("summary", "source"): ("faithfulness",),
    ("summary", "references"): ("rouge-1", "rouge-l", "bertscore"),
    ("summary_a", "summary_b"): PAIR_METRICS,
}


def _required(metrics: Sequence[Metric]) -> Required:
    return {metric.name: metric.requires.columns for metric in metrics}


def _selection(config: RunConfig) -> Selection:
    return Selection(config.columns, config.limit)


def with_metrics(config: RunConfig, files: Sequence[InputFile]) -> tuple[RunConfig, str]:
    """The settings with metrics; where the user names none, those that fit the columns of the first
    record, and a line about them. Where none fit, and no task is asked for, they are those that
    almost do, so that the columns which they lack are named."""
    if config.metrics is not None:
        return config, ""
    names = _selection(config).first_names(files)
    present = {*names, *("source" for name in names if name == "sources")}
    fitting = [columns for columns in BY_COLUMNS if present.issuperset(columns)]
    if not (fitting or config.tasks):
        likely = present | likely_columns(names).keys()
        fitting = [max(BY_COLUMNS, key=lambda columns: len(likely.intersection(columns)))]
    chosen = tuple(metric for columns in fitting for metric in BY_COLUMNS[columns])
    by = ", ".join(dict.fromkeys(column for columns in fitting for column in columns))
    said = f"metrics, by the columns {by}: {', '.join(chosen)}" if chosen else ""
    return dataclasses.replace(config, metrics=chosen), said


def read_records(
    config: RunConfig, metrics: Sequence[Metric], files: tuple[InputFile, ...]
) -> Dataset:
    """Validate the input of a run (`prepare`)."""
    return prepare(files, _required(metrics), _selection(config))


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
