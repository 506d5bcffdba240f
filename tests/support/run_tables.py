"""Small frames of the tables of a run, for tests of run directories."""

import polars as pl

from claimscore.tables import CLAIMS, FAILURES, SCORES


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
