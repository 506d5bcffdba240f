"""`claimscore evaluate correlate`: score columns against rating columns.

What OpinSummEval, Newsroom and SummEval are evaluated by: correlations with intervals and
p-values, which of two metrics correlates better, and average ranks.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.table import ID, Grid, Table, grid, joined, read_table
from claimscore.stats.bootstrap import paired_p_value, percentile_bounds
from claimscore.stats.correlation import (
    LEVELS,
    METHODS,
    Level,
    Method,
    case_correlations,
    correlation,
    correlation_draws,
    level_vector,
    williams_test,
)

MIN_SYSTEMS = 3
MIN_CASES = 2

_Array = NDArray[np.float64]

CORRELATIONS_SCHEMA: dict[str, pl.DataType] = {
    "correlation": pl.String(),
    "level": pl.String(),
    "score": pl.String(),
    "rating": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "p_value": pl.Float64(),
    "n_cases": pl.Int64(),
    "n_systems": pl.Int64(),
    "undefined_cases": pl.Int64(),
    "reason": pl.String(),
}
RANKS_SCHEMA: dict[str, pl.DataType] = {
    "correlation": pl.String(),
    "level": pl.String(),
    "score": pl.String(),
    "average_rank": pl.Float64(),
    "ranks": pl.List(pl.Float64()),
}
COMPARISONS_SCHEMA: dict[str, pl.DataType] = {
    "correlation": pl.String(),
    "level": pl.String(),
    "rating": pl.String(),
    "score_1": pl.String(),
    "score_2": pl.String(),
    "difference": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "p_bootstrap": pl.Float64(),
    "williams_t": pl.Float64(),
    "p_williams": pl.Float64(),
    "reason": pl.String(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class CorrelateConfig:
    """Settings of a correlation; `case` None takes every row as a case of its own (pooled only).

    The ratings are columns of `ratings_file`, joined by `id`, where one is named.
    """

    table: str
    scores: tuple[str, ...]
    ratings: tuple[str, ...]
    case: str | None = None
    system: str = "system"
    levels: tuple[Level, ...] = ()
    methods: tuple[Method, ...] = ("kendall",)
    compare: bool = False
    drop_missing: bool = False
    samples: int = 1000
    seed: int = 0
    ratings_file: str | None = None

    def __post_init__(self) -> None:
        for what, names, known in (
            ("--level", self.levels, LEVELS),
            ("--metric", self.methods, METHODS),
        ):
            for name in names:
                if name not in known:
                    raise ConfigError(f"{what}: {name!r} is none of {', '.join(known)}")
        if not (self.scores and self.ratings and self.methods):
            raise ConfigError("name at least one column of --scores and one of --ratings")
        if self.samples < 1:
            raise ConfigError(f"--samples must be at least 1, not {self.samples}")
        if self.case is None and set(self.levels) - {"pooled"}:
            raise ConfigError(
                "the levels system and summary need to know which rows belong to one case: "
                "name its column with --case (or ask for --level pooled)"
            )

    @property
    def chosen_levels(self) -> tuple[Level, ...]:
        return self.levels or (("system", "summary") if self.case else ("pooled",))


class CorrelateResult(NamedTuple):
    """Rows with the schemas above, and what they were computed over."""

    correlations: pl.DataFrame
    ranks: pl.DataFrame
    comparisons: pl.DataFrame
    n_cases: int
    n_systems: int
    left_out: int


def _table(config: CorrelateConfig) -> Table:
    wanted = [*config.scores, config.system, *([config.case] if config.case else [])]
    if config.ratings_file is None:
        return read_table(config.table, [*wanted, *config.ratings])
    ratings = read_table(config.ratings_file, [ID, *config.ratings])
    return joined(read_table(config.table, [*wanted, ID]), ratings, config.ratings)


def correlate(config: CorrelateConfig) -> CorrelateResult:
    """Read the table and compute every correlation that was asked for.

    `InputError` where columns are missing or hold no numbers, where values are missing (unless
    `drop_missing`: then whole cases are left out), and where there are too few cases or systems.
    """
    table = _table(config)
    found = grid(table, [*config.scores, *config.ratings], config.case, config.system)
    n_all = len(found.cases)
    found = _complete(found, table, config)
    _check_size(found, table, config)
    cells = list(_cells(found, config))
    return CorrelateResult(
        pl.DataFrame([cell.row for cell in cells], schema=CORRELATIONS_SCHEMA, orient="row"),
        pl.DataFrame(list(_ranks(cells, config)), schema=RANKS_SCHEMA, orient="row"),
        pl.DataFrame(
            list(_comparisons(found, cells, config)) if config.compare else [],
            schema=COMPARISONS_SCHEMA,
            orient="row",
        ),
        len(found.cases),
        len(found.systems),
        n_all - len(found.cases),
    )


def _complete(found: Grid, table: Table, config: CorrelateConfig) -> Grid:
    if config.drop_missing:
        return found.without_incomplete_cases()
    missing = found.first_missing()
    if missing:
        column, case, system = missing
        place = f"case {case} of system {system}" if config.case else case
        raise InputError(
            f"{table.name}: no value of {column} for {place}; --drop-missing "
            "leaves out the cases where a value is missing"
        )
    return found


def _check_size(found: Grid, table: Table, config: CorrelateConfig) -> None:
    n_cases, n_systems = len(found.cases), len(found.systems)
    if n_cases < MIN_CASES:
        raise InputError(
            f"{table.name}: {n_cases} whole cases are too few for a correlation with an interval"
        )
    if set(config.chosen_levels) - {"pooled"} and n_systems < MIN_SYSTEMS:
        raise InputError(
            f"{table.name}: {n_systems} systems in column {config.system}; correlations over "
            f"systems need at least {MIN_SYSTEMS} (or ask for --level pooled)"
        )


@dataclasses.dataclass(frozen=True)
class _Cell:
    """One correlation, and its bootstrap draws."""

    method: Method
    level: Level
    score: str
    rating: str
    value: float | None
    draws: _Array
    row: tuple[object, ...]


def _cells(found: Grid, config: CorrelateConfig) -> Iterator[_Cell]:
    combinations = itertools.product(
        config.methods, config.chosen_levels, config.scores, config.ratings
    )
    for method, level, score, rating in combinations:
        x, y = found.arrays[score], found.arrays[rating]
        value, p_value = correlation(method, x, y, level=level)
        draws = correlation_draws(
            method, x, y, level=level, samples=config.samples, seed=config.seed
        )
        undefined = (
            int(np.isnan(case_correlations(method, x, y)).sum()) if level == "summary" else 0
        )
        low, high = percentile_bounds(draws) if value is not None else (None, None)
        reason = None if value is not None else "scores or ratings are constant"
        sizes = (len(found.cases), len(found.systems), undefined)
        row = (method, level, score, rating, value, low, high, p_value, *sizes, reason)
        yield _Cell(method, level, score, rating, value, draws, row)


def _ranks(cells: Sequence[_Cell], config: CorrelateConfig) -> Iterator[tuple[object, ...]]:
    """Each score's rank among the scores, by rating, and their mean; 1 is the highest value.

    Ties share the mean of their ranks. Without a value there is no rank, and no average.
    """
    for method, level in itertools.product(config.methods, config.chosen_levels):
        of_rating = []
        for rating in config.ratings:
            values = [
                math.nan if cell.value is None else cell.value
                for cell in cells
                if (cell.method, cell.level, cell.rating) == (method, level, rating)
            ]
            of_rating.append(stats.rankdata(-np.array(values), nan_policy="omit"))
        for score, ranks in zip(config.scores, np.array(of_rating).T, strict=True):
            given = [None if math.isnan(rank) else float(rank) for rank in ranks]
            average = None if None in given else float(ranks.mean())
            yield method, level, score, average, given


def _comparisons(
    found: Grid, cells: Sequence[_Cell], config: CorrelateConfig
) -> Iterator[tuple[object, ...]]:
    """Every two scores against each rating: the paired bootstrap, and Williams' test."""
    for first, second in itertools.combinations(cells, 2):
        of_first = (first.method, first.level, first.rating)
        if of_first != (second.method, second.level, second.rating):
            continue
        names = (first.method, first.level, first.rating, first.score, second.score)
        if first.value is None or second.value is None:
            yield *names, *[None] * 6, "scores or ratings are constant"
            continue
        difference = first.draws - second.draws
        williams, reason = _williams(found, first, second)
        yield (
            *names,
            first.value - second.value,
            *percentile_bounds(difference),
            paired_p_value(difference),
            *williams,
            reason,
        )


def _williams(
    found: Grid, first: _Cell, second: _Cell
) -> tuple[tuple[float | None, float | None], str | None]:
    """Williams' t and p of two correlations with one rating, or why there are none."""
    none = (None, None)
    if first.method == "kendall":
        return none, "Williams' test is not defined for Kendall's tau"
    if first.level == "summary":
        return none, "Williams' test is not defined for a mean of correlations"
    x, y, z = (
        level_vector(found.arrays[name], first.level)
        for name in (first.score, second.score, first.rating)
    )
    between = case_correlations(first.method, x[None], y[None])[0]
    r12, r13 = (case_correlations(first.method, z[None], v[None])[0] for v in (x, y))
    try:
        found_t, p_value = williams_test(float(r12), float(r13), float(between), x.size)
    except ValueError as exc:
        return none, str(exc)
    return (found_t, p_value), None
