"""The similarity passes over a chunk, with an encoder that is a function."""

import numpy as np
import polars as pl
import pytest

from claimscore.pipeline.passes.similarities import cosines
from tests.support.pass_doubles import FakeModel, facts, run_pass

CELL = ("id", "row_side", "row_index", "column_side", "column_index", "similarity")


def test_every_fact_of_the_sources_meets_every_fact_of_the_summary() -> None:
    """Row by row; what is embedded is `subject description`."""
    table = facts(r1_source=["car fast", "car good"], r1_summary=["car fast"])
    embedder, records = FakeModel(), pl.DataFrame({"id": ["r1"]})
    over = ("source.fact", "summary.fact")
    result = run_pass("fact_similarities", embedder, records, over=over, facts=table)
    assert embedder.calls == [["car fast", "car good", "car fast"]]
    by_hand = (8 * 8 + 3 * 2) / ((64 + 9) * (64 + 4)) ** 0.5
    assert result.rows["similarities"].select(CELL).rows() == [
        ("r1", "source", 0, "summary", 0, pytest.approx(1, abs=1e-6)),
        ("r1", "source", 1, "summary", 0, pytest.approx(by_hand, abs=1e-6)),
    ]
    assert set(result.rows["similarities"]["unit"]) == {"fact"}


def test_a_zero_vector_is_like_nothing() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.zeros((1, 5)), rng.normal(size=(50, 5))]).astype(np.float32)
    found = cosines(rows, rows)
    assert not found[0].any()
    assert np.abs(found).max() <= 1
    assert np.abs(np.diag(found)[1:] - 1).max() <= 1e-6
