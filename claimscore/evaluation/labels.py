"""`claimscore evaluate labels`: a verifier beside people, and a metric's mean corrected by them.

Labels are of claims (supported, contradicted, unmentioned). Agreement is Cohen's κ (1960, A
Coefficient of Agreement for Nominal Scales).
κ, precision and recall are of all items: a label counts for as many items as it was drawn for.
Intervals resample records.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from claimscore.config import path_or_address
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.inputs import open_run
from claimscore.evaluation.label_items import (
    Items,
    Rater,
    metric_of,
    one_policy,
    open_items,
    people,
    read_labels,
)
from claimscore.evaluation.result import (
    EvaluationResult,
    Mark,
    Row,
    Section,
    fixed,
    interval_columns,
    with_interval,
)
from claimscore.metrics.support import VERDICTS
from claimscore.option import argument, check_least, option
from claimscore.stats.bootstrap import Array, ratio, resamples
from claimscore.stats.prediction_powered import (
    CorrectedMean,
    Estimate,
    corrected_mean,
    share_bounds,
)

#: Labels of fewer records show no interval of κ.
KAPPA_RECORDS = 30

HALF_AS_WIDE = "an interval half as wide takes about four times the labels, and enough records"

#: Steps of the probability in the reliability diagram.
BINS = 5

MEANS: dict[str, pl.DataType] = {
    "estimate": pl.String(),
    **dict.fromkeys(("value", "low", "high"), pl.Float64()),
}
AGREEMENT: dict[str, pl.DataType] = {
    **dict.fromkeys(("one", "other"), pl.String()),
    "n": pl.Int64(),
    "measure": pl.String(),
    **interval_columns("value"),
}
BY_VERDICT: dict[str, pl.DataType] = {
    "verdict": pl.String(),
    **dict.fromkeys(("n_said", "n_people"), pl.Int64()),
    **interval_columns("precision", "recall"),
}
RELIABILITY: dict[str, pl.DataType] = {
    **dict.fromkeys(("from", "to"), pl.Float64()),
    "n": pl.Int64(),
    "probability": pl.Float64(),
    **interval_columns("supported"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class LabelsConfig:
    """A run and the labels that people gave its items."""

    run: str = argument(metavar="RUN", help="Run directory that the items were drawn from.")
    labels: tuple[str, ...] = argument(
        metavar="LABELS...", help="Labels, a file a person, as `claimscore label` wrote them."
    )
    samples: int = option(1000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")

    def __post_init__(self) -> None:
        if not self.labels:
            raise ConfigError("name at least one file of labels")
        check_least(self, samples=1, seed=0)


def _means_section(
    estimates: Mapping[str, Estimate],
    mean: CorrectedMean,
    items: Items,
    policy: str,
    samples: int,
) -> Section:
    title = f"Mean of {items.metric}"
    shown = {name: fixed(one.value, 3) for name, one in estimates.items()}
    notes = (
        f"{mean.n_labels:,} of {items.rows.height:,} claims have a label; 95 % intervals over "
        f"{mean.n_records:,} records ({samples:,} samples)",
        "uncorrected: the metric's mean, with the bias of its judge",
        HALF_AS_WIDE,
        *([f"the labels follow policy {policy}"] if policy else ()),
    )
    return Section(
        title,
        ("mean", "value", "95 % interval"),
        [(name, shown[name], _interval(one.low, one.high)) for name, one in estimates.items()],
        notes,
        {title: [Mark(name, *one, shown[name]) for name, one in estimates.items()]},
        line=mean.corrected.value,
    )


def _agreement_section(agreement: pl.DataFrame, n_ties: int) -> Section:
    cells = [
        (f"{row['one']} and {row['other']}", row["measure"], f"{row['n']:,}", interval_cell(row))
        for row in agreement.iter_rows(named=True)
    ]
    notes = [f"{n_ties:,} labels left out: people were divided"] if n_ties else []
    notes.append(f"κ has an interval from {KAPPA_RECORDS} records on, if labels disagree")
    return Section("Agreement", ("agreement", "measure", "n", "value"), cells, tuple(notes))


def _verdicts_section(by_verdict: pl.DataFrame) -> Section:
    return Section(
        "The verifier by verdict",
        ("verdict", "said", "by people", "precision", "recall"),
        [
            (
                row["verdict"],
                f"{row['n_said']:,}",
                f"{row['n_people']:,}",
                interval_cell(row, "precision"),
                interval_cell(row, "recall"),
            )
            for row in by_verdict.iter_rows(named=True)
        ],
        ("said and by people: labelled claims; precision and recall: of all claims",),
    )


def _reliability_section(reliability: pl.DataFrame) -> Section:
    return Section(
        "Reliability",
        ("probability", "n", "mean probability", "supported by people"),
        [
            (
                f"{row['from']:.1f} to {row['to']:.1f}",
                f"{row['n']:,}",
                fixed(row["probability"], 2),
                interval_cell(row, "supported"),
            )
            for row in reliability.iter_rows(named=True)
        ],
    )


def interval_cell(row: Row, name: str = "value", digits: int = 2) -> str:
    """A value, with its interval where there is one."""
    interval = _interval(row[f"{name}_low"], row[f"{name}_high"])
    return fixed(row[name], digits, "not defined") + (f" {interval}" if interval else "")


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def evaluate_labels(config: LabelsConfig) -> EvaluationResult:
    """Read the labels and compare them with the run.

    `ConfigError` where the run has no scores of the labelled metric, `InputError` where a file is
    not of this run, or nothing is labelled.
    """
    items = open_items(open_run("A", path_or_address(config.run)), metric_of(config.labels[0]))
    raters = read_labels(config.labels, items)
    policy, labels = one_policy(raters), people(raters)
    if labels.is_empty():
        raise InputError(f"{', '.join(config.labels)}: no row has a label yet")
    ids = items.rows["id"].unique(maintain_order=True)
    sample = items.sample(labels, ids)
    drawn = config.samples, config.seed
    both = labels.join(
        items.rows, on=["id", "claim_position"], nulls_equal=True, maintain_order="left"
    )
    mean = corrected_mean(sample, samples=config.samples, seed=config.seed)
    estimates = {
        "corrected by the labels": mean.corrected,
        "of the labels alone": mean.classical,
        "uncorrected": mean.uncorrected,
    }
    means = [{"estimate": name, **one._asdict()} for name, one in estimates.items()]
    agreement = [_rater_row(one, other, *drawn) for one, other in _pairs(raters, both)]
    tables = {
        "means": pl.DataFrame(means, schema=MEANS),
        "agreement": pl.DataFrame(agreement, schema=AGREEMENT),
        "by_verdict": pl.DataFrame(list(_by_verdict(both, *drawn)), schema=BY_VERDICT),
        "reliability": pl.DataFrame(list(_reliability(both, *drawn)), schema=RELIABILITY),
    }
    n_ties = both["label"].null_count()
    sections = [
        _means_section(estimates, mean, items, policy, config.samples),
        _agreement_section(tables["agreement"], n_ties),
        _verdicts_section(tables["by_verdict"]),
        _reliability_section(tables["reliability"]),
    ]
    return EvaluationResult(
        name="labels",
        title="Labels of people",
        config=config,
        tables=tables,
        facts={
            "metric": items.metric,
            "policy": policy or None,
            "items": items.rows.height,
            "records": mean.n_records,
            "labels": mean.n_labels,
            "ties": n_ties,
        },
        sections=sections,
    )


def _pairs(raters: Sequence[Rater], both: pl.DataFrame) -> Iterator[tuple[Rater, Rater]]:
    """Every two people, then all people and the verifier."""
    yield from itertools.combinations(raters, 2)
    keys = "id", "claim_position", "weight"
    judged = both.select(*keys, label="verdict", value="value_right")
    name = "the people" if len(raters) > 1 else raters[0].name
    yield Rater(name, both.select(*keys, "label", "value")), Rater("the verifier", judged)


def _rater_row(one: Rater, other: Rater, samples: int, seed: int) -> Row:
    """κ of two lists of labels, over the items that both have."""
    rows = one.rows.join(other.rows, on=["id", "claim_position"], nulls_equal=True)
    rows = rows.drop_nulls("label")
    row = {"one": one.name, "other": other.name, "n": rows.height, "measure": "κ"}
    return row | _with_kappa(_cells(rows, "label", "label_right"), samples, seed)


def _cells(rows: pl.DataFrame, one: str, other: str) -> Array:
    """Weights by record and by what one and the other said, ``[records, verdict, verdict]``."""
    names = rows["id"].unique(maintain_order=True).to_list()
    places = {name: place for place, name in enumerate(names)}
    cells = np.zeros((len(names), len(VERDICTS), len(VERDICTS)))
    for id, first, second, weight in rows.select("id", one, other, "weight").iter_rows():
        cells[places[id], VERDICTS.index(first), VERDICTS.index(second)] += weight
    return cells


def _kappa(cells: Array) -> Array:
    """Cohen's κ: agreement beyond chance, as a share of what there could be."""
    total = cells.sum((1, 2))
    same = ratio(np.trace(cells, axis1=1, axis2=2), total)
    chance = ratio((cells.sum(1) * cells.sum(2)).sum(1), total**2)
    return ratio(same - chance, 1 - chance)


def _with_kappa(cells: Array, samples: int, seed: int) -> dict[str, float | None]:
    """κ of the sums over records, with the percentiles of draws of records where labels are enough
    and do not all agree."""
    sums = cells.sum(0)
    value = float(_kappa(sums[None])[0])
    drawn = [np.tensordot(weights, cells, 1) for weights in resamples(len(cells), samples, seed)]
    row = with_interval("value", value, _kappa(np.concatenate(drawn)))
    agree = np.trace(sums) == sums.sum()
    few = len(cells) < KAPPA_RECORDS
    return row | ({"value_low": None, "value_high": None} if few or agree else {})


def _with_share(
    name: str, hits: Array, weight: Array, samples: int, seed: int
) -> dict[str, float | None]:
    """A share of what was labelled, sums of records ``[records]``, with its interval."""
    if not weight.sum():
        return {}
    low, high = share_bounds(hits, weight, samples=samples, seed=seed)
    return {name: float(hits.sum() / weight.sum()), f"{name}_low": low, f"{name}_high": high}


def _by_verdict(both: pl.DataFrame, samples: int, seed: int) -> Iterator[Row]:
    rows = both.drop_nulls("label")
    cells = _cells(rows, "verdict", "label")
    for place, verdict in enumerate(VERDICTS):
        hits, by_judge, by_people = (
            cells[:, place, place],
            cells[:, place, :].sum(1),
            cells[:, :, place].sum(1),
        )
        yield {
            "verdict": verdict,
            "n_said": rows.filter(verdict=verdict).height,
            "n_people": rows.filter(label=verdict).height,
            **_with_share("precision", hits, by_judge, samples, seed),
            **_with_share("recall", hits, by_people, samples, seed),
        }


def _reliability(both: pl.DataFrame, samples: int, seed: int) -> Iterator[Row]:
    """The share that people find supported, by the probability of support."""
    step = (both["predicted"] * BINS).floor().clip(0, BINS - 1).cast(pl.Int64)
    for at in range(BINS):
        rows = both.filter(step == at)
        row: dict[str, Any] = {"from": at / BINS, "to": (at + 1) / BINS, "n": rows.height}
        if rows.height:
            row["probability"] = float(np.average(rows["predicted"], weights=rows["weight"]))
            hits = (pl.col("value") * pl.col("weight")).sum()
            sums = rows.group_by("id", maintain_order=True).agg(hits, weight=pl.col("weight").sum())
            by_record = sums["value"].to_numpy(), sums["weight"].to_numpy()
            row |= _with_share("supported", *by_record, samples, seed)
        yield row
