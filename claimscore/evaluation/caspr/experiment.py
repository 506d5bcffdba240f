"""The experiment of the CASPR paper: its comparisons scored by every metric (Tables 2 and 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.config import Granularity, RunConfig
from claimscore.errors import ConfigError, InputError, StoppedEarly
from claimscore.evaluation.caspr.made import SCORED, make_texts, what_is_left, write_rows
from claimscore.evaluation.caspr.pairs import (
    COMPARISONS,
    Missing,
    Pair,
    build_pairs,
    read_annotated,
)
from claimscore.evaluation.published import CASPR_MEANS, CASPR_RHO
from claimscore.pipeline.plan import load_metrics, required_columns
from claimscore.pipeline.run import OnProgress, RunResult, run
from claimscore.stats.bootstrap import mean_interval, percentile_bounds
from claimscore.stats.correlation import correlation_draws, spearman

#: What Spearman's rho is taken of: the same pairs, in their own words and paraphrased.
PARAPHRASED = ("ref_contrastive", "syn_contrast")

#: Comparisons in the order of the contrast that they should have.
ORDER = ("syn_low", "ref_similar", "ref_contrastive", "syn_high")

MEANS_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "comparison": pl.String,
    "n": pl.Int64,
    "null": pl.Int64,
    "mean": pl.Float64,
    "half_width": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "published_mean": pl.Float64,
    "published_half_width": pl.Float64,
}
RHO_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "n": pl.Int64,
    "spearman": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p_value": pl.Float64,
    "published": pl.Float64,
    "reason": pl.String,
}


@dataclasses.dataclass(frozen=True, slots=True)
class CasprConfig:
    """`run` has the input, the folder, the metrics and all that the engine is asked with."""

    run: RunConfig
    paraphrase: Granularity = "sentence"
    drop_missing: bool = False
    samples: int = 10_000

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ConfigError(f"--samples must be at least 2, not {self.samples}")
        if not self.run.metrics:
            raise ConfigError("nothing to do: name --metrics")
        if self.run.input == "-":
            raise InputError("the records of evaluate caspr are read from a file, not from -")


class CasprResult(NamedTuple):
    """`scores` has a row a pair and metric, `means` one a metric and comparison, `rho` a metric."""

    run: RunResult
    n_records: int
    n_made: int
    missing: tuple[Missing, ...]
    scores: pl.DataFrame
    means: pl.DataFrame
    rho: pl.DataFrame


def caspr_experiment(config: CasprConfig, on_progress: OnProgress | None = None) -> CasprResult:
    """Make what the records lack, score the five comparisons by one run, and compare.

    All lies in the folder `config.run.out`; the same call goes on where it was stopped. Raises
    as `claimscore.run` does, `InputError` for records that cannot be used, and `StoppedEarly`
    where a text could not be made and `drop_missing` is false.
    """
    metrics = _metric_names(config.run)
    records = read_annotated(config.run.input)
    out = config.run.folder
    made = make_texts(records, config.run, config.paraphrase, on_progress)
    built = list(build_pairs(records, made.texts, made.reasons))
    missing = tuple(item for item in built if isinstance(item, Missing))
    pairs = [item for item in built if isinstance(item, Pair)]
    if missing and not config.drop_missing:
        first = missing[0]
        raise StoppedEarly(
            f"{len(missing)} pairs lack a text, e.g. record {first.id!r}: {first.reason}; the same "
            "command with --retry-failed asks again, with --drop-missing leaves those pairs out"
        )
    source = write_rows(out / "comparisons.jsonl", (_record(pair) for pair in pairs))
    llm = what_is_left(config.run, SCORED)
    scoring = dataclasses.replace(
        config.run, input=str(source), out=out / SCORED, tasks=(), llm=llm
    )
    result = run(scoring, on_progress=on_progress)
    scores = _read_scores(out / SCORED, pairs, metrics)
    seed = config.run.seed
    return CasprResult(
        result,
        len(records),
        len(made.texts),
        missing,
        scores,
        _means(scores, metrics, config.samples, seed),
        _correlations(scores, metrics, config.samples, seed),
    )


def _metric_names(config: RunConfig) -> list[str]:
    """The run's metrics; `ConfigError`, before anything is asked, for one of other texts."""
    required = required_columns(load_metrics(config.metrics, config.metric_files))
    for metric, columns in required.items():
        for column in columns:
            if column not in ("summary_a", "summary_b"):
                raise ConfigError(
                    f"{metric} needs the column {column}; evaluate caspr compares summary_a with "
                    "summary_b"
                )
    return list(required)


def _id(pair: Pair) -> str:
    return f"{pair.comparison}/{pair.id}"


def _record(pair: Pair) -> dict[str, str]:
    return {
        "id": _id(pair),
        "comparison": pair.comparison,
        "summary_a": pair.summary_a,
        "summary_b": pair.summary_b,
    }


def _read_scores(out: Path, pairs: Sequence[Pair], metrics: Sequence[str]) -> pl.DataFrame:
    """The run's scores with comparison and pair in place of the id, in the order of the pairs."""
    columns = {
        "id": [_id(pair) for pair in pairs],
        "comparison": [pair.comparison for pair in pairs],
        "pair": [pair.id for pair in pairs],
    }
    scores = pl.read_parquet(out / "scores.parquet", glob=False).filter(
        pl.col("metric").is_in(list(metrics))
    )
    joined = pl.DataFrame(columns).join(scores, on="id", maintain_order="left_right")
    return joined.select("comparison", "pair", "metric", "value", "reason", "signature")


def _means(scores: pl.DataFrame, metrics: Sequence[str], samples: int, seed: int) -> pl.DataFrame:
    rows = []
    for metric in metrics:
        for comparison in COMPARISONS:
            column = scores.filter(metric=metric, comparison=comparison)["value"]
            values = column.drop_nulls()
            found = (
                mean_interval(values.to_list(), samples=samples, seed=seed) if len(values) else None
            )
            mean, half_width = CASPR_MEANS.get(metric, {}).get(comparison, (None, None))
            rows.append(
                {
                    "metric": metric,
                    "comparison": comparison,
                    "n": len(values),
                    "null": column.null_count(),
                    **({} if found is None else found._asdict()),
                    "published_mean": mean,
                    "published_half_width": half_width,
                }
            )
    return pl.DataFrame(rows, schema=MEANS_SCHEMA)


def _correlations(
    scores: pl.DataFrame, metrics: Sequence[str], samples: int, seed: int
) -> pl.DataFrame:
    """Spearman's rho over the pairs that both comparisons have a score of."""
    rows = []
    for metric in metrics:
        plain, paraphrased = (
            scores.filter(metric=metric, comparison=name).select("pair", "value").drop_nulls()
            for name in PARAPHRASED
        )
        both = plain.join(paraphrased, on="pair", maintain_order="left")
        row = {"metric": metric, "n": both.height, "published": CASPR_RHO.get(metric)}
        rows.append({**row, **_rho(both, samples, seed)})
    return pl.DataFrame(rows, schema=RHO_SCHEMA)


def _rho(both: pl.DataFrame, samples: int, seed: int) -> dict[str, float | str | None]:
    if both.height < 2:
        return {"reason": "fewer than two pairs have both scores"}
    x, y = (both[name].to_numpy()[:, None] for name in ("value", "value_right"))
    found = spearman(x, y, level="pooled")
    if found.value is None:
        return {"reason": "all pairs have the same score"}
    draws = correlation_draws("spearman", x, y, level="pooled", samples=samples, seed=seed)
    bounds = percentile_bounds(draws)
    return {
        "spearman": found.value,
        "p_value": found.p_value,
        "low": bounds.low,
        "high": bounds.high,
    }
