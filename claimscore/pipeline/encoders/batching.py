"""Which items share a forward pass: pure planning, no model and no device.

Batches are a function of the token lengths and the budget alone, so the same input gives the
same batches, and with them the same numbers, on every run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ClaimscoreError

logger = logging.getLogger("claimscore")

T = TypeVar("T", bound=Hashable)


class Distinct(NamedTuple, Generic[T]):
    """Distinct items in the order of their first occurrence, and where each input went."""

    items: list[T]
    inverse: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many inputs each distinct item stands for."""
        return np.bincount(self.inverse, minlength=len(self.items))

    def positions(self, item: int) -> tuple[int, ...]:
        """The places of one distinct item in the input."""
        return tuple(np.flatnonzero(self.inverse == item).tolist())


class Batch(NamedTuple):
    """Half-open range of a list of lengths sorted downwards, and its padded width."""

    start: int
    stop: int
    width: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def tokens(self) -> int:
        """Tokens that the model computes, padding included."""
        return self.rows * self.width


class RowOutOfMemoryError(ClaimscoreError):
    """One single row does not fit into memory; `row` is its place among the sorted rows."""

    def __init__(self, row: int, tokens: int) -> None:
        super().__init__(f"one item of {tokens} tokens does not fit into memory")
        self.row = row
        self.tokens = tokens


def distinct(items: Sequence[T]) -> Distinct[T]:
    """Return each item once; ``[d.items[i] for i in d.inverse]`` is the input again."""
    places: dict[T, int] = {}
    inverse = np.fromiter(
        (places.setdefault(item, len(places)) for item in items), np.int64, count=len(items)
    )
    return Distinct(list(places), inverse)


def longest_first(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return the order that sorts lengths downwards; equal lengths keep their order.

    Longest first, so that a lack of memory shows at once and not after hours.
    """
    return np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")


def next_batch(lengths: Sequence[int], start: int, budget: int) -> Batch:
    """Return the longest batch from ``start`` with ``rows * width <= budget``, at least one row.

    ``lengths`` are sorted downwards, so the first row sets the width of all.
    """
    width = max(int(lengths[start]), 1)
    return Batch(start, min(len(lengths), start + max(1, budget // width)), width)


def plan(lengths: Sequence[int], budget: int) -> Iterator[Batch]:
    """Yield the batches that cover ``lengths`` (sorted downwards), each row exactly once."""
    start = 0
    while start < len(lengths):
        batch = next_batch(lengths, start, budget)
        yield batch
        start = batch.stop


def pad(rows: Sequence[Sequence[int]], width: int, value: int, *, left: bool) -> NDArray[np.int64]:
    """Return the rows as one ``[rows, width]`` array, filled up with ``value`` on one side."""
    padded = np.full((len(rows), width), value, dtype=np.int64)
    for i, row in enumerate(rows):
        if left:
            padded[i, width - len(row) :] = row
        else:
            padded[i, : len(row)] = row
    return padded


class BudgetedRunner:
    """Runs sorted rows through a forward pass within a token budget that memory may lower.

    A batch that runs out of memory is halved by tokens and tried again; the lower budget stays
    for all that follows, in later calls too, so a device pays for the lesson once. A single row
    that does not fit raises `RowOutOfMemoryError`: never a made-up number.
    """

    def __init__(
        self,
        budget: int,
        *,
        is_out_of_memory: Callable[[BaseException], bool],
        free: Callable[[], None] = lambda: None,
    ) -> None:
        self.budget = budget
        self._is_out_of_memory = is_out_of_memory
        self._free = free

    def run(self, lengths: Sequence[int], forward: Callable[[Batch], None]) -> Iterator[Batch]:
        """Call ``forward`` for each batch of ``lengths`` (sorted downwards); yield those done."""
        start = 0
        while start < len(lengths):
            batch = next_batch(lengths, start, self.budget)
            if self._fits(batch, forward):
                yield batch
                start = batch.stop
            else:
                self._lower(batch)

    def _fits(self, batch: Batch, forward: Callable[[Batch], None]) -> bool:
        try:
            forward(batch)
        except (RuntimeError, MemoryError) as exc:
            if not self._is_out_of_memory(exc):
                raise
            return False
        return True

    def _lower(self, batch: Batch) -> None:
        # The failed attempt's exception is gone by now, and with it the tensors it held.
        self._free()
        if batch.rows == 1:
            raise RowOutOfMemoryError(batch.start, batch.width)
        self.budget = max(1, batch.tokens // 2)
        logger.warning(
            "out of memory at %d tokens (%d rows): the token budget is now %d",
            batch.tokens,
            batch.rows,
            self.budget,
        )
