"""NLI over claims and blocks: which pairs, in which order, in the memory of a part of them."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.passes import PASSES, PassInput, PassResult, pair_nli
from claimscore.pipeline.passes.pass_counts import count_items, count_tokens
from claimscore.tables import BLOCK_NLI
from tests.unit.pipeline.passes.test_model_pass import FakeClassifier, claims, run_nli, run_pass

#: Claims of the two sides of some records.
SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5)


def table_of(sizes: Sequence[tuple[int, int]]) -> pl.DataFrame:
    texts = {
        f"r{number}_{side}": [f"{side}{number} {'x' * i}" for i in range(n)]
        for number, of_record in enumerate(sizes)
        for side, n in zip("ab", of_record, strict=True)
    }
    return claims(**texts)


def ids_of(sizes: Sequence[tuple[int, int]]) -> list[str]:
    return [f"r{number}" for number in range(len(sizes))]


@given(SIZES, st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_blocks_leave_no_trace(sizes: list[tuple[int, int]], at_once: int) -> None:
    """Whatever a block holds: the rows of one call, in the same order, each pair once."""
    table, ids = table_of(sizes), ids_of(sizes)
    whole, _, once = run_nli(table, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_nli, "PAIRS_AT_ONCE", at_once)
        rows, failures, classifier = run_nli(table, ids)
    assert rows.equals(whole)
    assert failures.is_empty()
    assert all(len(call) <= at_once for call in classifier.calls)
    assert [pair for call in classifier.calls for pair in call] == once.calls[0]


def test_a_chunk_of_a_block_is_one_call() -> None:
    """So its batches are what they were: 64 records with ten claims a side."""
    sizes = [(10, 10)] * 64
    _, _, classifier = run_nli(table_of(sizes), ids_of(sizes))
    assert [len(call) for call in classifier.calls] == [12_800]


def test_a_rejected_pair_in_a_later_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs its own record, wherever it stands."""
    monkeypatch.setattr(pair_nli, "PAIRS_AT_ONCE", 3)
    table = claims(
        r0_a=["x", "y"], r0_b=["z", "zz"], r1_a=["x", "huge"], r1_b=["y"], r2_a=["x"], r2_b=["y"]
    )
    rows, failures, _ = run_nli(table, ["r0", "r1", "r2"])
    assert failures.select("id", "stage", "kind").rows() == [("r1", "nli", "out_of_memory")]
    assert rows["id"].to_list() == ["r0"] * 8 + ["r2"] * 2


def test_progress_is_that_of_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener hears of all pairs, then of how many are done, and of no block."""
    monkeypatch.setattr(pair_nli, "PAIRS_AT_ONCE", 5)
    heard: list[int] = []

    def listen(n: int) -> OnBatch:
        heard.append(n)
        return heard.append

    table = table_of([(2, 3)])
    need = PassRequirement("nli", ("a", "b"))
    records = pl.DataFrame({"id": ["r0"]})
    PASSES["nli"].compute(
        PassInput(FakeClassifier(), need, records, lambda _: table, frozenset(), listen)
    )
    assert heard == [12, 5, 10, 12]


def test_what_is_counted_is_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a block: the queue is told how large a chunk is."""
    table, records = table_of([(4, 5), (2, 2)]), pl.DataFrame({"id": ["r0", "r1"]})
    counted = (PASSES["nli"], PassRequirement("nli", ("a", "b")), records, lambda _: table)
    tokens = count_tokens(*counted)
    monkeypatch.setattr(pair_nli, "PAIRS_AT_ONCE", 8)
    assert count_items(*counted) == 48
    assert count_tokens(*counted) == pytest.approx(tokens, rel=0.2)


def test_blocks_of_a_document_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`block_nli` goes the same way."""
    record = {
        "id": "r",
        "source": "It was warm. It was raining. It was very cold.",
        "summary": "It rained a lot. It was so warm.",
    }
    over = ("source.sentence", "summary.sentence")
    whole = run_pass("block_nli", FakeClassifier(), pl.DataFrame([record]), over=over)
    monkeypatch.setattr(pair_nli, "PAIRS_AT_ONCE", 4)
    classifier = FakeClassifier()
    found = run_pass("block_nli", classifier, pl.DataFrame([record]), over=over)
    assert found.rows["block_nli"].equals(whole.rows["block_nli"])
    assert [len(call) for call in classifier.calls] == [4, 2]


class _Classifier:
    """As little as a classifier can be: it keeps nothing of what it is asked."""

    info = ModelInfo("stub", "r1", "float32")

    def classify(self, pairs: Sequence[Any], *, on_batch: OnBatch) -> NDArray[np.float32]:
        on_batch(len(pairs))
        return np.zeros((len(pairs), 3), dtype=np.float32)


def test_a_record_of_500_claims_a_side_among_others() -> None:
    """Half a million pairs: the texts of all at once would be 48 MB, and their indices 24."""
    sizes = [(500, 500), *[(3, 3)] * 10]
    table = table_of(sizes)
    tracemalloc.start()
    try:
        result = run_pass("nli", _Classifier(), pl.DataFrame({"id": ids_of(sizes)}), claims=table)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.rows["nli"].height == 500_180
    assert peak < 32 * 2**20


SENTENCES = ("source.sentence", "summary.sentence")


def run(
    *records: dict[str, object], over: tuple[str, str] = SENTENCES
) -> tuple[PassResult, FakeClassifier]:
    classifier = FakeClassifier()
    frame = pl.DataFrame(list(records), infer_schema_length=None)
    return run_pass("block_nli", classifier, frame, over=over), classifier


def test_every_block_meets_every_sentence() -> None:
    """The document is the premise; rows are premise by premise."""
    result, classifier = run(
        {"id": "r", "source": "It was warm. It was raining.", "summary": "It rained a lot. It did."}
    )
    assert classifier.calls == [
        [("It was warm.", "It rained a lot."), ("It was raining.", "It rained a lot.")]
    ]
    rows = result.rows["block_nli"]
    assert rows.schema == pl.Schema(BLOCK_NLI.schema)
    assert rows.select("premise_index", "hypothesis_index").rows() == [(0, 0), (1, 0)]
    assert rows["entailment"].round(2).to_list() == pytest.approx([0.12, 0.15])
    assert rows.select(pl.col("^.*_(side|cut)$")).unique().rows() == [
        ("source", "sentence", "summary", "sentence")
    ]


def test_both_sides_have_cuts_of_their_own() -> None:
    """`a-b` of the metric: pairs of sentences against the whole summary, however short."""
    over = ("source.2sents_disjoint", "summary.document")
    result, classifier = run(
        {"id": "r", "source": "It was so. It was not. It is dark.", "summary": "Yes."}, over=over
    )
    assert classifier.calls == [[("It was not. It is dark.", "Yes.")]]
    cuts = result.rows["block_nli"].select("premise_cut", "hypothesis_cut").rows()
    assert cuts == [("2sents_disjoint", "document")]


def test_several_documents_follow_each_other() -> None:
    """Their blocks are those of one document, in the order given."""
    documents = ["It was warm. It was raining.", " ", "It was very cold."]
    result, classifier = run({"id": "r", "sources": documents, "summary": "It was a day."})
    assert [premise for premise, _ in classifier.calls[0]] == [
        "It was warm.",
        "It was raining.",
        "It was very cold.",
    ]
    assert result.rows["block_nli"]["premise_index"].to_list() == [0, 1, 2]


def test_records_without_blocks_have_no_rows() -> None:
    """Blank, missing and too short texts; the metric says which."""
    result, _ = run(
        {"id": "1", "source": None, "summary": "It was a day."},
        {"id": "2", "source": "It was a day.", "summary": "  "},
        {"id": "3", "source": "It was a day.", "summary": "Short."},
        {"id": "4", "source": "It was a day.", "summary": "It was a day."},
    )
    assert result.rows["block_nli"]["id"].to_list() == ["4"]
    assert result.failures.is_empty()


def test_a_chunk_without_any_block_is_an_empty_table() -> None:
    """With the schema of the others."""
    result, _ = run({"id": "1", "source": "", "summary": ""})
    assert result.rows["block_nli"].schema == pl.Schema(BLOCK_NLI.schema)
    assert result.rows["block_nli"].is_empty()


def test_a_pair_that_does_not_fit_costs_its_record_alone() -> None:
    """A failure row; the others are judged again without it."""
    result, classifier = run(
        {"id": "1", "source": "This is a huge text.", "summary": "It was a day."},
        {"id": "2", "source": "It was a day.", "summary": "It was a day."},
    )
    assert result.rows["block_nli"]["id"].to_list() == ["2"]
    assert result.failures.select("id", "stage", "kind").rows() == [
        ("1", "block_nli", "out_of_memory")
    ]
    assert len(classifier.calls) == 2


def test_ten_thousand_sentences_take_seconds() -> None:
    """Of a document the first hundred blocks, unless all are asked for."""
    text = " ".join(f"This is sentence number {i} of many." for i in range(10_000))
    started = time.process_time()
    first, _ = run({"id": "r", "source": text, "summary": "It was a day."})
    all_over = ("source.sentence_all", "summary.sentence_all")
    whole, _ = run({"id": "r", "source": text, "summary": "It was a day."}, over=all_over)
    assert time.process_time() - started < 20
    assert first.rows["block_nli"].height == 100
    assert whole.rows["block_nli"].height == 10_000
