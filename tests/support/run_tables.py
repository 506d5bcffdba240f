"""Small frames of the tables of a run, and stores in memory, for tests of run directories."""

from __future__ import annotations

import polars as pl
from obstore.store import MemoryStore

from claimscore.storage.objects import ObjectStorage
from claimscore.storage.store_address import Address
from claimscore.tables import CLAIMS, FAILURES, SCORES


def store_in_memory() -> ObjectStorage:
    """An object store without a server, empty."""
    return ObjectStorage(MemoryStore(), Address("s3", "s3://memory", "run"))


def claims(*ids: str) -> pl.DataFrame:
    """One claim a record."""
    return CLAIMS.frame([{"id": name, "side": "a", "text": f"text of {name}"} for name in ids])


def failures(*ids: str) -> pl.DataFrame:
    """One failure a record."""
    return FAILURES.frame([{"id": name, "stage": "decompose", "kind": "parse"} for name in ids])


def scores(start: int, stop: int) -> pl.DataFrame:
    """The scores of the records `start` to `stop`."""
    return SCORES.frame(
        [
            {"id": f"r{i}", "metric": "caspr", "value": i / 7, "components": f'{{"n": {i}}}'}
            for i in range(start, stop)
        ]
    )
