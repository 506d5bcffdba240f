"""The mover passes over a chunk, with an encoder that is a function."""

import math

import polars as pl
import pytest

from claimscore.pipeline.passes import PassResult
from claimscore.pipeline.passes.token_movers import GROUP_PAIRS
from claimscore.tables import TEXT_SCORES
from tests.support.pass_doubles import FakeModel, run_pass

pytest.importorskip("ot", reason="the extra movers is not installed")

OVER = ("summary", "references")
both_kinds = pytest.mark.parametrize("kind", ["sentence_movers", "mover_score"])


def chunk(summaries: list[str], references: list[list[str]]) -> pl.DataFrame:
    ids = [f"r{i}" for i in range(len(summaries))]
    return pl.DataFrame({"id": ids, "summary": summaries, "references": references})


def run(
    kind: str, summaries: list[str], references: list[list[str]]
) -> tuple[PassResult, FakeModel]:
    encoder = FakeModel()
    return run_pass(kind, encoder, chunk(summaries, references), over=OVER), encoder


def numbers(result: PassResult) -> dict[tuple[str, int, str], float | None]:
    frame = result.rows["text_scores"]
    assert frame.schema == pl.Schema(TEXT_SCORES.schema)
    rows = frame.select("id", "given_index", "name", "value").rows()
    return {(record, index, name): value for record, index, name, value in rows}


def test_sentence_movers_by_hand() -> None:
    """Sentences are embedded one by one; of two words, half the weight moves √2."""
    result, encoder = run("sentence_movers", ["Rooms are big. It is."], [["a"]])
    assert encoder.calls == [["Rooms are big.", "It is.", "a"]]
    assert result.failures.is_empty()
    assert {name for _, _, name in numbers(result)} == {"wms", "sms", "s+wms"}
    result, _ = run("sentence_movers", ["a b"], [["a"]])
    assert numbers(result)["r0", 0, "wms"] == pytest.approx(math.exp(-math.sqrt(2) / 2))


def test_mover_score_by_hand() -> None:
    """Equal texts 1; a vowel against a consonant √2 apart, 2 when squared."""
    result, _ = run("mover_score", ["a", "a"], [["a", "b"], []])
    apart = {"paper-1": 1 - math.sqrt(2), "paper-2": 1 - math.sqrt(2), "code-1": -1, "code-2": -1}
    assert numbers(result) == {
        **{("r0", 0, name): pytest.approx(1) for name in apart},
        **{("r0", 1, name): pytest.approx(value) for name, value in apart.items()},
    }


@both_kinds
def test_a_text_without_a_word_has_null(kind: str) -> None:
    """Not a number; blank texts have no row at all, and the next keeps its place."""
    result, _ = run(kind, ["a"], [["!", " ", "a"]])
    found = numbers(result)
    assert {index for _, index, _ in found} == {0, 2}
    assert all((value is None) == (index == 0) for (_, index, _), value in found.items())
    result, encoder = run(kind, ["a"], [[" "]])
    assert (numbers(result), encoder.calls) == ({}, [])


@both_kinds
def test_a_text_that_does_not_fit_costs_its_record_alone(kind: str) -> None:
    """Also where the record's pairs are in two groups."""
    references = [["a"], ["b"] * (GROUP_PAIRS - 1) + ["huge"], ["a"]]
    result, _ = run(kind, ["a", "a", "a"], references)
    assert {record for record, _, _ in numbers(result)} == {"r0", "r2"}
    assert result.failures.select("id", "stage", "side", "kind").rows() == [
        ("r1", kind, "references", "out_of_memory")
    ]
