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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import check_least
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.published import OVERALL, SUMMAC_SOURCE, SUMMAC_TEST, summac_figure
from claimscore.evaluation.ratings_table import RatedTable, complete, read_table
from claimscore.evaluation.result import EvaluationResult, Row, Section, percent
from claimscore.option import argument, option
from claimscore.records.columns import in_first_half
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
MEASURE_TITLES = dict(zip(MEASURES, ("Balanced accuracy", "ROC-AUC"), strict=True))

#: `split_by` the place of a row in its data set; any other value is a column.
EVEN = "even"

NOTEBOOK_DRAWS = 100
NOTEBOOK_SHARE = 0.7

#: Columns of a row after its measure; fractions, intervals of 95 % (and corrected ones).
_BOUNDS = ("value", "low", "high", "low_corrected", "high_corrected")
SUMMAC_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("score", "dataset", "measure"), pl.String()),
    **dict.fromkeys((*_BOUNDS, "threshold"), pl.Float64()),
    **dict.fromkeys(("n_threshold", "n"), pl.Int64()),
    "positives": pl.Float64(),
    **dict.fromkeys(("threshold_on", "scored_on"), pl.String()),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """The columns of the data, and the protocol.

    `split` None: a column `split`, else `cut`, where there is one. `split_by`, where there is one
    split only: the column whose values are drawn, with `split_seed`, into the half that picks the
    threshold and the one that is scored; or `EVEN`.
    """

    dataset: str = option(
        "dataset", metavar="COLUMN", panel="Data", help="Column with the name of the data set."
    )
    split: str | None = option(
        None,
        metavar="COLUMN",
        panel="Data",
        help="Column that says val or test; default: split, else cut.",
    )
    label: str = option(
        "label", metavar="COLUMN", panel="Data", help="Column of the labels; 1 is consistent."
    )
    split_by: str | None = option(
        None,
        metavar="COLUMN|even",
        panel="Data",
        help="Column whose values are drawn into halves, val and test; even: even rows are val.",
    )
    split_seed: int = option(0, panel="Data", help="Seed of the halves of --split-by.")
    protocol: Protocol = option(
        "paper", help="Rows that pick the threshold: val, or the scored ones (notebook)."
    )
    drop_missing: bool = option(
        False, panel="Data", help="Leave out rows with a missing value, and count them."
    )
    samples: int = option(10_000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"--protocol: {self.protocol!r} is none of {', '.join(PROTOCOLS)}")
        check_least(self, samples=1, seed=0)

    @property
    def half_names(self) -> tuple[str, str]:
        """The rows that pick the threshold, and those that are scored."""
        if self.split_by == EVEN:
            return "even rows", "odd rows"
        return f"first half by {self.split_by}", f"second half by {self.split_by}"


@dataclasses.dataclass(frozen=True)
class SummacConfig(BenchmarkSettings):
    """The tables, the scores to evaluate, and the settings of the benchmark."""

    tables: tuple[str, ...] = argument(
        help="Labelled scores: JSONL, CSV, Parquet, or run directories."
    )
    scores: tuple[str, ...] = option(
        panel="Essential", help="Columns with scores, or metrics of the runs."
    )

    def __post_init__(self) -> None:
        if not self.scores:
            raise ConfigError("name at least one column of --scores")
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class SummacResult(EvaluationResult):
    """Rows of `SUMMAC_SCHEMA`; `n_intervals` is the number that Bonferroni divides 5 % by."""

    name = "summac"
    title = "SummaC benchmark"

    config: SummacConfig
    rows: pl.DataFrame
    n_intervals: int
    left_out: int

    @property
    def protocol(self) -> Protocol:
        return self.config.protocol

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"rows": self.rows}

    def files(self) -> dict[str, pl.DataFrame]:
        return {"summac": self.rows}

    def facts(self) -> dict[str, Any]:
        facts = {"protocol": self.protocol, "intervals": self.n_intervals}
        return {**facts, "left_out": self.left_out}

    def sections(self) -> Sequence[Section]:
        """Balanced accuracy, then ROC-AUC: scores by data sets, the published rows beneath."""
        found = []
        for measure in MEASURES:
            rows = self.rows.filter(measure=measure)
            datasets = rows["dataset"].unique(maintain_order=True).to_list()
            shown: dict[str, list[str]] = {}
            for row in rows.iter_rows(named=True):
                shown.setdefault(row["score"], []).append(_with_intervals(row))
            published = list(_published_rows(measure, datasets))
            found.append(
                Section(
                    f"{MEASURE_TITLES[measure]}, %: protocol {self.protocol}",
                    ("score", *datasets),
                    [*((score, *cells) for score, cells in shown.items()), *published],
                    tuple(self._notes(bool(published))),
                )
            )
        return found

    def _notes(self, published: bool) -> Iterator[str]:
        config = self.config
        if self.protocol == "notebook":
            yield (
                "threshold picked on the rows it scores; intervals: 95 % and 99 % of "
                f"{NOTEBOOK_DRAWS} draws of 70 % without replacement"
            )
        else:
            picked = "val"
            if config.split_by is not None:
                first, second = config.half_names
                seed = "" if config.split_by == EVEN else f" (split seed {config.split_seed})"
                picked = f"the {first}{seed}, scores of the {second}"
            yield (
                f"threshold from {picked}; intervals: 95 % "
                f"bootstrap ({config.samples:,} samples), then the same corrected for "
                f"{self.n_intervals} intervals (Bonferroni)"
            )
        if self.left_out:
            yield f"{self.left_out:,} rows left out for missing scores"
        if published:
            yield f"published: {SUMMAC_SOURCE}; rows of other splits are not comparable"


def _with_intervals(row: Row) -> str:
    value, low, high, low_corrected, high_corrected = (percent(row[name]) for name in _BOUNDS)
    return f"{value} [{low}–{high}] [{low_corrected}–{high_corrected}]"


def _published_rows(measure: str, datasets: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for model in SUMMAC_TEST:
        figures = {name: summac_figure(model, measure, name) for name in datasets}
        if any(figures[name] is not None for name in datasets if name != OVERALL):
            yield f"{model}, published", *map(percent, figures.values())


class _Rows(NamedTuple):
    """The rows of a data set that pick the threshold, those that are scored, and their names."""

    dataset: str
    validation: pl.DataFrame
    test: pl.DataFrame
    names: tuple[str, str]


class _Evaluated(NamedTuple):
    """One score and measure on one data set: the value, its draws, and the rest of its row."""

    value: float
    draws: NDArray[np.float64]
    facts: tuple[object, ...] = (None,) * 6


#: By score and measure.
_OfDataset = dict[tuple[str, str], _Evaluated]


def summac_benchmark(config: SummacConfig) -> SummacResult:
    """Read the tables and evaluate every score on every data set.

    `InputError` where columns are missing, a label is neither 0 nor 1, a score is missing
    (unless `drop_missing`), or a split that the protocol needs is not there.
    """
    rows, left_out = _read(config)
    datasets = rows["dataset"].unique(maintain_order=True).to_list()
    n_intervals = len(config.scores) * (len(datasets) + (len(datasets) > 1))
    found = {
        name: _evaluate(_chosen(rows.filter(pl.col("dataset") == name), name, config), config, n)
        for n, name in enumerate(datasets)
    }
    table = [
        row
        for score in config.scores
        for measure in MEASURES
        for row in _rows(score, measure, found, config, n_intervals)
    ]
    frame = pl.DataFrame(table, schema=SUMMAC_SCHEMA, orient="row")
    return SummacResult(config, frame, n_intervals, left_out)


def _read(config: SummacConfig) -> tuple[pl.DataFrame, int]:
    """Dataset, split, half, label and scores of all tables, and the number of rows left out."""
    splits = [config.split] if config.split else ["split", "cut"]
    by = [config.split_by] if config.split_by else []
    wanted = [*config.scores, config.dataset, config.label, *splits, *by]
    rows = pl.concat([_normal(read_table(table, wanted), config) for table in config.tables])
    if config.split_by == EVEN:
        even = pl.int_range(pl.len()).over("dataset") % 2 == 0
        rows = rows.with_columns(first_half=even)
    kept = complete(rows, config.scores, drop=config.drop_missing)
    return kept, rows.height - kept.height


def _normal(table: RatedTable, config: SummacConfig) -> pl.DataFrame:
    """The table's rows under our own column names."""
    labels = table.labels(config.label)
    if config.split:
        table.texts(config.split)  # the error names the columns that there are
    split = next((name for name in (config.split, "split", "cut") if name and table.has(name)), "")
    drawn = None
    if config.split_by not in (None, EVEN):
        drawn = [in_first_half(v, config.split_seed) for v in table.texts(str(config.split_by))]
    spellings = {"valid": "val", "validation": "val", "dev": "val"}
    named = table.has(config.dataset)
    columns: dict[str, Any] = {
        "dataset": table.texts(config.dataset) if named else pl.lit(Path(table.name).stem),
        "split": table.texts(split).replace(spellings) if split else pl.lit(""),
        "first_half": pl.lit(None, pl.Boolean) if drawn is None else pl.Series(drawn),
        "label": labels,
        **{name: table.numbers(name) for name in config.scores},
    }
    return pl.DataFrame().select(**columns)


def _chosen(rows: pl.DataFrame, dataset: str, config: SummacConfig) -> _Rows:
    """The rows that pick the threshold of a data set, and those that are scored."""
    validation, test = rows.filter(split="val"), rows.filter(split="test")
    names = ("val", "test")
    if config.split_by:
        if validation.height and test.height:
            raise InputError(f"{dataset}: has both splits; leave out --split-by")
        first = pl.col("first_half")
        validation, test = rows.filter(first), rows.filter(~first)
        names = config.half_names
    if config.protocol == "notebook":
        scored, name = (test, names[1]) if test.height else (rows, "all rows")
        return _Rows(dataset, scored, scored, (name, name))
    if not validation.height or not test.height:
        here = ", ".join(sorted({name or "none" for name in rows["split"]}))
        raise InputError(
            f"{dataset}: needs rows of split val and of split test (there: {here}); --split-by "
            "COLUMN picks the threshold on one half and scores the other"
        )
    return _Rows(dataset, validation, test, names)


def _evaluate(rows: _Rows, config: SummacConfig, stream: int) -> _OfDataset:
    """Every score and measure on one data set, all on the same draws."""
    values: dict[tuple[str, str], tuple[float, WeightedMeasure, tuple[object, ...]]] = {}
    validation, test = rows.validation, rows.test
    scored_on = (test.height, test["label"].mean())
    for score in config.scores:
        try:
            of_test, positive = checked_labels(test[score], test["label"])
            threshold = best_threshold(validation[score], validation["label"])
            accuracy = balanced_accuracy(of_test, positive, threshold)
        except ValueError as exc:
            raise InputError(f"{rows.dataset}: {score}: {exc}") from exc
        values[score, MEASURES[0]] = (
            accuracy,
            weighted_accuracy(of_test > threshold, positive),
            (threshold, validation.height, *scored_on, *rows.names),
        )
        values[score, MEASURES[1]] = (
            roc_auc(of_test, positive),
            weighted_auc(of_test, positive),
            (None, None, *scored_on, None, rows.names[1]),
        )
    seed = (config.seed, stream)
    weights = resamples(test.height, config.samples, seed)
    if config.protocol == "notebook":
        weights = iter([subsets(test.height, NOTEBOOK_DRAWS, NOTEBOOK_SHARE, seed)])
    draws: dict[tuple[str, str], list[NDArray[np.float64]]] = {key: [] for key in values}
    for block in weights:
        for key, (_, measure, _) in values.items():
            draws[key].append(measure(block))
    return {
        key: _Evaluated(value, np.concatenate(draws[key]), facts)
        for key, (value, _, facts) in values.items()
    }


def _rows(
    score: str,
    measure: str,
    found: Mapping[str, _OfDataset],
    config: SummacConfig,
    n_intervals: int,
) -> Iterator[tuple[object, ...]]:
    """A score's rows of one measure: every data set, then their mean."""
    corrected = 0.01 if config.protocol == "notebook" else 0.05 / n_intervals
    evaluated = {name: of_dataset[score, measure] for name, of_dataset in found.items()}
    if len(evaluated) > 1:
        value = math.fsum(one.value for one in evaluated.values()) / len(evaluated)
        draws = np.mean([one.draws for one in evaluated.values()], axis=0)
        evaluated[OVERALL] = _Evaluated(value, draws)
    for dataset, one in evaluated.items():
        bounds = (*percentile_bounds(one.draws), *percentile_bounds(one.draws, corrected))
        yield score, dataset, measure, one.value, *bounds, *one.facts
