"""`claimscore evaluate correlate`: score columns against rating columns.

What OpinSummEval, Newsroom and SummEval are evaluated by: correlations with intervals and
p-values, and which of two metrics correlates better.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.inputs import SYSTEM, Grid, RatedTable, grid, read_table
from claimscore.evaluation.result import EvaluationResult, Mark, Row, Section, fixed
from claimscore.option import argument, check_least, option
from claimscore.stats.agreement import (
    LEVELS,
    METHODS,
    Level,
    Method,
    case_correlations,
    correlation,
    correlation_draws,
)
from claimscore.stats.bootstrap import paired_p_value, percentile_bounds

MIN_SYSTEMS = 3
MIN_CASES = 2
NAMES = {"kendall": "Kendall's τ-b", "spearman": "Spearman's ρ", "pearson": "Pearson's r"}

CORRELATIONS: dict[str, pl.DataType] = {
    **dict.fromkeys(("correlation", "level", "score", "rating"), pl.String()),
    **dict.fromkeys(("value", "low", "high", "p_value"), pl.Float64()),
    **dict.fromkeys(("n_cases", "n_systems", "undefined_cases"), pl.Int64()),
    "reason": pl.String(),
}
COMPARISONS: dict[str, pl.DataType] = {
    **dict.fromkeys(("correlation", "level", "rating", "score_1", "score_2"), pl.String()),
    **dict.fromkeys(("difference", "low", "high", "p_bootstrap"), pl.Float64()),
    "reason": pl.String(),
}
_CONSTANT = "scores or ratings are constant"
_STARS = "** p ≤ 0.01, * p ≤ 0.05 (each by itself, not corrected)"


@dataclasses.dataclass(frozen=True, slots=True)
class CorrelateConfig:
    """Settings of a correlation; `case` None takes every row as a case of its own (pooled only)."""

    table: str = argument(help="Scores, a row a summary: JSONL, CSV, Parquet, or a run directory.")
    scores: tuple[str, ...] = option(
        panel="Essential", help="Columns with scores, or metrics of the run."
    )
    ratings: tuple[str, ...] = option(
        panel="Essential", help="Columns with ratings, or dimensions of `ratings`."
    )
    case: str | None = option(
        None,
        metavar="COLUMN",
        panel="Data",
        help="Column of the documents; only pooled does without.",
    )
    levels: tuple[Level, ...] = option(
        (),
        choices=LEVELS,
        help="Levels: system, summary, pooled; default: the first two with --case, else pooled.",
    )
    methods: tuple[Method, ...] = option(
        ("kendall",),
        name="coefficients",
        choices=METHODS,
        help="Correlation coefficients: kendall (tau-b), spearman, pearson.",
    )
    compare: bool = option(False, help="Test every two scores against each other.")
    drop_missing: bool = option(
        False, panel="Data", help="Leave out rows with a missing value, and count them."
    )
    samples: int = option(1000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")

    def __post_init__(self) -> None:
        for what, names, known in (
            ("--levels", self.levels, LEVELS),
            ("--coefficients", self.methods, METHODS),
        ):
            for name in names:
                if name not in known:
                    raise ConfigError(f"{what}: {name!r} is none of {', '.join(known)}")
        if not (self.scores and self.ratings and self.methods):
            raise ConfigError("name at least one column of --scores and one of --ratings")
        check_least(self, samples=1, seed=0)
        if self.case is None and set(self.levels) - {"pooled"}:
            raise ConfigError(
                "the levels system and summary need to know which rows belong to one case: "
                "name its column with --case (or ask for --levels pooled)"
            )

    @property
    def chosen_levels(self) -> tuple[Level, ...]:
        return self.levels or (("system", "summary") if self.case else ("pooled",))


def _sections(
    correlations: pl.DataFrame, left_out: int, config: CorrelateConfig
) -> Iterator[Section]:
    """A table a correlation and level: scores by ratings."""
    groups = correlations.group_by("correlation", "level", maintain_order=True)
    for (method, level), rows in groups:
        cells: dict[str, list[str]] = {}
        charts: dict[str, list[Mark]] = {}
        for row in rows.iter_rows(named=True):
            cells.setdefault(row["score"], []).append(_shown(row))
            ends = row["value"], row["low"], row["high"]
            charts.setdefault(row["rating"], []).append(
                Mark(row["score"], *ends, fixed(row["value"], 3, "none"))
            )
        notes = [f"95 % bootstrap interval over cases ({config.samples:,} samples); {_STARS}"]
        if left_out:
            notes.append(f"{left_out:,} cases left out for missing values")
        undefined = rows["undefined_cases"].to_numpy().max()
        if undefined:
            notes.append(f"up to {undefined} cases are constant and have no value")
        size = f"{row['n_cases']:,} cases" + (
            f", {row['n_systems']} systems" if config.case else ""
        )
        yield Section(
            f"{NAMES[str(method)]}, {level} level: {size}",
            ("score", *config.ratings),
            [(score, *of_ratings) for score, of_ratings in cells.items()],
            tuple(notes),
            charts,
        )


def _shown(row: Row) -> str:
    if row["value"] is None:
        return "none"
    p = row["p_value"]
    stars = "" if p is None or p > 0.05 else "**" if p <= 0.01 else "*"
    return f"{row['value']:.4f}{stars} {_interval(row)}"


def _interval(row: Row) -> str:
    return f"[{fixed(row['low'], 2, 'none')}, {fixed(row['high'], 2, 'none')}]"


def _comparison_section(comparisons: pl.DataFrame) -> Section:
    reasons = comparisons["reason"].drop_nulls().unique(maintain_order=True).to_list()
    return Section(
        "Which correlates better",
        ("correlation", "level", "rating", "difference of", "value", "95 % interval", "p"),
        [
            (
                *(row[name] for name in ("correlation", "level", "rating")),
                f"{row['score_1']} − {row['score_2']}",
                fixed(row["difference"], 4, "none"),
                _interval(row),
                fixed(row["p_bootstrap"], 4, "none"),
            )
            for row in comparisons.iter_rows(named=True)
        ],
        ("p-values are two-sided and not corrected for the number of comparisons", *reasons),
    )


def correlate(config: CorrelateConfig) -> EvaluationResult:
    """Read the table and compute every correlation that was asked for.

    The table `correlations` of the result has the rows of `CORRELATIONS`, with `compare` the table
    `comparisons` those of `COMPARISONS`.
    `InputError` where columns are missing or hold no numbers, where values are missing (unless
    `drop_missing`: then whole cases are left out), and where there are too few cases or systems.
    """
    columns = [*config.scores, *config.ratings]
    table = read_table(config.table, [*columns, SYSTEM, *filter(None, [config.case])])
    whole = grid(table, columns, config.case)
    complete = _complete(whole, table, config)
    _check_size(complete, table, config)
    cells = list(_cells(complete, config))
    correlations = pl.DataFrame([cell.row for cell in cells], schema=CORRELATIONS)
    left_out = len(whole.cases) - len(complete.cases)
    tables = {"correlations": correlations}
    sections = list(_sections(correlations, left_out, config))
    if config.compare:
        rows = list(_comparisons(cells))
        tables["comparisons"] = pl.DataFrame(rows, schema=COMPARISONS, orient="row")
        sections.append(_comparison_section(tables["comparisons"]))
    return EvaluationResult(
        name="correlate",
        title="Correlations",
        config=dataclasses.replace(config, levels=config.chosen_levels),
        tables=tables,
        facts={
            "cases": len(complete.cases),
            "systems": len(complete.systems),
            "left_out": left_out,
        },
        sections=sections,
    )


def _complete(rows: Grid, table: RatedTable, config: CorrelateConfig) -> Grid:
    if config.drop_missing:
        return rows.without_incomplete_cases()
    missing = rows.first_missing()
    if missing:
        column, case, system = missing
        place = f"case {case} of system {system}" if config.case else case
        raise InputError(
            f"{table.name}: no value of {column} for {place}; --drop-missing "
            "leaves out the cases where a value is missing"
        )
    return rows


def _check_size(rows: Grid, table: RatedTable, config: CorrelateConfig) -> None:
    n_cases, n_systems = len(rows.cases), len(rows.systems)
    if n_cases < MIN_CASES:
        raise InputError(
            f"{table.name}: {n_cases} whole cases are too few for a correlation with an interval"
        )
    if set(config.chosen_levels) - {"pooled"} and n_systems < MIN_SYSTEMS:
        raise InputError(
            f"{table.name}: {n_systems} systems in column {SYSTEM}; correlations over "
            f"systems need at least {MIN_SYSTEMS} (or ask for --levels pooled)"
        )


@dataclasses.dataclass(frozen=True)
class _Correlated:
    """A row of `CORRELATIONS`, and its bootstrap draws."""

    row: dict[str, Any]
    draws: NDArray[np.float64]


def _cells(rows: Grid, config: CorrelateConfig) -> Iterator[_Correlated]:
    for method, level, score, rating in itertools.product(
        config.methods, config.chosen_levels, config.scores, config.ratings
    ):
        x, y = rows.arrays[score], rows.arrays[rating]
        value, p_value = correlation(method, x, y, level=level)
        draws = correlation_draws(
            method, x, y, level=level, samples=config.samples, seed=config.seed
        )
        undefined = np.isnan(case_correlations(method, x, y)).sum() if level == "summary" else 0
        low, high = percentile_bounds(draws) if value is not None else (None, None)
        no_interval = "all draws are equal: no interval" if low is None else None
        reason = _CONSTANT if value is None else no_interval
        sizes = (len(rows.cases), len(rows.systems), int(undefined))
        row = (method, level, score, rating, value, low, high, p_value, *sizes, reason)
        yield _Correlated(dict(zip(CORRELATIONS, row, strict=True)), draws)


def _comparisons(cells: Sequence[_Correlated]) -> Iterator[tuple[object, ...]]:
    """Every two scores against each rating, by the paired bootstrap."""
    for first, second in itertools.combinations(cells, 2):
        one, other = first.row, second.row
        place = [one[name] for name in ("correlation", "level", "rating")]
        if place != [other[name] for name in ("correlation", "level", "rating")]:
            continue
        names = (*place, one["score"], other["score"])
        if one["value"] is None or other["value"] is None:
            yield *names, *[None] * 4, _CONSTANT
            continue
        difference = first.draws - second.draws
        yield (
            *names,
            one["value"] - other["value"],
            *percentile_bounds(difference),
            paired_p_value(difference),
            None,
        )
