"""A comparison as one JSON object, and the differences of all records as a table."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore import __version__
from claimscore.atomic import write_bytes, write_text
from claimscore.csv_text import csv_text
from claimscore.errors import ConfigError
from claimscore.evaluation.compare.claim_matching import Agreement
from claimscore.evaluation.compare.comparison import (
    Comparison,
    MissingIds,
    RecordDetail,
    RunComparison,
)
from claimscore.evaluation.compare.comparison_tables import verdict_lines
from claimscore.evaluation.compare.gate import Gate
from claimscore.evaluation.compare.nli_cells import (
    CellTexts,
    JudgedLabel,
    LabelAgreement,
    RecordCells,
)
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


def to_json(found: Comparison, gates: Sequence[Gate] = ()) -> JSON:
    """Plain values, with `gates` where there are conditions; a value that cannot be computed is
    null, and its row says why."""
    config = found.config
    return {
        "format": FORMAT,
        "claimscore": __version__,
        "baseline": _source(found.sources[0]),
        "method": {
            "level": LEVEL,
            "samples": config.samples,
            "seed": config.seed,
            "equal_within": EQUAL_WITHIN,
            "correction": "holm",
            "alpha": ALPHA,
            "corrected_p_values": found.family,
            "corrected_p_values_of_groups": found.group_family,
            "similarity": found.similarity,
            "threshold": found.threshold,
            "by": config.by,
            "top": config.top,
            "noise": config.noise,
        },
        "noise": [
            {"metric": metric, **_attributes(one.difference, "n", "mean", "low", "high", "same")}
            | _attributes(one.repeatability, "deviation", "limit")
            for metric, one in found.noise.items()
        ],
        "runs": [{**_run(run), "verdict": list(verdict_lines(found, run))} for run in found.runs],
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
        "agreement": [_agreement(row) for row in run.agreement],
        "labels": [_labels(row) for row in run.labels],
        "by_labels": {name: _by_labels(one) for name, one in run.by_labels.items()},
    }


def _by_labels(found: CorrectedMean) -> JSON:
    names = "corrected", "classical", "uncorrected"
    estimates = {name: getattr(found, name)._asdict() for name in names}
    return {"records": found.n_records, "labels": found.n_labels, **estimates}


def _missing(ids: MissingIds) -> JSON:
    return {"count": ids.n, "first": list(ids.first)}


def _attributes(row: object, *names: str) -> JSON:
    """Attributes that have the same name in the object."""
    return {name: getattr(row, name) for name in names}


def _difference(row: MetricDifference) -> JSON:
    found, nulls = row.difference, row.nulls
    return {
        "metric": row.metric,
        "n": found.n,
        "baseline_mean": found.mean_a,
        "mean": found.mean_b,
        "difference": found.mean,
        **_attributes(found, "low", "high", "higher", "same", "lower"),
        **_attributes(found, "p_bootstrap", "p_sign", "p_wilcoxon"),
        "p_bootstrap_holm": row.holm_bootstrap,
        "p_sign_holm": row.holm_sign,
        "p_wilcoxon_holm": row.holm_wilcoxon,
        **_attributes(found, "d_z", "rank_biserial", "least_detectable", "deviation"),
        "records_needed": found.records_needed(),
        "verdict": row.verdict,
        "reason": found.reason,
        "nulls": {
            "baseline": nulls.a,
            "run": nulls.b,
            "either": nulls.either,
            "baseline_reasons": dict(nulls.reasons_a),
            "run_reasons": dict(nulls.reasons_b),
        },
    }


def _agreement(row: Agreement) -> JSON:
    return {
        **_attributes(row, "table", "side", "records"),
        "only_in_baseline": row.records_a,
        "only_in_run": row.records_b,
        "identical_records": row.identical,
        "other_records": list(row.others),
        "baseline_units": row.units_a,
        "units": row.units_b,
        "baseline_per_sentence": row.per_sentence_a,
        "per_sentence": row.per_sentence_b,
        **_attributes(row, "same", "normalised", "changed", "vanished", "appeared"),
        **_attributes(row, "share_same", "share_matched"),
    }


def _labels(row: LabelAgreement) -> JSON:
    counts = [{"baseline": one, "run": other, "cells": n} for (one, other), n in row.counts.items()]
    names = ("table", "records", "cells", "flipped", "share_same")
    return {**_attributes(row, *names), "counts": counts}


def _record(record: RecordDetail) -> JSON:
    moves = (
        {"metric": move.metric, "baseline": move.a, "run": move.b, "difference": move.difference}
        for move in record.moves
    )
    units = {table: rows.to_dicts() for table, rows in record.units.items()}
    return {
        "id": record.id,
        "moves": list(moves),
        "texts_differ": list(record.texts),
        "units": {
            table: [_unit(row) for row in rows if row["kind"] != "same"]
            for table, rows in units.items()
        },
        "same_units": {
            table: sum(row["kind"] == "same" for row in rows) for table, rows in units.items()
        },
        "cells": [_cells(cells) for cells in record.cells],
    }


def _unit(row: Mapping[str, Any]) -> JSON:
    both = {"baseline": row["a"], "run": row["b"]}
    return {"side": row["side"], "kind": row["kind"], **both, "similarity": row["similarity"]}


def _cells(cells: RecordCells) -> JSON:
    return {
        "table": cells.table,
        "shared": cells.shared,
        "flipped": [
            {
                "reworded": flip.reworded,
                "baseline": _cell(flip.cell, flip.a),
                "run": _cell(flip.cell_b, flip.b),
            }
            for flip in cells.flips
        ],
        "only_in_baseline": dict(cells.only_a),
        "only_in_run": dict(cells.only_b),
    }


def _cell(cell: CellTexts, judged: JudgedLabel) -> JSON:
    probabilities = [round(p, 6) for p in judged.probabilities]
    return {**cell._asdict(), "label": judged.label, "probabilities": probabilities}


def difference_rows(found: Comparison) -> pl.DataFrame:
    """A row a run, metric and shared record; null scores with their reasons."""
    parts = [pl.DataFrame(schema=DIFFERENCES_SCHEMA)]
    for run in found.runs:
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


def write_differences(found: Comparison, path: Path) -> None:
    """Write `difference_rows` as CSV or Parquet, as the ending says."""
    check_differences_path(path)
    rows = difference_rows(found)
    if path.suffix == ".csv":
        write_text(path, csv_text(rows))
        return
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    write_bytes(path, buffer.getbuffer())
