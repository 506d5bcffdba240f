"""Small rated tables and run directories."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from claimscore.runs import RunDirectory
from claimscore.tables import SCORES

Row = Mapping[str, Any]


def write_jsonl(path: Path, rows: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rated_rows(n_cases: int = 8, n_systems: int = 5, seed: int = 0) -> list[dict[str, Any]]:
    """`good` follows the ratings closely, `poor` hardly; ratings in steps of one half."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(n_cases, n_systems)) + np.arange(n_systems)
    return [
        {
            "id": f"{case}-{system}",
            "article": f"c{case}",
            "system": f"s{system}",
            "good": float(quality[case, system] + rng.normal() / 4),
            "poor": float(rng.normal()),
            "ratings": {
                "fluency": round(2 * float(quality[case, system])) / 2,
                "relevance": round(2 * float(quality[case, system] + rng.normal())) / 2,
            },
        }
        for case in range(n_cases)
        for system in range(n_systems)
    ]


def labelled_rows(n: int = 60, seed: int = 0) -> list[dict[str, Any]]:
    """Two data sets with both splits; `good` tells the labels apart better than `poor`."""
    rng = np.random.default_rng(seed)
    return [
        {
            "dataset": dataset,
            "split": split,
            "label": label,
            "good": float(label + rng.normal() / 2),
            "poor": float(label + 4 * rng.normal()),
        }
        for dataset in ("frank", "mine")
        for split in ("val", "test")
        for label in (int(number) for number in rng.integers(0, 2, n))
    ]


def write_run(path: Path, rows: Iterable[Row], metrics: Iterable[str]) -> Path:
    """A finished run whose scores are those columns of the rows; all else are its records."""
    rows, metrics = list(rows), list(metrics)
    records = [{k: v for k, v in row.items() if k not in metrics} for row in rows]
    scores = [
        {"id": row["id"], "metric": metric, "value": row[metric], "components": '{"half": 0.5}'}
        for row in reversed(rows)  # a run's scores may stand in any order
        for metric in metrics
    ]
    with RunDirectory(path) as run:
        run.check_settings({"seed": 0})
        run.write_parts(0, "records", {"records": pl.DataFrame(records)})
        run.write_scores([SCORES.frame(scores)])
    return path
