"""Two or more runs that share ids, the first of them the baseline of the others."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.config import path_or_address
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.claim_changes import UnitChange, change_counts, unit_changes
from claimscore.evaluation.inputs import ComparedRun, finite_number, groups, open_run
from claimscore.evaluation.label_items import corrected_differences
from claimscore.evaluation.run_differences import (
    DataDifference,
    MetricDifference,
    Move,
    SettingDifference,
    by_group,
    corrected,
    data_differences,
    equal_texts,
    metric_difference,
    most_moved,
    paired_scores,
    setting_differences,
)
from claimscore.metrics import load_metric
from claimscore.option import argument, check_least, option
from claimscore.stats.gates import Gate, Limit, judged
from claimscore.stats.prediction_powered import CorrectedMean

#: So many ids that one run lacks are named.
NAMED_IDS = 5

RUN_LABELS = string.ascii_uppercase

_CONDITION = re.compile(r"\s*(\S+?)\s*([<>])\s*(\S+)\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class CompareConfig:
    """Settings; no `metrics` are all that both have. `runs` are folders or files."""

    runs: tuple[str, ...] = argument(
        metavar="BASELINE RUN...", help="Run directories, or their scores.parquet."
    )
    metrics: tuple[str, ...] = option(
        (),
        kind="metrics",
        short="m",
        help="Metrics; default: all that the runs share.",
    )
    by: str | None = option(
        None, metavar="COLUMN", help="Compare also by the values of a column of the records."
    )
    top: int = option(5, help="Number of records to show of each metric.")
    samples: int = option(10_000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")

    def __post_init__(self) -> None:
        if len(self.runs) < 2:
            raise ConfigError("name at least two runs to compare; the first is the baseline")
        if len(self.runs) > len(RUN_LABELS):
            raise ConfigError(f"at most {len(RUN_LABELS)} runs are compared at once")
        check_least(self, samples=20, seed=0, top=0)


class MissingIds(NamedTuple):
    """Ids that one run has and the other lacks: how many, and the first few."""

    n: int
    first: tuple[str, ...]


class RecordDetail(NamedTuple):
    """A record that moved, and its claims and facts that are not the same in both runs."""

    id: str
    changes: tuple[UnitChange, ...]


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """One run against the baseline: `b` and `a`.

    `n_equal` of the shared records have the same texts in both; `changes` counts the claims and
    facts of these by table and side, and by `claim_changes.KINDS`. `higher_is` says what a higher
    score of a metric is; `paired` has the rows of each metric as `PAIRED_SCHEMA`; `by_labels` the
    differences corrected by labels of people, where both runs have them.
    """

    a: ComparedRun
    b: ComparedRun
    n_shared: int
    n_equal: int
    higher_is: Mapping[str, str]
    only_a: MissingIds
    only_b: MissingIds
    settings: tuple[SettingDifference, ...]
    data: tuple[DataDifference, ...]
    metrics: tuple[MetricDifference, ...]
    only_metrics_a: tuple[str, ...]
    only_metrics_b: tuple[str, ...]
    groups: tuple[MetricDifference, ...]
    moves: tuple[Move, ...]
    records: tuple[RecordDetail, ...]
    changes: Mapping[tuple[str, str], Mapping[str, int]]
    paired: Mapping[str, pl.DataFrame]
    by_labels: Mapping[str, CorrectedMean]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All runs against the first."""

    config: CompareConfig
    sources: tuple[ComparedRun, ...]
    runs: tuple[RunComparison, ...]


def compare(config: CompareConfig) -> Comparison:
    """Compare every run with the first.

    `ConfigError` where a run cannot be read or has not what was asked for, `InputError` where two
    runs share no id.
    """
    paths = map(path_or_address, config.runs)
    sources = [open_run(label, path) for label, path in zip(RUN_LABELS, paths, strict=False)]
    for metric, source in itertools.product(config.metrics, sources):
        if metric not in source.metrics:
            known = ", ".join(source.metrics) or "none"
            raise ConfigError(f"{source.path}: no scores of {metric}; there are: {known}")
    parts = [_compare(config, sources[0], other) for other in sources[1:]]
    return Comparison(config, tuple(sources), tuple(_corrected(parts)))


def _corrected(parts: Sequence[RunComparison]) -> Iterator[RunComparison]:
    """With p-values corrected over all metrics of all runs, and over all their groups."""
    metrics = iter(corrected([row for part in parts for row in part.metrics]))
    of_groups = iter(corrected([row for part in parts for row in part.groups]))
    for part in parts:
        yield dataclasses.replace(
            part,
            metrics=tuple(itertools.islice(metrics, len(part.metrics))),
            groups=tuple(itertools.islice(of_groups, len(part.groups))),
        )


def _compare(config: CompareConfig, a: ComparedRun, b: ComparedRun) -> RunComparison:
    ids = a.ids.filter(a.ids.is_in(b.ids.implode()))
    if ids.is_empty():
        raise InputError(
            f"{a.path} and {b.path} share no ids: {_example(a)}, {_example(b)}; only runs over the "
            "same records can be compared"
        )
    shared = [metric for metric in a.metrics if metric in b.metrics]
    chosen = [metric for metric in shared if not config.metrics or metric in config.metrics]
    paired = {metric: paired_scores(a, b, metric, ids) for metric in chosen}
    drawn = config.samples, config.seed
    of_groups: list[MetricDifference] = []
    if config.by is not None:
        named = groups(config.by, (a, b), ids)
        of_groups = [row for pair in paired.items() for row in by_group(*pair, named, *drawn)]
    moves = [most_moved(*pair, config.top) for pair in paired.items()]
    data = data_differences(a, b, ids)
    equal = equal_texts(a, b, ids, data)
    return RunComparison(
        a=a,
        b=b,
        n_shared=ids.len(),
        n_equal=equal.len(),
        higher_is={metric: _known(metric, a, b).higher_is for metric in chosen},
        only_a=_missing(a, b),
        only_b=_missing(b, a),
        settings=tuple(setting_differences(a, b)),
        data=tuple(data),
        metrics=tuple(metric_difference(*pair, *drawn) for pair in paired.items()),
        only_metrics_a=tuple(metric for metric in a.metrics if metric not in b.metrics),
        only_metrics_b=tuple(metric for metric in b.metrics if metric not in a.metrics),
        groups=tuple(of_groups),
        moves=tuple(itertools.chain.from_iterable(moves)),
        records=tuple(_details(a, b, moves, equal)),
        changes=change_counts(a, b, equal),
        paired=paired,
        by_labels=corrected_differences(a, b, chosen, config.samples, config.seed),
    )


def _example(run: ComparedRun) -> str:
    return f"{run.ids[0]!r} in {run.label}" if run.n_records else f"none in {run.label}"


class _Known(NamedTuple):
    """What a higher score of a metric is, and the range of its scores."""

    higher_is: str = ""
    range: tuple[float, float] = (-math.inf, math.inf)


def _known(metric: str, *runs: ComparedRun) -> _Known:
    """As a run or claimscore knows."""
    for run in runs:
        summary = run.directory.summary() if run.directory else {}
        if said := summary.get("metrics", {}).get(metric, {}).get("higher_is"):
            least, most = summary["metrics"][metric].get("range", (None, None))
            ends = -math.inf if least is None else least, math.inf if most is None else most
            return _Known(str(said), ends)
    with contextlib.suppress(ConfigError):
        known = load_metric(metric.partition(":")[0])
        return _Known(known.higher_is, known.range)
    return _Known()


def _missing(a: ComparedRun, b: ComparedRun) -> MissingIds:
    """Ids of `a` that `b` lacks."""
    alone = a.ids.filter(~a.ids.is_in(b.ids.implode()))
    return MissingIds(alone.len(), tuple(alone.head(NAMED_IDS).to_list()))


def _details(
    a: ComparedRun, b: ComparedRun, moves: Sequence[Sequence[Move]], equal: pl.Series
) -> Iterator[RecordDetail]:
    """The records of all metrics: those that moved most of each first, then the second of each;
    with changes of their claims where their texts are `equal`."""
    in_turn = filter(None, itertools.chain(*itertools.zip_longest(*moves)))
    ids = pl.Series("id", list(dict.fromkeys(move.id for move in in_turn)), dtype=pl.String)
    changes: dict[str, list[UnitChange]] = {}
    for unit in unit_changes(a, b, ids.filter(ids.is_in(equal.implode()))):
        if unit.change.kind != "same":
            changes.setdefault(unit.id, []).append(unit)
    return (RecordDetail(id, tuple(changes.get(id, ()))) for id in ids)


# Gates: limits of the differences under which a build fails


def parse_limit(text: str) -> Limit:
    """`caspr > +2` or `claim-f1 < -0.01`; `ConfigError` for anything else."""
    condition = _CONDITION.fullmatch(text)
    value = finite_number(condition[3]) if condition else None
    if condition is None or value is None:
        raise ConfigError(
            f"--fail-if {text!r}: write a metric, > or <, and a difference, as in "
            "'faithfulness < -0.02'"
        )
    return Limit(" ".join(text.split()), condition[1], condition[2] == ">", value)


def gates(comparison: Comparison, limits: Sequence[Limit]) -> Iterator[Gate]:
    """Each limit for each run.

    `ConfigError` where a run does not share the metric, or too few records have both scores: a gate
    that cannot be judged is no pass.
    """
    config = comparison.config
    for limit in limits:
        for run in comparison.runs:
            if limit.metric not in run.paired:
                known = ", ".join(run.paired) or "none"
                raise ConfigError(
                    f"--fail-if {limit.text!r}: {run.b.path} and the baseline share no metric "
                    f"{limit.metric}; they share: {known}"
                )
            d = run.paired[limit.metric]["difference"].drop_nulls().to_numpy()
            least, most = _known(limit.metric, run.a, run.b).range
            if abs(limit.value) > most - least:
                raise ConfigError(
                    f"--fail-if {limit.text!r}: scores of {limit.metric} are from {least:g} to "
                    f"{most:g}, and no difference is as large"
                )
            how: Any = {"samples": config.samples, "seed": config.seed, "range": (least, most)}
            gate = judged(limit, d, run=str(run.b.path), **how)
            if gate.fails is None:
                raise ConfigError(f"--fail-if {gate}")
            yield gate
