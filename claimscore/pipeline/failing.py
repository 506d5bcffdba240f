"""What failed in a run, counted without holding all of it: a million records may have failed."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from claimscore.rundir import RunDirectory
from claimscore.types import JSON


class Failed(NamedTuple):
    """How many records have a failure, and how many failures there are of which stage and kind,
    each with the message of the first id."""

    records: int
    by_kind: list[JSON]


def failed(directory: RunDirectory) -> Failed:
    """Go through the failures of all finished steps."""
    rows = directory.scan("failures").select("id", "stage", "kind", "message")
    groups = (
        rows.group_by("stage", "kind")
        .agg(count=pl.len(), id=pl.col("id").min())
        .sort("stage", "kind")
        .collect(engine="streaming")
    )
    examples = {
        (stage, kind): message
        for stage, kind, message in rows.join(groups.lazy(), on=("stage", "kind", "id"), how="semi")
        .select("stage", "kind", "message")
        .unique(("stage", "kind"), keep="first", maintain_order=True)
        .collect()
        .iter_rows()
    }
    n_records = rows.select(pl.col("id").n_unique()).collect(engine="streaming").item()
    by_kind = [
        {"stage": stage, "kind": kind, "count": count, "example": examples[stage, kind]}
        for stage, kind, count in groups.select("stage", "kind", "count").iter_rows()
    ]
    return Failed(n_records, by_kind)


def failures_by_kind(directory: RunDirectory) -> list[JSON]:
    """How many failures there are of which stage and kind."""
    rows = directory.scan("failures").group_by("stage", "kind").len("count")
    return rows.sort("stage", "kind").collect(engine="streaming").to_dicts()
