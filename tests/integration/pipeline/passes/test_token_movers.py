"""The mover passes over a chunk, with an encoder that is a function."""

from __future__ import annotations

import math

import polars as pl
import pytest

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.passes import PASSES, PassResult
from claimscore.pipeline.passes.pass_counts import count_items
from claimscore.pipeline.passes.token_movers import GROUP_PAIRS, scored_tokens, word_vectors
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


def test_words_and_tokens_that_are_read() -> None:
    (text,) = FakeModel().token_layers(["ab ! ba"], 1)
    assert word_vectors(text).tolist() == [[0.5, 0.5, 0.0]] * 2
    (text,) = FakeModel().token_layers(["ab ! ba"], 3)
    assert scored_tokens(text).tolist() == [[1.0, 0.0, 0.0] * 3, [0.0, 1.0, 0.0] * 3]


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


def test_groups_change_no_number_and_texts_are_read_once() -> None:
    n = 2 * GROUP_PAIRS + 1
    result, encoder = run("mover_score", ["a"] * n, [["ab b"]] * n)
    assert encoder.calls == [["a", "ab b"]] * 3
    values = {(name, value) for (_, _, name), value in numbers(result).items()}
    assert len(values) == 4


@both_kinds
def test_groups_are_counted_whole(kind: str) -> None:
    """The first group stands for the others: 100 pairs of twenty tokens."""
    summaries = [f"{i:032}" for i in range(100)]
    given = (PASSES[kind], PassRequirement(kind, OVER))
    records = chunk(summaries, [[f"{i + 100:032}"] for i in range(100)])
    assert count_items(*given, records, lambda _: pl.DataFrame()) == 100
