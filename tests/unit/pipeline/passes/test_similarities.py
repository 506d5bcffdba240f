"""The similarity passes over a chunk, with an encoder that is a function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.passes import PassResult, similarities
from claimscore.pipeline.passes.similarities import cosines
from claimscore.tables import FACTS, SIMILARITIES
from tests.unit.pipeline.passes.test_model_pass import run_pass


class FakeEmbedder:
    """Length and number of vowels; texts with `huge` do not fit."""

    info = ModelInfo("fake", "r1", "float32")

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        huge = tuple(i for i, text in enumerate(texts) if "huge" in text)
        if huge:
            raise RejectedItemsError("a text does not fit", "out_of_memory", huge)
        self.texts = list(texts)
        if on_batch is not None:
            on_batch(len(texts))
        rows = [[len(text), sum(text.count(vowel) for vowel in "aeiou")] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 2)


def facts(**of_sides: Sequence[str]) -> pl.DataFrame:
    """`r1_source=["car fast"]`: the facts of a record's side."""
    return FACTS.frame(
        [
            {
                "id": name.partition("_")[0],
                "side": name.partition("_")[2],
                "index": i,
                "subject": fact.split()[0],
                "description": fact.split()[1],
            }
            for name, side_facts in of_sides.items()
            for i, fact in enumerate(side_facts)
        ]
    )


def run_facts(
    table: pl.DataFrame, ids: Sequence[str], broken: frozenset[str] = frozenset()
) -> tuple[PassResult, FakeEmbedder]:
    embedder = FakeEmbedder()
    result = run_pass(
        "fact_similarities",
        embedder,
        pl.DataFrame({"id": ids}),
        broken=broken,
        over=("source.fact", "summary.fact"),
        facts=table,
    )
    return result, embedder


def cells(result: PassResult) -> list[tuple[object, ...]]:
    frame = result.rows["similarities"]
    assert frame.schema == pl.Schema(SIMILARITIES.schema)
    return frame.select(
        "id", "row_side", "row_index", "column_side", "column_index", "similarity"
    ).rows()


def test_every_fact_of_the_sources_meets_every_fact_of_the_summary() -> None:
    """Row by row, with the model; what is embedded is `subject description`."""
    table = facts(r1_source=["car fast", "car good"], r1_summary=["car fast"])
    result, embedder = run_facts(table, ["r1"])
    assert embedder.texts == ["car fast", "car good", "car fast"]
    found = cells(result)
    assert [cell[:5] for cell in found] == [
        ("r1", "source", 0, "summary", 0),
        ("r1", "source", 1, "summary", 0),
    ]
    assert found[0][5] == pytest.approx(1, abs=1e-6)
    by_hand = (8 * 8 + 3 * 2) / ((64 + 9) * (64 + 4)) ** 0.5
    assert found[1][5] == pytest.approx(by_hand, abs=1e-6)
    frame = result.rows["similarities"]
    assert frame.select("unit", "model", "revision", "dtype").row(0) == (
        "fact",
        "fake",
        "r1",
        "float32",
    )
    assert result.failures.is_empty()


def test_rows_that_are_put_together_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Are those that are put together at once."""
    table = facts(
        r1_source=["a b", "c d"], r1_summary=["a e"], r2_source=["o u"], r2_summary=["a b", "c d"],
        r3_source=["a b"], r3_summary=["a b"],
    )  # fmt: skip
    whole, _ = run_facts(table, ["r1", "r2", "r3"])
    monkeypatch.setattr(similarities, "ROWS_AT_ONCE", 2)
    found, _ = run_facts(table, ["r1", "r2", "r3"])
    assert found.rows["similarities"].equals(whole.rows["similarities"])
    assert len(cells(found)) == 5


def test_a_side_without_facts_has_no_cells() -> None:
    """There is nothing to compare; the metric says so."""
    result, _ = run_facts(facts(r1_source=["car fast"]), ["r1", "r2"])
    assert cells(result) == []


def test_records_are_in_the_order_of_the_input_and_broken_ones_left_out() -> None:
    """Whatever the order of the table of facts."""
    table = facts(
        r1_source=["a b"], r2_source=["a b"], r3_source=["a b"],
        r3_summary=["a b"], r2_summary=["a b"], r1_summary=["a b"],
    )  # fmt: skip
    result, _ = run_facts(table, ["r2", "r3", "r1"], broken=frozenset({"r3"}))
    assert [cell[0] for cell in cells(result)] == ["r2", "r1"]


def test_a_text_that_does_not_fit_costs_its_record_alone() -> None:
    """A failure row with the reason; the other records have their cells."""
    table = facts(
        r1_source=["huge car"], r1_summary=["car big"], r2_source=["a b"], r2_summary=["a b"]
    )
    result, _ = run_facts(table, ["r1", "r2"])
    assert [cell[0] for cell in cells(result)] == ["r2"]
    assert result.failures.select("id", "stage", "kind").rows() == [
        ("r1", "fact_similarities", "out_of_memory")
    ]


def run_texts(over: tuple[str, str], records: pl.DataFrame) -> PassResult:
    return run_pass("text_similarities", FakeEmbedder(), records, over=over)


RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2", "r3"],
        "summary": ["It is big. It is blue.", " ", "Fine."],
        "references": [["One.", " ", "Three. Four."], ["x"], []],
    }
)


def test_texts_keep_their_place_in_the_record() -> None:
    """A blank reference has no cell, and the next one keeps its number."""
    found = cells(run_texts(("summary.text", "references.text"), RECORDS))
    assert [cell[:5] for cell in found] == [
        ("r1", "summary", 0, "references", 0),
        ("r1", "summary", 0, "references", 2),
    ]


def test_sentences_are_counted_through_all_texts_of_a_side() -> None:
    """Two of the summary with three of the references."""
    found = cells(run_texts(("summary.sentence", "references.sentence"), RECORDS))
    assert [(cell[2], cell[4]) for cell in found] == [(i, j) for i in range(2) for j in range(3)]


def test_a_side_can_meet_itself() -> None:
    """The cosine of a text with itself is one, and the matrix is symmetric."""
    found = cells(run_texts(("summary.sentence", "summary.sentence"), RECORDS))
    matrix = {cell[:5]: cell[5] for cell in found}
    assert len(matrix) == len(found) == 5
    assert matrix["r1", "summary", 0, "summary", 0] == pytest.approx(1, abs=1e-6)


def test_no_texts_at_all() -> None:
    """Empty tables of the right schema."""
    result = run_texts(("summary.text", "references.text"), RECORDS.clear())
    assert cells(result) == []
    assert list(result.rows) == ["similarities"]


def test_a_zero_vector_is_like_nothing() -> None:
    """It has no direction; and no rounding leaves [-1, 1]."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.zeros((1, 5)), rng.normal(size=(50, 5))]).astype(np.float32)
    found = cosines(rows, rows)
    assert not found[0].any()
    assert np.abs(found).max() <= 1
    assert np.abs(np.diag(found)[1:] - 1).max() <= 1e-6
