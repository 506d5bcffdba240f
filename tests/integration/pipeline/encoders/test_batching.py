"""Batches on several threads: the rows and the order that one thread gives."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.pipeline.encoders.batching import BatchRunner
from claimscore.pipeline.encoders.devices import shared_device
from claimscore.pipeline.encoders.distinct import distinct
from claimscore.pipeline.encoders.protocols import RejectedItemsError
from claimscore.pipeline.encoders.tokenizing import TokenBatch, WholeRows, ragged

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=60)


def runner(budget: int) -> BatchRunner:
    return BatchRunner(torch.device("cpu"), given=budget, padded=False)


def run(own: BatchRunner, lengths: list[int], forward: Any, **options: Any) -> None:
    rows = WholeRows(ragged([[place] * length for place, length in enumerate(lengths)]))
    own.run(distinct(range(len(lengths))), rows, forward, **options)


@given(LENGTHS, st.integers(1, 1000), st.integers(1, 200), st.integers(2, 4))
def test_several_threads_keep_what_one_keeps(
    lengths: list[int], budget: int, most_tokens: int, threads: int
) -> None:
    """Batches side by side: the same rows are told of in the same order, and the same refused."""

    def told(threads: int) -> tuple[list[int], list[int], str]:
        torch.set_num_threads(threads)
        own, heard, refused = runner(budget), list[int](), ""
        kept = dict[int, list[int]]()

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            assert torch.get_num_threads() == 1
            ids = [row.tolist() for row in batch.split()]
            if sum(map(len, ids)) > most_tokens:
                raise MemoryError
            kept.update(zip(places.tolist(), ids, strict=True))

        try:
            run(own, lengths, forward, on_batch=heard.append)
            assert kept == {place: [place] * n for place, n in enumerate(lengths)}
        except RejectedItemsError as exc:
            refused = f"{exc} {exc.indices}"
        assert torch.get_num_threads() == threads
        return heard, [own.budget], refused

    assert told(threads) == told(1)


@given(st.lists(st.integers(16, 64), min_size=20, max_size=60))
def test_two_threads_have_as_much_to_do(lengths: list[int]) -> None:
    torch.set_num_threads(2)
    sizes: list[int] = []
    run(runner(1024), lengths, lambda places, batch: sizes.append(len(batch.ids)))
    tokens = sum(lengths)
    assert len(sizes) % 2 == (tokens < 2 * 256)
    assert max(sizes) - min(sizes) <= 2 * max(lengths)


def test_what_a_batch_raises_stops_the_others() -> None:
    torch.set_num_threads(2)
    begun = []

    def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
        begun.append(places)
        raise ValueError("of this batch")

    with pytest.raises(ValueError, match="of this batch"):
        run(runner(10), [10] * 100, forward)
    assert len(begun) <= 3


def test_the_models_of_one_device_compute_one_at_a_time() -> None:
    with shared_device():
        runners = [runner(4), runner(4)]
    at_work, most_at_work = [0], [0]

    def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
        at_work[0] += 1
        most_at_work[0] = max(most_at_work[0], at_work[0])
        time.sleep(0.001)
        at_work[0] -= 1

    def work(number: int) -> list[int]:
        heard: list[int] = []
        run(runners[number % 2], [1] * 40, forward, on_batch=heard.append)
        return heard

    torch.set_num_threads(1)
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(work, range(3)))
    assert most_at_work == [1]
    assert done == [list(range(4, 41, 4))] * 3
