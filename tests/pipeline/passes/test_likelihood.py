"""Likelihoods of a chunk's texts, with models that are functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.passes import PassResult
from claimscore.tables import TEXT_SCORES
from tests.pipeline.passes.test_passes import run_pass


class FakeLM:
    """A token a character, each of probability 1/e; texts with `huge` do not fit."""

    info = ModelInfo("fake", "r1", "float32")

    def log_likelihoods(
        self, *columns: Sequence[str], on_batch: object = None
    ) -> NDArray[np.float64]:
        huge = tuple(i for i, row in enumerate(zip(*columns, strict=True)) if "huge" in row)
        if huge:
            raise RejectedItemsError("does not fit", "out_of_memory", huge)
        lengths = [float(len(text)) for text in columns[-1]]
        return np.array([[-length, length] for length in lengths]).reshape(-1, 2)


RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2", "r3"],
        "summary": ["abc", " ", "huge"],
        "references": [["xy", "", "z"], ["q"], ["q"]],
    }
)
COLUMNS = ("id", "measure", "side", "given_side", "given_index", "name", "value")


def values(result: PassResult) -> list[tuple[object, ...]]:
    rows = result.rows["text_scores"]
    assert rows.schema == pl.Schema(TEXT_SCORES.schema)
    return rows.filter(name="log_likelihood").select(COLUMNS).rows()


def test_perplexity_of_each_summary() -> None:
    """Blank texts have no row; what the model rejects costs its own record."""
    result = run_pass("perplexity", FakeLM(), RECORDS, over=("summary",))
    expected = ("r1", "perplexity", "summary", None, None, "log_likelihood", -3.0)
    assert values(result) == [expected]
    assert result.rows["text_scores"]["value"].to_list() == [-3.0, 3.0]
    assert result.failures.select("id", "stage", "side", "kind").rows() == [
        ("r3", "perplexity", None, "out_of_memory")
    ]


def test_bart_score_counts_the_side_with_several_texts() -> None:
    """The scored side is the second, the index that of the references, whichever they are."""
    there = run_pass("bart_score", FakeLM(), RECORDS, over=("references", "summary"))
    assert [row[2:5] + row[6:] for row in values(there)] == [
        ("summary", "references", 0, -3.0),
        ("summary", "references", 2, -3.0),
    ]
    back = run_pass("bart_score", FakeLM(), RECORDS, over=("summary", "references"))
    assert [row[2:5] + row[6:] for row in values(back)] == [
        ("references", "summary", 0, -2.0),
        ("references", "summary", 2, -1.0),
    ]
    assert back.failures.select("id", "stage", "side").rows() == [
        ("r3", "bart_score", "references")
    ]


def test_a_chunk_without_any_text_has_no_rows() -> None:
    """Nothing is asked, nothing is made up."""
    records = RECORDS.filter(pl.col("id") == "r2")
    for kind, over in (("perplexity", ("summary",)), ("bart_score", ("summary", "references"))):
        assert values(run_pass(kind, FakeLM(), records, over=over)) == []
