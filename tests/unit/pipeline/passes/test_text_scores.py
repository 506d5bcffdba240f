"""Numbers of whole texts, with models that are functions."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from claimscore.pipeline.passes import PassResult
from tests.support.pass_doubles import FakeModel, run_pass

RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2", "r3"],
        "summary": ["abc", " ", "huge"],
        "references": [["xy", "", "z"], ["q"], ["q"]],
        "source": [["one", " ", "three"], ["x"], ["x"]],
    }
)
COLUMNS = ("side", "given_side", "given_index", "name", "value")


def run(kind: str, *over: str, model: FakeModel | None = None) -> PassResult:
    """The pass; what the model rejects is told of the side that has several texts."""
    result = run_pass(kind, model or FakeModel(), RECORDS, over=over)
    sides = [side for side in over if side not in ("summary", "a", "b")]
    side = sides[-1] if sides and kind != "ls" else None
    assert result.failures.select("id", "side").rows() == [("r3", side)]
    return result


def values(result: PassResult) -> list[tuple[Any, ...]]:
    rows = result.rows["text_scores"]
    assert rows["id"].unique().to_list() == ["r1"]
    return rows.select(COLUMNS).rows()


def test_perplexity_of_each_summary() -> None:
    assert values(run("perplexity", "summary")) == [
        ("summary", None, None, "log_likelihood", -3.0),
        ("summary", None, None, "tokens", 3.0),
    ]


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        (
            ("references", "summary"),
            [("summary", "references", 0, -3.0), ("summary", "references", 2, -3.0)],
        ),
        (
            ("summary", "references"),
            [("references", "summary", 0, -2.0), ("references", "summary", 2, -1.0)],
        ),
    ],
)
def test_bart_score_counts_the_side_with_several_texts(
    over: tuple[str, str], expected: list[Any]
) -> None:
    found = values(run("bart_score", *over))
    assert [row[:3] + row[4:] for row in found if row[3] == "log_likelihood"] == expected


def test_every_reference_has_a_bertscore() -> None:
    rows = run("token_scores", "summary", "references").rows["token_scores"]
    columns = ("candidate_side", "reference_side", "reference_index", "f1", "baseline_f1", "layer")
    assert rows.select(columns).rows() == [
        ("summary", "references", 0, 0.5, 0.3, 3),
        ("summary", "references", 2, 0.5, 0.3, 3),
    ]


def test_sources_are_counted_and_single_texts_are_not() -> None:
    records = pl.DataFrame({"id": ["r"], "summary": ["x"], "source": ["y"], "summary_a": ["x"]})
    for over, index in ((("summary", "source"), 0), (("summary", "a"), None)):
        rows = run_pass("token_scores", FakeModel(), records, over=over).rows["token_scores"]
        assert rows["reference_index"].to_list() == [index]


# LS_Score


def test_a_summary_beside_every_text_of_the_source() -> None:
    """The likelihood once a summary, the cosine once a text; blank texts are left out."""
    assert values(run("ls", "source", "summary")) == [
        ("summary", None, None, "linguistic", -3.0),
        ("summary", None, None, "linguistic_inner", -4.0),
        ("summary", None, None, "tokens", 3.0),
        ("summary", None, None, "cut", 0.0),
        ("summary", "source", 0, "semantic", 0.3),
        ("source", None, 0, "tokens", 3.0),
        ("source", None, 0, "cut", 0.0),
        ("summary", "source", 1, "semantic", 0.5),
        ("source", None, 1, "tokens", 5.0),
        ("source", None, 1, "cut", 0.0),
    ]


def test_the_padded_pass_gives_the_codes_linguistic_score() -> None:
    """(−400/3 + 200)/100, as `code_linguistic` says."""
    ((*_, name, value),) = values(run("ls_padded", "summary"))
    assert (name, value) == ("linguistic_code", pytest.approx((-400 / 3 + 200) / 100))


def test_a_linear_head_has_one_score_a_pair_and_no_padded_rows() -> None:
    model = FakeModel("bert-linear")
    names = {row[3] for row in values(run("ls", "source", "summary", model=model))}
    assert names == {"linear", "tokens", "cut"}
    padded = run_pass("ls_padded", model, RECORDS, over=("summary",))
    assert padded.rows["text_scores"].is_empty()
