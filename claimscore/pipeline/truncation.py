"""How much of what the models were given was longer than they read, and so was cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import polars as pl

from claimscore.metrics.base import Metric
from claimscore.rundir import RunDirectory
from claimscore.tables import TABLES
from claimscore.types import JSON


class _Cut(NamedTuple):
    rows: int
    records: pl.Series


def truncations(directory: RunDirectory, metrics: Sequence[Metric]) -> dict[str, JSON]:
    """For each metric that read cut texts: ``rows`` of its tables and ``records`` with such rows.

    Rows whose model did not tell, and rows of older versions, do not count.
    """
    tables = [name for name, table in TABLES.items() if "truncated" in table.schema]

    @cache
    def of_step(step: str) -> _Cut:
        found = [
            directory.scan(table, step)
            .filter(pl.col("truncated"))
            .group_by("id")
            .len()
            .collect(engine="streaming")
            for table in tables
        ]
        ids = pl.concat([counts["id"] for counts in found]).unique()
        return _Cut(sum(int(counts["len"].sum()) for counts in found), ids)

    counts = {}
    for metric in metrics:
        cuts = [of_step(need.step) for need in dict.fromkeys(metric.needs.passes)]
        if rows := sum(cut.rows for cut in cuts):
            records = pl.concat([cut.records for cut in cuts]).n_unique()
            counts[metric.name] = {"rows": rows, "records": records}
    return counts
