from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.pipeline.encoders import batching
from claimscore.pipeline.encoders.batching import (
    BatchRunner,
    longest_first,
    plan_batches,
)
from claimscore.pipeline.encoders.distinct import distinct
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from claimscore.pipeline.encoders.token_rows import TokenBatch, WholeRows, ragged

LENGTHS = st.lists(st.integers(1, 200), max_size=60)
BUDGET = st.integers(1, 1000)


class Device:
    """Computes batches of at most `most_tokens` tokens and keeps a record of them."""

    def __init__(self, lengths: list[int], most_tokens: int) -> None:
        self.lengths = np.array(lengths)
        self.most_tokens = most_tokens
        self.done: list[list[int]] = []
        self.failed = 0

    def __call__(self, places: NDArray[np.int64], batch: TokenBatch) -> None:
        if self.lengths[places].sum() > self.most_tokens:
            self.failed += 1
            raise MemoryError
        self.done.append(places.tolist())


def runner(budget: int | None, at_most: int | None = None) -> BatchRunner:
    return BatchRunner(torch.device("cpu"), given=budget, padded=False, at_most=at_most)


def run(own: BatchRunner, lengths: list[int], forward: Any, **options: Any) -> None:
    rows = WholeRows(ragged([[place] * length for place, length in enumerate(lengths)]))
    own.run(distinct(range(len(lengths))), rows, forward, **options)


@given(LENGTHS, BUDGET, st.booleans())
def test_batches_fill_the_budget_and_keep_within_it(
    lengths: list[int], budget: int, padded: bool
) -> None:

    def cost(lengths: list[int]) -> int:
        return len(lengths) * max(lengths) if padded else sum(lengths)

    lengths = sorted(lengths, reverse=True)
    batches = list(plan_batches(lengths, 0, budget, padded=padded))
    assert [row for b in batches for row in range(b.start, b.stop)] == list(range(len(lengths)))
    for batch in batches:
        assert batch.tokens == cost(lengths[batch.start : batch.stop])
        assert batch.tokens <= budget or batch.rows == 1
        more = lengths[batch.start : batch.stop + 1]
        assert batch.stop == len(lengths) or cost(more) > budget


@given(st.lists(st.integers(20, 60), min_size=1, max_size=600))
def test_level_batches_let_two_threads_end_together(lengths: list[int]) -> None:
    lengths = sorted(lengths, reverse=True)
    batches = list(plan_batches(lengths, 0, 1024, padded=False, level=True))
    assert [row for b in batches for row in range(b.start, b.stop)] == list(range(len(lengths)))
    tokens = [sum(lengths[batch.start : batch.stop]) for batch in batches]
    assert tokens == [batch.tokens for batch in batches]
    assert max(tokens) <= 1024
    assert max(tokens) - min(tokens) <= 2 * 60
    assert len(batches) % 4 == 0 or sum(lengths) < 5 * 256


@given(LENGTHS.filter(bool), BUDGET, st.integers(200, 1000), st.integers(1, 3000))
def test_a_smaller_device_computes_the_same_rows(
    lengths: list[int], budget: int, most_tokens: int, ahead: int
) -> None:
    """Running out of memory costs time, never a row; however many batches are built at once, they
    are the same, each given what was built of it."""
    device, plain = Device(lengths, most_tokens), Device(lengths, most_tokens)

    rows = WholeRows(ragged([[place] * length for place, length in enumerate(lengths)]))

    def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
        one_by_one = rows.batch(places)
        assert all(map(np.array_equal, batch, one_by_one))
        device(places, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "AHEAD_TOKENS", ahead)
        run(runner(budget), lengths, forward, prepare=lambda batch: batch)
    run(runner(budget), lengths, plain)
    assert plain.done == device.done
    assert [i for places in plain.done for i in places] == longest_first(lengths).tolist()


@given(LENGTHS.filter(bool), BUDGET, st.integers(1, 200), st.integers(2, 4))
def test_several_threads_keep_what_one_keeps(
    lengths: list[int], budget: int, most_tokens: int, threads: int
) -> None:
    """Batches side by side: the same rows are told of in the same order, and the same refused."""

    def told(threads: int) -> tuple[list[int], list[int], str]:
        torch.set_num_threads(threads)
        own, heard, refused = runner(budget), list[int](), ""
        kept, device = dict[int, list[int]](), Device(lengths, most_tokens)

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            assert torch.get_num_threads() == 1
            device(places, batch)
            ids = [row.tolist() for row in batch.split()]
            kept.update(zip(places.tolist(), ids, strict=True))

        try:
            run(own, lengths, forward, on_batch=heard.append)
            assert kept == {place: [place] * n for place, n in enumerate(lengths)}
        except RejectedItemsError as exc:
            refused = f"{exc} {exc.indices}"
        assert torch.get_num_threads() == threads
        return heard, [own.budget], refused

    assert told(threads) == told(1)


def test_what_a_batch_raises_stops_the_others() -> None:
    torch.set_num_threads(2)
    begun = []

    def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
        begun.append(places)
        raise ValueError("of this batch")

    with pytest.raises(ValueError, match="of this batch"):
        run(runner(10), [10] * 100, forward)
    assert len(begun) <= 3
