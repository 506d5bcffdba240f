from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.pipeline.encoders import batching
from claimscore.pipeline.encoders.batching import (
    BatchPlan,
    BatchRunner,
    longest_first,
    next_batch,
    pad,
)
from claimscore.pipeline.encoders.distinct import distinct
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.encoders.throughput import GIVEN, LOWERED

#: No time limits: tests share their cores with other work.
steady = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
LENGTHS = st.lists(st.integers(1, 200), max_size=60)
BUDGET = st.integers(1, 1000)
PADDED = st.booleans()


class Device:
    """Computes batches of at most `most_tokens` tokens and keeps a record of them."""

    def __init__(self, lengths: list[int], most_tokens: int) -> None:
        self.lengths = np.array(lengths)
        self.most_tokens = most_tokens
        self.done: list[list[int]] = []
        self.failed = 0

    def __call__(self, places: NDArray[np.int64]) -> None:
        if self.lengths[places].sum() > self.most_tokens:
            self.failed += 1
            raise MemoryError
        self.done.append(places.tolist())


def runner(budget: int | None, at_most: int | None = None) -> BatchRunner:
    info = ModelInfo("org/model", "abc", "float32")
    return BatchRunner(info, torch.device("cpu"), given=budget, padded=False, at_most=at_most)


def plan(lengths: list[int], budget: int, *, padded: bool) -> Iterator[BatchPlan]:
    """The batches that cover the lengths (sorted downwards)."""
    start = 0
    while start < len(lengths):
        batch = next_batch(lengths, start, budget, padded=padded)
        yield batch
        start = batch.stop


def descending(lengths: list[int]) -> list[int]:
    return sorted(lengths, reverse=True)


@steady
@given(LENGTHS)
def test_longest_first_is_a_permutation_sorted_downwards_and_stable(lengths: list[int]) -> None:
    """Order is a function of the lengths alone; ties keep the order of the input."""
    order = longest_first(lengths).tolist()
    assert order == sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))


@steady
@given(LENGTHS, BUDGET, PADDED)
def test_every_row_is_in_exactly_one_batch(lengths: list[int], budget: int, padded: bool) -> None:
    """Batches cover the rows without gap or overlap."""
    batches = list(plan(descending(lengths), budget, padded=padded))
    assert [row for b in batches for row in range(b.start, b.stop)] == list(range(len(lengths)))


def cost(lengths: list[int], padded: bool) -> int:
    """What a batch of these lengths costs a model."""
    return len(lengths) * max(lengths) if padded else sum(lengths)


@steady
@given(LENGTHS, BUDGET, PADDED)
def test_tokens_stay_within_the_budget(lengths: list[int], budget: int, padded: bool) -> None:
    """Only a single row that is longer than the budget may exceed it."""
    lengths = descending(lengths)
    for batch in plan(lengths, budget, padded=padded):
        assert batch.tokens == cost(lengths[batch.start : batch.stop], padded)
        assert batch.tokens <= budget or batch.rows == 1


@steady
@given(LENGTHS, BUDGET, PADDED)
def test_no_batch_could_take_another_row(lengths: list[int], budget: int, padded: bool) -> None:
    """A budget is used up before a new batch is begun."""
    lengths = descending(lengths)
    for batch in plan(lengths, budget, padded=padded):
        more = lengths[batch.start : batch.stop + 1]
        assert batch.stop == len(lengths) or cost(more, padded) > budget


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(False, [[1, 2, 3], [4, 0, 0]], id="right"),
        pytest.param(True, [[1, 2, 3], [0, 0, 4]], id="left"),
    ],
)
def test_pad_fills_rows_up_on_the_side_asked_for(left: bool, expected: list[list[int]]) -> None:
    """Rows become one array of the batch's width."""
    assert pad([[1, 2, 3], [4]], 3, 0, left=left).tolist() == expected
    assert pad([], 3, 0, left=left).dtype == np.int64


@steady
@given(LENGTHS.filter(bool), BUDGET, st.integers(200, 1000))
def test_a_smaller_device_computes_the_same_rows(
    lengths: list[int], budget: int, most_tokens: int
) -> None:
    """Running out of memory costs time, never a row."""
    device = Device(lengths, most_tokens)
    yielded = [places.tolist() for places in runner(budget).run(lengths, device)]
    assert yielded == device.done
    assert [i for places in device.done for i in places] == longest_first(lengths).tolist()


def test_the_lower_budget_stays(caplog: pytest.LogCaptureFixture) -> None:
    """A device says once how much it can hold; later calls start from there."""
    device, budgeted = Device([10] * 70, 100), runner(350)
    with caplog.at_level(logging.WARNING, logger="claimscore"):
        list(budgeted.run([10] * 70, device))
        assert (device.failed, budgeted.budget) == (2, 85)
        list(budgeted.run([10] * 70, device))
    assert device.failed == 2
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory at 350 tokens (35 rows): the token budget is now 175",
        "out of memory at 170 tokens (17 rows): the token budget is now 85",
    ]


def test_a_lowered_budget_is_kept_for_later_runs_unless_it_was_given() -> None:
    """The next run begins where this one ended; one that is given says nothing about others."""
    for budget, later in ((600, 1024), (None, 125)):
        list(runner(budget).run([10] * 200, Device([10] * 200, 200)))
        assert runner(None).budget == later
    assert (runner(None).origin, runner(77).origin) == (LOWERED, GIVEN)
    assert runner(None, at_most=50).budget == 50


def test_memory_is_freed_before_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller batch needs the cached blocks of the failed one."""
    freed: list[object] = []
    monkeypatch.setattr(batching, "free_memory", freed.append)
    list(runner(64).run([8] * 8, Device([8] * 8, 32)))
    assert freed == [torch.device("cpu")]


def test_a_single_row_that_does_not_fit_is_named() -> None:
    """There is nothing left to halve: the row's owners are named, no number is made up."""
    device = Device([20, 150, 20], 100)
    with pytest.raises(RejectedItemsError, match="a pair of 150 tokens") as rejected:
        list(runner(400).run([20, 150, 20], device, item="a pair", owners=lambda row: (row, 6)))
    assert (rejected.value.kind, rejected.value.indices) == ("out_of_memory", (1, 6))


def test_an_item_is_done_when_all_its_rows_are() -> None:
    """Progress counts inputs, repeated ones too; a row that does not fit names its item's."""
    items, heard = distinct(["a", "b", "a"]), list[int]()
    owners = np.array([0, 1, 0])
    runner(10).run_items(
        items, [10, 9, 8], lambda places: None, owners=owners, on_batch=heard.append
    )
    assert heard == [0, 1, 3]
    with pytest.raises(RejectedItemsError) as rejected:
        runner(10).run_items(items, [10, 9, 80], Device([10, 9, 80], 50), owners=owners)
    assert rejected.value.indices == (0, 2)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    """A shape mismatch must not be retried with smaller batches."""

    def broken(places: NDArray[np.int64]) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        list(runner(10).run([1, 1], broken))


@steady
@given(LENGTHS.filter(bool), BUDGET, st.integers(200, 1000), st.integers(1, 3000))
def test_batches_built_ahead_are_those_that_run(
    lengths: list[int], budget: int, most_tokens: int, ahead: int
) -> None:
    """However many are built at once: the same batches, each given what was built of it, also
    after memory ran out."""
    device, plain = Device(lengths, most_tokens), Device(lengths, most_tokens)

    def forward(places: NDArray[np.int64], built: list[int]) -> None:
        assert built == places.tolist()
        device(places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "AHEAD_TOKENS", ahead)
        list(runner(budget).run(lengths, forward, build=lambda places: places.tolist()))
    list(runner(budget).run(lengths, plain))
    assert device.done == plain.done
