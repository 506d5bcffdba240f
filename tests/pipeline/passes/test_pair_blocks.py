"""Pairs are judged by blocks: the same rows as at once, in the memory of a block."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.metrics.base import PassNeed
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.passes import PASSES, PassInput, pair_blocks
from claimscore.pipeline.passes.counting import count_items, count_tokens
from tests.pipeline.passes.test_passes import FakeClassifier, claims, run_nli, run_pass

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
        patch.setattr(pair_blocks, "PAIRS_AT_ONCE", at_once)
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
    monkeypatch.setattr(pair_blocks, "PAIRS_AT_ONCE", 3)
    table = claims(
        r0_a=["x", "y"], r0_b=["z", "zz"], r1_a=["x", "huge"], r1_b=["y"], r2_a=["x"], r2_b=["y"]
    )
    rows, failures, _ = run_nli(table, ["r0", "r1", "r2"])
    assert failures.select("id", "stage", "kind").rows() == [("r1", "nli", "out_of_memory")]
    assert rows["id"].to_list() == ["r0"] * 8 + ["r2"] * 2


def test_progress_is_that_of_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener hears of all pairs, then of how many are done, and of no block."""
    monkeypatch.setattr(pair_blocks, "PAIRS_AT_ONCE", 5)
    heard: list[int] = []

    def listen(n: int) -> OnBatch:
        heard.append(n)
        return heard.append

    table = table_of([(2, 3)])
    need = PassNeed("nli", ("a", "b"))
    records = pl.DataFrame({"id": ["r0"]})
    PASSES["nli"].compute(
        PassInput(FakeClassifier(), need, records, lambda _: table, frozenset(), listen)
    )
    assert heard == [12, 5, 10, 12]


def test_what_is_counted_is_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a block: the queue is told how large a chunk is."""
    table, records = table_of([(4, 5), (2, 2)]), pl.DataFrame({"id": ["r0", "r1"]})
    counted = (PASSES["nli"], PassNeed("nli", ("a", "b")), records, lambda _: table)
    tokens = count_tokens(*counted)
    monkeypatch.setattr(pair_blocks, "PAIRS_AT_ONCE", 8)
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
    monkeypatch.setattr(pair_blocks, "PAIRS_AT_ONCE", 4)
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
