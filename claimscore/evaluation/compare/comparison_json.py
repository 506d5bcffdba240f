"""A comparison as one JSON object, and the differences of all records as a table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore import __version__
from claimscore.atomic import write_bytes, write_text
from claimscore.csv_text import csv_text
from claimscore.errors import ConfigError
from claimscore.evaluation.compare.claim_changes import KINDS
from claimscore.evaluation.compare.comparison import (
    Comparison,
    MissingIds,
    RecordDetail,
    RunComparison,
)
from claimscore.evaluation.compare.comparison_tables import verdict_lines
from claimscore.evaluation.compare.gate import Gate
from claimscore.evaluation.compare.run_differences import MetricDifference
from claimscore.evaluation.compared_run import ComparedRun
from claimscore.stats.paired import ALPHA, EQUAL_WITHIN, LEVEL
from claimscore.stats.prediction_powered import CorrectedMean

JSON = dict[str, Any]

#: A higher one where a name in the object changed its meaning or went away.
FORMAT = 1

DIFFERENCES_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("baseline", "run", "id", "metric"), pl.String()),
    **dict.fromkeys(("baseline_value", "value", "difference"), pl.Float64()),
    **dict.fromkeys(("baseline_reason", "reason"), pl.String()),
}


def to_json(comparison: Comparison, gates: Sequence[Gate] = ()) -> JSON:
    """Plain values, with `gates` where there are conditions; a value that cannot be computed is
    null, and its row says why."""
    config = comparison.config
    return {
        "format": FORMAT,
        "claimscore": __version__,
        "baseline": _source(comparison.sources[0]),
        "method": {
            "level": LEVEL,
            "samples": config.samples,
            "seed": config.seed,
            "equal_within": EQUAL_WITHIN,
            "correction": "holm",
            "alpha": ALPHA,
            "corrected_p_values": comparison.family,
            "corrected_p_values_of_groups": comparison.group_family,
            "by": config.by,
            "top": config.top,
            "noise": config.noise,
        },
        "noise": [
            {"metric": metric, **_attributes(one.difference, "n", "mean", "low", "high", "same")}
            | _attributes(one.repeatability, "deviation", "limit")
            for metric, one in comparison.noise.items()
        ],
        "runs": [
            {**_run(run), "verdict": list(verdict_lines(comparison, run))}
            for run in comparison.runs
        ],
        **({"gates": [_gate(gate) for gate in gates]} if gates else {}),
    }


def _gate(gate: Gate) -> JSON:
    names = ("run", "n", "difference", "bound", "fails", "needed")
    return {"condition": gate.condition.text, **_attributes(gate, *names)}


def _source(run: ComparedRun) -> JSON:
    return {
        "label": run.label,
        "path": str(run.path),
        "records": run.n_records,
        "metrics": list(run.metrics),
        "notices": list(run.notices),
    }


def _run(run: RunComparison) -> JSON:
    return {
        **_source(run.b),
        "shared": run.n_shared,
        "missing": {"in_baseline": _missing(run.only_b), "in_run": _missing(run.only_a)},
        "settings": [{"name": one.name, "baseline": one.a, "run": one.b} for one in run.settings],
        "data": [{"column": column, "differ": n, "reason": why} for column, n, why in run.data],
        "metrics_only_in_baseline": list(run.only_metrics_a),
        "metrics_only_in_run": list(run.only_metrics_b),
        "differences": [_difference(row) for row in run.metrics],
        "groups": [{"group": row.group, **_difference(row)} for row in run.groups],
        "moved": [_record(record) for record in run.records],
        "claims": [
            {"table": table, "side": side} | {kind: counts[kind] for kind in KINDS}
            for (table, side), counts in run.changes.items()
        ],
        "by_labels": {name: _by_labels(one) for name, one in run.by_labels.items()},
    }


def _by_labels(mean: CorrectedMean) -> JSON:
    names = "corrected", "classical", "uncorrected"
    estimates = {name: getattr(mean, name)._asdict() for name in names}
    return {"records": mean.n_records, "labels": mean.n_labels, **estimates}


def _missing(ids: MissingIds) -> JSON:
    return {"count": ids.n, "first": list(ids.first)}


def _attributes(row: object, *names: str) -> JSON:
    """Attributes that have the same name in the object."""
    return {name: getattr(row, name) for name in names}


def _difference(row: MetricDifference) -> JSON:
    one, nulls = row.difference, row.nulls
    return {
        "metric": row.metric,
        "n": one.n,
        "baseline_mean": one.mean_a,
        "mean": one.mean_b,
        "difference": one.mean,
        **_attributes(one, "low", "high", "higher", "same", "lower"),
        "p": one.p_value,
        "p_holm": row.holm,
        **_attributes(one, "least_detectable", "deviation"),
        "records_needed": one.records_needed(),
        "verdict": row.verdict,
        "reason": one.reason,
        "nulls": {
            "baseline": nulls.a,
            "run": nulls.b,
            "either": nulls.either,
            "baseline_reasons": dict(nulls.reasons_a),
            "run_reasons": dict(nulls.reasons_b),
        },
    }


def _record(record: RecordDetail) -> JSON:
    return {
        "id": record.id,
        "moves": [
            {"metric": one.metric, "baseline": one.a, "run": one.b, "difference": one.difference}
            for one in record.moves
        ],
        "texts_differ": list(record.texts),
        "claims": [
            {"table": unit.table, "side": unit.side, "kind": unit.change.kind}
            | {"baseline": unit.change.a, "run": unit.change.b}
            for unit in record.changes
        ],
    }


def difference_rows(comparison: Comparison) -> pl.DataFrame:
    """A row a run, metric and shared record; null scores with their reasons."""
    parts = [pl.DataFrame(schema=DIFFERENCES_SCHEMA)]
    for run in comparison.runs:
        parts += [
            paired.rows.select(
                pl.lit(str(run.a.path)).alias("baseline"),
                pl.lit(str(run.b.path)).alias("run"),
                "id",
                pl.lit(paired.metric).alias("metric"),
                pl.col("a").alias("baseline_value"),
                pl.col("b").alias("value"),
                "difference",
                pl.col("a_reason").alias("baseline_reason"),
                pl.col("b_reason").alias("reason"),
            )
            for paired in run.paired
        ]
    return pl.concat(parts)


def check_differences_path(path: Path) -> None:
    """`ConfigError` where the ending is neither .csv nor .parquet."""
    if path.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--differences {path}: the name must end in .csv or .parquet")


def write_differences(comparison: Comparison, path: Path) -> None:
    """Write `difference_rows` as CSV or Parquet, as the ending says."""
    check_differences_path(path)
    rows = difference_rows(comparison)
    if path.suffix == ".csv":
        write_text(path, csv_text(rows))
        return
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    write_bytes(path, buffer.getbuffer())
