"""Two or more runs that share ids, the first of them the baseline of the others."""

from __future__ import annotations

import dataclasses
import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.config import path_or_address
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.compare.cells import LabelAgreement, label_agreement
from claimscore.evaluation.compare.details import RecordDetail, record_details
from claimscore.evaluation.compare.differing import (
    DataDifference,
    SettingDifference,
    data_differences,
    setting_differences,
)
from claimscore.evaluation.compare.scores import (
    MetricDifference,
    Move,
    Paired,
    by_group,
    corrected,
    metric_difference,
    most_moved,
    paired_scores,
)
from claimscore.evaluation.compare.similarity import (
    EmbeddingSimilarity,
    Similarity,
    TrigramSimilarity,
)
from claimscore.evaluation.compare.source import Source, groups, open_source
from claimscore.evaluation.compare.units import (
    BATCH,
    TABLES,
    Agreement,
    agreements,
    identical,
    read_units,
)
from claimscore.pipeline.encoders.protocols import Embedder
from claimscore.runs import retry_if_compacted

#: So many ids that one run lacks are named.
NAMED_IDS = 5

LABELS = string.ascii_uppercase

OnTexts = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, slots=True)
class CompareConfig:
    """Settings; no `metrics` are all that both have. `runs` are folders or files."""

    runs: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    by: str | None = None
    top: int = 5
    samples: int = 10_000
    seed: int = 0
    threshold: float | None = None

    def __post_init__(self) -> None:
        if len(self.runs) < 2:
            raise ConfigError("name at least two runs to compare; the first is the baseline")
        if len(self.runs) > len(LABELS):
            raise ConfigError(f"at most {len(LABELS)} runs are compared at once")
        if self.samples < 1:
            raise ConfigError(f"--samples must be at least 1, not {self.samples}")
        if self.seed < 0:
            raise ConfigError(f"--seed must be at least 0, not {self.seed}")
        if self.top < 0:
            raise ConfigError(f"--top must be at least 0, not {self.top}")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ConfigError(f"--threshold must be above 0 and at most 1, not {self.threshold}")


class MissingIds(NamedTuple):
    """Ids that one run has and the other lacks: how many, and the first few."""

    n: int
    first: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """One run against the baseline: `b` and `a`."""

    a: Source
    b: Source
    n_shared: int
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
    agreement: tuple[Agreement, ...]
    labels: tuple[LabelAgreement, ...]
    paired: tuple[Paired, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All runs against the first; `similarity` says how reworded claims are found."""

    config: CompareConfig
    sources: tuple[Source, ...]
    runs: tuple[RunComparison, ...]
    similarity: str
    threshold: float

    @property
    def family(self) -> int:
        """How many p-values of the metrics' table are corrected together."""
        rows = (row for run in self.runs for row in run.metrics)
        return sum(row.difference.p_bootstrap is not None for row in rows)

    @property
    def group_family(self) -> int:
        rows = (row for run in self.runs for row in run.groups)
        return sum(row.difference.p_bootstrap is not None for row in rows)


@retry_if_compacted
def compare(
    config: CompareConfig,
    embedder: Embedder | None = None,
    on_texts: OnTexts | None = None,
) -> Comparison:
    """Compare every run with the first.

    `embedder` finds reworded claims by the cosine of their vectors, else their letters do;
    `on_texts` hears how many of how many texts it has done. `ConfigError` where a run cannot be
    read or has not what was asked for, `InputError` where two runs share no id.
    """
    similarity = _similarity(config, embedder, on_texts)
    sources = [
        open_source(label, path_or_address(run))
        for label, run in zip(LABELS, config.runs, strict=False)
    ]
    _check_metrics(config, sources)
    parts = [_compare(config, sources[0], other, similarity) for other in sources[1:]]
    return Comparison(
        config,
        tuple(sources),
        tuple(_corrected(parts)),
        similarity.name,
        similarity.threshold,
    )


def _similarity(
    config: CompareConfig, embedder: Embedder | None, on_texts: OnTexts | None
) -> Similarity:
    given = {} if config.threshold is None else {"threshold": config.threshold}
    if embedder is None:
        return TrigramSimilarity(**given)
    return EmbeddingSimilarity(embedder, **given, on_texts=on_texts)


def _check_metrics(config: CompareConfig, sources: Sequence[Source]) -> None:
    for metric in config.metrics:
        for source in sources:
            if metric not in source.metrics:
                known = ", ".join(source.metrics) or "none"
                raise ConfigError(f"{source.path}: no scores of {metric}; there are: {known}")


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


def _compare(config: CompareConfig, a: Source, b: Source, similarity: Similarity) -> RunComparison:
    ids = a.ids.filter(a.ids.is_in(b.ids.implode()))
    if ids.is_empty():
        raise InputError(
            f"{a.path} and {b.path} share no ids: {_example(a)}, {_example(b)}; only runs over the "
            "same records can be compared"
        )
    shared = [metric for metric in a.metrics if metric in b.metrics]
    chosen = [metric for metric in shared if not config.metrics or metric in config.metrics]
    paired = [paired_scores(a, b, metric, ids) for metric in chosen]
    drawn = config.samples, config.seed
    of_groups: list[MetricDifference] = []
    if config.by is not None:
        named = groups(config.by, (a, b), ids)
        of_groups = [row for one in paired for row in by_group(one, named, *drawn)]
    moves = [most_moved(one, config.top) for one in paired]
    data = data_differences(a, b, ids)
    return RunComparison(
        a,
        b,
        ids.len(),
        _missing(a, b),
        _missing(b, a),
        tuple(setting_differences(a, b)),
        tuple(data),
        tuple(metric_difference(one, *drawn) for one in paired),
        tuple(metric for metric in a.metrics if metric not in b.metrics),
        tuple(metric for metric in b.metrics if metric not in a.metrics),
        tuple(of_groups),
        tuple(move for of_metric in moves for move in of_metric),
        tuple(record_details(a, b, moves, data, similarity)),
        tuple(row for table in TABLES for row in agreements(a, b, table, ids, similarity)),
        tuple(_label_agreements(a, b, ids, data)),
        tuple(paired),
    )


def _example(source: Source) -> str:
    return f"{source.ids[0]!r} in {source.label}" if source.n_records else f"none in {source.label}"


def _missing(a: Source, b: Source) -> MissingIds:
    """Ids of `a` that `b` lacks."""
    alone = a.ids.filter(~a.ids.is_in(b.ids.implode()))
    return MissingIds(alone.len(), tuple(alone.head(NAMED_IDS).to_list()))


def _label_agreements(
    a: Source, b: Source, ids: pl.Series, data: Sequence[DataDifference]
) -> Iterator[LabelAgreement]:
    """Over the records with the same claims; for blocks of texts, if the texts are the same."""
    same: dict[str, pl.Series] = {"nli": _same_units(a, b, ids)}
    if not data:
        same["block_nli"] = ids
    for table, records in same.items():
        found = label_agreement(a, b, table, records)
        if found is not None and found.cells:
            yield found


def _same_units(a: Source, b: Source, ids: pl.Series) -> pl.Series:
    """The records of which both runs have the same claims on every side."""
    if a.table("nli") is None or b.table("nli") is None:
        return ids.clear()
    parts = [ids.clear()]
    for start in range(0, ids.len(), BATCH):
        some = ids.slice(start, BATCH)
        units = [read_units(source, "claims", some) for source in (a, b)]
        sides = pl.concat([one.select("id", "side") for one in units]).unique()
        unequal = sides.join(identical(*units), on=["id", "side"], how="anti")["id"]
        parts.append(some.filter(~some.is_in(unequal.implode())))
    return pl.concat(parts)
