"""A comparison as one JSON object, and the differences of all records as a table."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from claimscore import __version__
from claimscore.atomic import write_bytes, write_text
from claimscore.errors import ConfigError
from claimscore.evaluation.compare.cells import Cell, Judged, RecordCells
from claimscore.evaluation.compare.comparison import Comparison, MissingIds, RunComparison
from claimscore.evaluation.compare.details import RecordDetail
from claimscore.evaluation.compare.scores import MetricDifference, Move, Nulls
from claimscore.evaluation.compare.source import Source
from claimscore.evaluation.compare.units import Agreement
from claimscore.stats.paired import ALPHA, EQUAL_WITHIN, LEVEL

JSON = dict[str, Any]

#: A higher one where a name in the object changed its meaning or went away.
FORMAT = 1

DIFFERENCES_SCHEMA: dict[str, pl.DataType] = {
    "baseline": pl.String(),
    "run": pl.String(),
    "id": pl.String(),
    "metric": pl.String(),
    "baseline_value": pl.Float64(),
    "value": pl.Float64(),
    "difference": pl.Float64(),
    "baseline_reason": pl.String(),
    "reason": pl.String(),
}


def to_json(found: Comparison) -> JSON:
    """Plain values; what cannot be computed is null, and its row says why."""
    return {
        "format": FORMAT,
        "claimscore": __version__,
        "baseline": _source(found.sources[0]),
        "method": {
            "level": LEVEL,
            "samples": found.config.samples,
            "seed": found.config.seed,
            "equal_within": EQUAL_WITHIN,
            "correction": "holm",
            "alpha": ALPHA,
            "corrected_p_values": found.family,
            "corrected_p_values_of_groups": found.group_family,
            "similarity": found.similarity,
            "threshold": found.threshold,
            "by": found.config.by,
            "top": found.config.top,
        },
        "runs": [_run(run) for run in found.runs],
    }


def _source(source: Source) -> JSON:
    return {
        "label": source.label,
        "path": str(source.path),
        "records": source.n_records,
        "metrics": list(source.metrics),
        "notices": list(source.notices),
    }


def _run(run: RunComparison) -> JSON:
    return {
        **_source(run.b),
        "shared": run.n_shared,
        "missing": {
            "in_baseline": _missing(run.only_b),
            "in_run": _missing(run.only_a),
        },
        "settings": [
            {"name": name, "baseline": one, "run": other} for name, one, other in run.settings
        ],
        "data": [{"column": column, "differ": n, "reason": why} for column, n, why in run.data],
        "metrics_only_in_baseline": list(run.only_metrics_a),
        "metrics_only_in_run": list(run.only_metrics_b),
        "differences": [_difference(row) for row in run.metrics],
        "groups": [{"group": row.group, **_difference(row)} for row in run.groups],
        "moved": [_record(record) for record in run.records],
        "agreement": [_agreement(row) for row in run.agreement],
        "labels": [
            {
                "table": row.table,
                "records": row.records,
                "cells": row.cells,
                "flipped": row.flipped,
                "share_same": row.share_same,
                "counts": [
                    {"baseline": one, "run": other, "cells": n}
                    for (one, other), n in row.counts.items()
                ],
            }
            for row in run.labels
        ],
    }


def _missing(ids: MissingIds) -> JSON:
    return {"count": ids.n, "first": list(ids.first)}


def _difference(row: MetricDifference) -> JSON:
    found = row.difference
    return {
        "metric": row.metric,
        "n": found.n,
        "baseline_mean": found.mean_a,
        "mean": found.mean_b,
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "higher": found.higher,
        "same": found.same,
        "lower": found.lower,
        "p_bootstrap": found.p_bootstrap,
        "p_sign": found.p_sign,
        "p_wilcoxon": found.p_wilcoxon,
        "p_bootstrap_holm": row.holm_bootstrap,
        "p_sign_holm": row.holm_sign,
        "p_wilcoxon_holm": row.holm_wilcoxon,
        "d_z": found.d_z,
        "rank_biserial": found.rank_biserial,
        "verdict": row.verdict,
        "reason": found.reason,
        "nulls": _nulls(row.nulls),
    }


def _nulls(nulls: Nulls) -> JSON:
    return {
        "baseline": nulls.a,
        "run": nulls.b,
        "either": nulls.either,
        "baseline_reasons": dict(nulls.reasons_a),
        "run_reasons": dict(nulls.reasons_b),
    }


def _agreement(row: Agreement) -> JSON:
    return {
        "table": row.table,
        "side": row.side,
        "records": row.records,
        "only_in_baseline": row.records_a,
        "only_in_run": row.records_b,
        "identical_records": row.identical,
        "other_records": list(row.others),
        "baseline_units": row.units_a,
        "units": row.units_b,
        "baseline_per_sentence": row.per_sentence_a,
        "per_sentence": row.per_sentence_b,
        "same": row.same,
        "normalised": row.normalised,
        "changed": row.changed,
        "vanished": row.vanished,
        "appeared": row.appeared,
        "share_same": row.share_same,
        "share_matched": row.share_matched,
    }


def _record(record: RecordDetail) -> JSON:
    return {
        "id": record.id,
        "moves": [_move(move) for move in record.moves],
        "texts_differ": list(record.texts),
        "units": {
            table: [_unit(row) for row in rows.iter_rows(named=True) if row["kind"] != "same"]
            for table, rows in record.units.items()
        },
        "same_units": {
            table: rows.filter(pl.col("kind") == "same").height
            for table, rows in record.units.items()
        },
        "cells": [_cells(cells) for cells in record.cells],
    }


def _move(move: Move) -> JSON:
    return {
        "metric": move.metric,
        "baseline": move.a,
        "run": move.b,
        "difference": move.difference,
    }


def _unit(row: JSON) -> JSON:
    return {
        "side": row["side"],
        "kind": row["kind"],
        "baseline": row["a"],
        "run": row["b"],
        "similarity": row["similarity"],
    }


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


def _cell(cell: Cell, judged: Judged) -> JSON:
    return {
        **cell._asdict(),
        "label": judged.label,
        "probabilities": [round(p, 6) for p in judged.probabilities],
    }


def difference_rows(found: Comparison) -> pl.DataFrame:
    """A row a run, metric and shared record; null scores with their reasons."""
    return pl.concat([pl.DataFrame(schema=DIFFERENCES_SCHEMA), *_frames(found)])


def _frames(found: Comparison) -> Iterator[pl.DataFrame]:
    for run in found.runs:
        for paired in run.paired:
            yield paired.rows.select(
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


def check_differences_path(path: Path) -> None:
    """`ConfigError` where the ending is neither .csv nor .parquet."""
    if path.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--differences {path}: the name must end in .csv or .parquet")


def write_differences(found: Comparison, path: Path) -> None:
    """Write `difference_rows` as CSV or Parquet, as the ending says."""
    check_differences_path(path)
    rows = difference_rows(found)
    if path.suffix == ".csv":
        write_text(path, rows.write_csv())
        return
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    write_bytes(path, buffer.getbuffer())
