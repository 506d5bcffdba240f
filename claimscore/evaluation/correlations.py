"""`claimscore evaluate correlate`: score columns against rating columns.

What OpinSummEval, Newsroom and SummEval are evaluated by: correlations with intervals and
p-values, which of two metrics correlates better, and average ranks.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import check_least
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.ratings_table import ID, Grid, RatedTable, grid, joined, read_table
from claimscore.evaluation.result import EvaluationResult, Mark, Row, Section, fixed
from claimscore.option import argument, option
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
NAMES = {"kendall": "Kendall's τ-b", "spearman": "Spearman's ρ", "pearson": "Pearson's r"}

CORRELATIONS_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("correlation", "level", "score", "rating"), pl.String()),
    **dict.fromkeys(("value", "low", "high", "p_value"), pl.Float64()),
    **dict.fromkeys(("n_cases", "n_systems", "undefined_cases"), pl.Int64()),
    "reason": pl.String(),
}
COMPARISONS_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("correlation", "level", "rating", "score_1", "score_2"), pl.String()),
    **dict.fromkeys(("difference", "low", "high", "p_bootstrap"), pl.Float64()),
    **dict.fromkeys(("williams_t", "p_williams"), pl.Float64()),
    "reason": pl.String(),
}
_CONSTANT = "scores or ratings are constant"
_STARS = "** p ≤ 0.01, * p ≤ 0.05 (each by itself, not corrected)"


@dataclasses.dataclass(frozen=True, slots=True)
class CorrelateConfig:
    """Settings of a correlation; `case` None takes every row as a case of its own (pooled only).

    The ratings are columns of `ratings_file`, joined by `id`, where one is named.
    """

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
    system: str = option(
        "system", metavar="COLUMN", panel="Data", help="Column of the summarising system."
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
    ratings_file: str | None = option(
        None, metavar="FILE", panel="Data", help="File with the ratings, joined by id."
    )

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


@dataclasses.dataclass(frozen=True)
class CorrelateResult(EvaluationResult):
    """Correlations and comparisons with the schemas above, and what they were computed over.

    `ranks` has for each correlation, level and score its rank among the scores by every rating,
    and their mean. 1 is the highest value; ties share the mean of their ranks; without a value
    there is no rank and no mean.
    """

    name = "correlate"
    title = "Correlations"

    config: CorrelateConfig
    correlations: pl.DataFrame
    ranks: pl.DataFrame
    comparisons: pl.DataFrame
    n_cases: int
    n_systems: int
    left_out: int

    def tables(self) -> dict[str, pl.DataFrame]:
        found = {"correlations": self.correlations, "ranks": self.ranks}
        return found | ({"comparisons": self.comparisons} if self.config.compare else {})

    def facts(self) -> dict[str, Any]:
        return {"cases": self.n_cases, "systems": self.n_systems, "left_out": self.left_out}

    def sections(self) -> Sequence[Section]:
        """A table a correlation and level: scores by ratings, and the average rank."""
        groups = self.correlations.group_by("correlation", "level", maintain_order=True)
        found = [self._section(str(method), str(level), rows) for (method, level), rows in groups]
        return [*found, _comparison_section(self.comparisons)] if self.config.compare else found

    def _section(self, method: str, level: str, rows: pl.DataFrame) -> Section:
        config = self.config
        size = f"{self.n_cases:,} cases" + (f", {self.n_systems} systems" if config.case else "")
        shown: dict[str, list[str]] = {}
        charts: dict[str, list[Mark]] = {}
        for row in rows.iter_rows(named=True):
            shown.setdefault(row["score"], []).append(_shown(row))
            ends = row["value"], row["low"], row["high"]
            charts.setdefault(row["rating"], []).append(
                Mark(row["score"], *ends, fixed(row["value"], 3, "none"))
            )
        ranks = self.ranks.filter(correlation=method, level=level)["average_rank"]
        notes = [f"95 % bootstrap interval over cases ({config.samples:,} samples); {_STARS}"]
        if self.left_out:
            notes.append(f"{self.left_out:,} cases left out for missing values")
        undefined = rows["undefined_cases"].to_numpy().max()
        if undefined:
            notes.append(f"up to {undefined} cases are constant and have no value")
        return Section(
            f"{NAMES[method]}, {level} level: {size}",
            ("score", *config.ratings, "average rank"),
            [
                (score, *cells, fixed(rank, 2, "none"))
                for (score, cells), rank in zip(shown.items(), ranks, strict=True)
            ],
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
    header = ("correlation", "level", "rating", "difference of", "value", "95 % interval")
    reasons = comparisons["reason"].drop_nulls().unique(maintain_order=True).to_list()
    return Section(
        "Which correlates better",
        (*header, "p (bootstrap)", "Williams' t", "p (Williams)"),
        [
            (
                *(row[name] for name in ("correlation", "level", "rating")),
                f"{row['score_1']} − {row['score_2']}",
                fixed(row["difference"], 4, "none"),
                _interval(row),
                fixed(row["p_bootstrap"], 4, "none"),
                fixed(row["williams_t"], 3, "none"),
                fixed(row["p_williams"], 4, "none"),
            )
            for row in comparisons.iter_rows(named=True)
        ],
        ("p-values are two-sided and not corrected for the number of comparisons", *reasons),
    )


def correlate(config: CorrelateConfig) -> CorrelateResult:
    """Read the table and compute every correlation that was asked for.

    `InputError` where columns are missing or hold no numbers, where values are missing (unless
    `drop_missing`: then whole cases are left out), and where there are too few cases or systems.
    """
    table = _read(config)
    whole = grid(table, [*config.scores, *config.ratings], config.case, config.system)
    found = _complete(whole, table, config)
    _check_size(found, table, config)
    cells = list(_cells(found, config))
    comparisons = list(_comparisons(found, cells)) if config.compare else []
    correlations = pl.DataFrame([cell.row for cell in cells], schema=CORRELATIONS_SCHEMA)
    return CorrelateResult(
        config,
        correlations,
        _ranks(correlations),
        pl.DataFrame(comparisons, schema=COMPARISONS_SCHEMA, orient="row"),
        len(found.cases),
        len(found.systems),
        len(whole.cases) - len(found.cases),
    )


def _read(config: CorrelateConfig) -> RatedTable:
    wanted = [*config.scores, config.system, *([config.case] if config.case else [])]
    if config.ratings_file is None:
        return read_table(config.table, [*wanted, *config.ratings])
    ratings = read_table(config.ratings_file, [ID, *config.ratings])
    return joined(read_table(config.table, [*wanted, ID]), ratings, config.ratings)


def _complete(found: Grid, table: RatedTable, config: CorrelateConfig) -> Grid:
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


def _check_size(found: Grid, table: RatedTable, config: CorrelateConfig) -> None:
    n_cases, n_systems = len(found.cases), len(found.systems)
    if n_cases < MIN_CASES:
        raise InputError(
            f"{table.name}: {n_cases} whole cases are too few for a correlation with an interval"
        )
    if set(config.chosen_levels) - {"pooled"} and n_systems < MIN_SYSTEMS:
        raise InputError(
            f"{table.name}: {n_systems} systems in column {config.system}; correlations over "
            f"systems need at least {MIN_SYSTEMS} (or ask for --levels pooled)"
        )


@dataclasses.dataclass(frozen=True)
class _Correlated:
    """A row of `CORRELATIONS_SCHEMA`, and its bootstrap draws."""

    method: Method
    level: Level
    row: dict[str, Any]
    draws: NDArray[np.float64]


def _cells(found: Grid, config: CorrelateConfig) -> Iterator[_Correlated]:
    for method, level, score, rating in itertools.product(
        config.methods, config.chosen_levels, config.scores, config.ratings
    ):
        x, y = found.arrays[score], found.arrays[rating]
        value, p_value = correlation(method, x, y, level=level)
        draws = correlation_draws(
            method, x, y, level=level, samples=config.samples, seed=config.seed
        )
        undefined = np.isnan(case_correlations(method, x, y)).sum() if level == "summary" else 0
        low, high = percentile_bounds(draws) if value is not None else (None, None)
        reason = None if value is not None else _CONSTANT
        sizes = (len(found.cases), len(found.systems), int(undefined))
        row = (method, level, score, rating, value, low, high, p_value, *sizes, reason)
        yield _Correlated(method, level, dict(zip(CORRELATIONS_SCHEMA, row, strict=True)), draws)


def _ranks(correlations: pl.DataFrame) -> pl.DataFrame:
    rank = pl.col("value").rank("average", descending=True)
    known = pl.col("ranks").list.eval(pl.element().is_null().any()).list.first()
    return (
        correlations.with_columns(ranks=rank.over("correlation", "level", "rating"))
        .group_by("correlation", "level", "score", maintain_order=True)
        .agg("ranks")
        .select(
            *("correlation", "level", "score"),
            pl.when(~known).then(pl.col("ranks").list.mean()).alias("average_rank"),
            "ranks",
        )
    )


def _comparisons(found: Grid, cells: Sequence[_Correlated]) -> Iterator[tuple[object, ...]]:
    """Every two scores against each rating: the paired bootstrap, and Williams' test."""
    for first, second in itertools.combinations(cells, 2):
        one, other = first.row, second.row
        place = [one[name] for name in ("correlation", "level", "rating")]
        if place != [other[name] for name in ("correlation", "level", "rating")]:
            continue
        names = (*place, one["score"], other["score"])
        if one["value"] is None or other["value"] is None:
            yield *names, *[None] * 6, _CONSTANT
            continue
        difference = first.draws - second.draws
        yield (
            *names,
            one["value"] - other["value"],
            *percentile_bounds(difference),
            paired_p_value(difference),
            *_williams(found, first, second),
        )


def _williams(
    found: Grid, first: _Correlated, second: _Correlated
) -> tuple[float | None, float | None, str | None]:
    """Williams' t and p of two correlations with one rating, or why there are none."""
    if first.method == "kendall":
        return None, None, "Williams' test is not defined for Kendall's tau"
    if first.level == "summary":
        return None, None, "Williams' test is not defined for a mean of correlations"
    columns = (first.row["score"], second.row["score"], first.row["rating"])
    x, y, z = (level_vector(found.arrays[name], first.level)[None] for name in columns)
    r12, r13, r23 = (
        float(case_correlations(first.method, *pair)[0]) for pair in ((z, x), (z, y), (x, y))
    )
    try:
        return *williams_test(r12, r13, r23, x.size), None
    except ValueError as exc:
        return None, None, str(exc)
