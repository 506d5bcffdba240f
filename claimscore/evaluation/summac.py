"""`claimscore evaluate summac`: scores as classifiers, by the protocol of the SummaC benchmark.

`paper`: the threshold is picked on the validation split of a data set and applied to its test
split (Laban et al. 2022, the SummaC benchmark); intervals are bootstrap percentiles over the test
rows, drawn with replacement, the threshold kept.
`notebook`: as the authors' main-results notebook does, whose numbers are the published ones:
the threshold is picked on the very rows that are scored, and the intervals are percentiles over
100 draws of 70 % of the rows without replacement.

The overall value is the plain mean over the data sets.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.published import OVERALL
from claimscore.evaluation.table import Table, read_table
from claimscore.records.halves import in_first_half
from claimscore.stats.bootstrap import WeightedMeasure, percentile_bounds, resamples, subsets
from claimscore.stats.classification import (
    balanced_accuracy,
    best_threshold,
    checked_labels,
    roc_auc,
    weighted_accuracy,
    weighted_auc,
)

Protocol = Literal["paper", "notebook"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
MEASURES = ("balanced_accuracy", "roc_auc")

#: `halves` by the place of a row in its data set; any other value is a column.
EVEN = "even"

NOTEBOOK_DRAWS = 100
NOTEBOOK_SHARE = 0.7

_Array = NDArray[np.float64]

SUMMAC_SCHEMA: dict[str, pl.DataType] = {
    "score": pl.String(),
    "dataset": pl.String(),
    "measure": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "low_corrected": pl.Float64(),
    "high_corrected": pl.Float64(),
    "threshold": pl.Float64(),
    "n_threshold": pl.Int64(),
    "n": pl.Int64(),
    "positives": pl.Float64(),
    "threshold_on": pl.String(),
    "scored_on": pl.String(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class SummacConfig:
    """Settings of the benchmark. `split` None: a column `split`, else `cut`, where there is one.

    `halves`, where there is one split only: the column whose values are drawn, with `half_seed`,
    into the half that picks the threshold and the one that is scored; or `EVEN`.
    """

    tables: tuple[str, ...]
    scores: tuple[str, ...]
    dataset: str = "dataset"
    split: str | None = None
    label: str = "label"
    halves: str | None = None
    half_seed: int = 0
    protocol: Protocol = "paper"
    drop_missing: bool = False
    samples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.scores:
            raise ConfigError("name at least one column of --scores")
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"--protocol: {self.protocol!r} is none of {', '.join(PROTOCOLS)}")
        if self.samples < 1:
            raise ConfigError(f"--samples must be at least 1, not {self.samples}")


class SummacResult(NamedTuple):
    """Rows of `SUMMAC_SCHEMA`, fractions; `n_intervals` is what Bonferroni divides 5 % by."""

    rows: pl.DataFrame
    n_intervals: int
    left_out: int
    protocol: Protocol


class _Parts(NamedTuple):
    """The rows of a data set that pick the threshold, those that are scored, and their names."""

    dataset: str
    validation: pl.DataFrame
    test: pl.DataFrame
    validation_name: str
    test_name: str


class _Evaluated(NamedTuple):
    """One score and measure on one data set: the value, its draws, and the facts of its row."""

    value: float
    draws: _Array
    facts: tuple[object, ...]


def summac_benchmark(config: SummacConfig) -> SummacResult:
    """Read the tables and evaluate every score on every data set.

    `InputError` where columns are missing, a label is neither 0 nor 1, a score is missing
    (unless `drop_missing`), or a split that the protocol needs is not there.
    """
    rows, left_out = _read(config)
    datasets = rows["dataset"].unique(maintain_order=True).to_list()
    n_intervals = len(config.scores) * (len(datasets) + (len(datasets) > 1))
    found = {
        name: _evaluate(_parts(rows.filter(pl.col("dataset") == name), name, config), config, n)
        for n, name in enumerate(datasets)
    }
    table = [
        row
        for score in config.scores
        for measure in MEASURES
        for row in _rows(score, measure, found, config, n_intervals)
    ]
    frame = pl.DataFrame(table, schema=SUMMAC_SCHEMA, orient="row")
    return SummacResult(frame, n_intervals, left_out, config.protocol)


# Reading


def _read(config: SummacConfig) -> tuple[pl.DataFrame, int]:
    """Dataset, split, half, label and scores, all tables together."""
    frames = [_normal(read_table(table, _wanted(config)), config) for table in config.tables]
    rows = pl.concat(frames)
    if config.halves == EVEN:
        even = pl.int_range(pl.len()).over("dataset") % 2 == 0
        rows = rows.with_columns(first_half=even)
    missing = [(name, rows[name].null_count()) for name in config.scores]
    name, count = max(missing, key=lambda item: item[1])
    if count and not config.drop_missing:
        raise InputError(f"{count} rows have no {name}; --drop-missing leaves such rows out")
    kept = rows.drop_nulls(config.scores)
    return kept, rows.height - kept.height


def _wanted(config: SummacConfig) -> list[str]:
    splits = [config.split] if config.split else ["split", "cut"]
    halves = [config.halves] if config.halves else []
    return [*config.scores, config.dataset, config.label, *splits, *halves]


def _normal(table: Table, config: SummacConfig) -> pl.DataFrame:
    """The table's rows under our own column names."""
    labels = table.numbers(config.label)
    if not labels.is_in([0.0, 1.0]).all() or labels.null_count():
        raise InputError(f"{table.name}: column {config.label} must hold 0 or 1 in every row")
    if table.has(config.dataset):
        dataset = table.texts(config.dataset)
    else:
        dataset = pl.repeat(Path(table.name).stem, labels.len(), eager=True)
    splits = [name for name in (config.split, "split", "cut") if name and table.has(name)]
    if config.split and config.split not in splits:
        table.texts(config.split)  # says which columns there are
    split = table.texts(splits[0]) if splits else pl.repeat("", labels.len(), eager=True)
    return pl.DataFrame(
        {
            "dataset": dataset,
            "split": split.replace({"valid": "val", "validation": "val", "dev": "val"}),
            "first_half": _first_half(table, config, labels.len()),
            "label": labels.cast(pl.Int8),
            **{name: table.numbers(name) for name in config.scores},
        }
    )


def _first_half(table: Table, config: SummacConfig, n_rows: int) -> pl.Series:
    """Which rows pick the threshold, as far as the table alone says so."""
    if config.halves in (None, EVEN):
        return pl.repeat(None, n_rows, dtype=pl.Boolean(), eager=True)
    values = table.texts(config.halves)
    drawn = [in_first_half(value, config.half_seed) for value in values]
    return pl.Series(drawn, dtype=pl.Boolean())


def _parts(rows: pl.DataFrame, dataset: str, config: SummacConfig) -> _Parts:
    """The rows that pick the threshold of a data set, and those that are scored."""
    validation, test = rows.filter(split="val"), rows.filter(split="test")
    names = ("val", "test")
    if config.halves:
        if validation.height and test.height:
            raise InputError(f"{dataset}: has both splits; leave out --halves")
        first = pl.col("first_half")
        validation, test = rows.filter(first), rows.filter(~first)
        names = half_names(config.halves)
    if config.protocol == "notebook":
        scored, name = (test, names[1]) if test.height else (rows, "all rows")
        return _Parts(dataset, scored, scored, name, name)
    if not validation.height or not test.height:
        here = ", ".join(sorted({name or "none" for name in rows["split"]}))
        raise InputError(
            f"{dataset}: needs rows of split val and of split test (there: {here}); --halves "
            "COLUMN picks the threshold on one half and scores the other"
        )
    return _Parts(dataset, validation, test, *names)


def half_names(halves: str) -> tuple[str, str]:
    """The rows that pick the threshold, and those that are scored."""
    if halves == EVEN:
        return "even rows", "odd rows"
    return f"first half by {halves}", f"second half by {halves}"


# Evaluating


def _evaluate(
    parts: _Parts, config: SummacConfig, stream: int
) -> dict[tuple[str, str], _Evaluated]:
    """Every score and measure on one data set, all on the same draws."""
    values: dict[tuple[str, str], float] = {}
    facts: dict[tuple[str, str], tuple[object, ...]] = {}
    measures: dict[tuple[str, str], WeightedMeasure] = {}
    validation, test = parts.validation, parts.test
    scored_on = (test.height, test["label"].mean())
    for score in config.scores:
        try:
            of_test, positive = checked_labels(test[score], test["label"])
            threshold = best_threshold(validation[score], validation["label"])
            accuracy = balanced_accuracy(of_test, positive, threshold)
        except ValueError as exc:
            raise InputError(f"{parts.dataset}: {score}: {exc}") from exc
        accuracy_key, auc_key = ((score, measure) for measure in MEASURES)
        values[accuracy_key], values[auc_key] = accuracy, roc_auc(of_test, positive)
        measures[accuracy_key] = weighted_accuracy(of_test > threshold, positive)
        measures[auc_key] = weighted_auc(of_test, positive)
        of_threshold = (threshold, validation.height, *scored_on, parts.validation_name)
        facts[accuracy_key] = (*of_threshold, parts.test_name)
        facts[auc_key] = (None, None, *scored_on, None, parts.test_name)
    seed = (config.seed, stream)
    if config.protocol == "notebook":
        weights = iter([subsets(test.height, NOTEBOOK_DRAWS, NOTEBOOK_SHARE, seed)])
    else:
        weights = resamples(test.height, config.samples, seed)
    draws: dict[tuple[str, str], list[_Array]] = {key: [] for key in measures}
    for block in weights:
        for key, measure in measures.items():
            draws[key].append(measure(block))
    return {key: _Evaluated(values[key], np.concatenate(draws[key]), facts[key]) for key in draws}


def _rows(
    score: str,
    measure: str,
    found: Mapping[str, Mapping[tuple[str, str], _Evaluated]],
    config: SummacConfig,
    n_intervals: int,
) -> Iterator[tuple[object, ...]]:
    """A score's rows of one measure: every data set, then their mean."""
    corrected = 0.01 if config.protocol == "notebook" else 0.05 / n_intervals

    def row(dataset: str, one: _Evaluated) -> tuple[object, ...]:
        bounds = (*percentile_bounds(one.draws), *percentile_bounds(one.draws, corrected))
        return score, dataset, measure, one.value, *bounds, *one.facts

    of_datasets = [of_dataset[score, measure] for of_dataset in found.values()]
    yield from (row(name, one) for name, one in zip(found, of_datasets, strict=True))
    if len(of_datasets) > 1:
        value = math.fsum(one.value for one in of_datasets) / len(of_datasets)
        draws = np.mean([one.draws for one in of_datasets], axis=0)
        yield row(OVERALL, _Evaluated(value, draws, (None,) * 6))
