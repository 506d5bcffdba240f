"""Numbers of whole texts, with models that are functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.passes import PassResult
from claimscore.tables import TEXT_SCORES, TOKEN_SCORES
from tests.unit.pipeline.passes.test_model_pass import FakeEncoder, run_pass


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


TOKEN_OVER = ("summary", "references")
TOKEN_COLUMNS = ("id", "candidate_side", "reference_side", "reference_index", "f1")


def test_every_reference_has_a_row() -> None:
    """Places are those of the record's list; blank texts have no row."""
    records = pl.DataFrame(
        {
            "id": ["r1", "r2", "r3", "r4"],
            "summary": ["x", "x", " ", "x"],
            "references": [["y", " ", "x"], [], ["x"], None],
        },
        schema_overrides={"references": pl.List(pl.String())},
    )
    result = run_pass("token_scores", FakeEncoder(), records, over=TOKEN_OVER)
    rows = result.rows["token_scores"]
    assert rows.schema == pl.Schema(TOKEN_SCORES.schema)
    assert rows.select(TOKEN_COLUMNS).rows() == [
        ("r1", "summary", "references", 0, 0.5),
        ("r1", "summary", "references", 2, 1.0),
    ]
    assert result.failures.is_empty()


def test_sources_are_counted_and_single_texts_are_not() -> None:
    """One source has the place 0; two summaries have none."""
    records = pl.DataFrame({"id": ["r"], "summary": ["x"], "source": ["y"], "summary_a": ["x"]})
    for over, index in ((("summary", "source"), 0), (("summary", "a"), None)):
        rows = run_pass("token_scores", FakeEncoder(), records, over=over).rows["token_scores"]
        assert rows["reference_index"].to_list() == [index]


def test_a_failure_is_told_of_the_side_with_several_texts() -> None:
    """What fails against the references leaves a score against another summary alone."""
    records = pl.DataFrame(
        {"id": ["r1", "r2"], "summary": ["\u200b", "x"], "references": [["y", "z"], ["x"]]}
    )
    result = run_pass("token_scores", FakeEncoder(), records, over=TOKEN_OVER)
    assert result.rows["token_scores"]["id"].to_list() == ["r2"]
    assert result.failures.select("id", "stage", "side", "kind").rows() == [
        ("r1", "token_scores", "references", "no_tokens")
    ]


def test_a_chunk_without_any_text_is_no_error() -> None:
    """All rows are left out, none is made up."""
    records = pl.DataFrame({"id": ["r"], "summary": [""], "references": [["x"]]})
    result = run_pass("token_scores", FakeEncoder(), records, over=TOKEN_OVER)
    assert result.rows["token_scores"].schema == pl.Schema(TOKEN_SCORES.schema)
    assert result.rows["token_scores"].is_empty()
