"""BERTScore of a summary against several references, with an encoder that is a function."""

from __future__ import annotations

import polars as pl

from claimscore.tables import TOKEN_SCORES
from tests.pipeline.passes.test_passes import FakeEncoder, run_pass

OVER = ("summary", "references")
COLUMNS = ("id", "candidate_side", "reference_side", "reference_index", "f1")


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
    result = run_pass("token_scores", FakeEncoder(), records, over=OVER)
    rows = result.rows["token_scores"]
    assert rows.schema == pl.Schema(TOKEN_SCORES.schema)
    assert rows.select(COLUMNS).rows() == [
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
    result = run_pass("token_scores", FakeEncoder(), records, over=OVER)
    assert result.rows["token_scores"]["id"].to_list() == ["r2"]
    assert result.failures.select("id", "stage", "side", "kind").rows() == [
        ("r1", "token_scores", "references", "no_tokens")
    ]


def test_a_chunk_without_any_text_is_no_error() -> None:
    """All rows are left out, none is made up."""
    records = pl.DataFrame({"id": ["r"], "summary": [""], "references": [["x"]]})
    result = run_pass("token_scores", FakeEncoder(), records, over=OVER)
    assert result.rows["token_scores"].schema == pl.Schema(TOKEN_SCORES.schema)
    assert result.rows["token_scores"].is_empty()
