"""Which items share a forward pass: pure planning, no model and no device.

Batches are a function of the token lengths and the budget alone, so the same input gives the
same batches, and with them the same numbers, on every run.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from claimscore.errors import ClaimscoreError
from claimscore.pipeline.encoders.base import RejectedItemsError
from claimscore.pipeline.encoders.turns import device_turns

logger = logging.getLogger("claimscore")

T = TypeVar("T", bound=Hashable)

#: Tokens of the batches that are built at once.
AHEAD_TOKENS = 2**17

#: Indices of rows.
Places = NDArray[np.int64]


class Distinct(NamedTuple, Generic[T]):
    """Distinct items in the order of their first occurrence, and where each input went."""

    items: list[T]
    inverse: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many inputs each distinct item stands for."""
        return np.bincount(self.inverse, minlength=len(self.items))

    def positions(self, *items: int) -> tuple[int, ...]:
        """The places of distinct items in the input."""
        return tuple(np.flatnonzero(np.isin(self.inverse, items)).tolist())


class Batch(NamedTuple):
    """Half-open range of a list of lengths sorted downwards, and the tokens it costs a model."""

    start: int
    stop: int
    tokens: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


class RowOutOfMemoryError(ClaimscoreError):
    """One single row does not fit into memory; `row` is its place among the sorted rows."""

    def __init__(self, row: int, tokens: int) -> None:
        super().__init__(f"one item of {tokens} tokens does not fit into memory")
        self.row = row
        self.tokens = tokens


def distinct(items: Sequence[T]) -> Distinct[T]:
    """Return each item once; ``[d.items[i] for i in d.inverse]`` is the input again."""
    places: defaultdict[T, int] = defaultdict(count().__next__)
    inverse = np.fromiter(map(places.__getitem__, items), np.int64, count=len(items))
    return Distinct(list(places), inverse)


def longest_first(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the order that sorts lengths downwards; equal lengths keep their order.

    Longest first, so that a lack of memory shows at once and not after hours.
    """
    return np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")


def next_batch(lengths: ArrayLike, start: int, budget: int, *, padded: bool) -> Batch:
    """Return the longest batch from ``start`` that costs at most ``budget``, at least one row.

    ``lengths`` are sorted downwards. A packed batch costs the sum of its lengths, a padded one
    its rows times its first length.
    """
    ordered = np.asarray(lengths, dtype=np.int64)
    most = max(1, budget // max(1, int(ordered[-1])))  # none is shorter than the last
    rest = ordered[start : start + most]
    costs = np.arange(1, len(rest) + 1) * rest[0] if padded else np.cumsum(rest)
    rows = max(1, int(np.searchsorted(costs, budget, side="right")))
    return Batch(start, start + rows, max(1, int(costs[rows - 1])))


def plan(lengths: ArrayLike, budget: int, *, padded: bool) -> Iterator[Batch]:
    """Yield the batches that cover ``lengths`` (sorted downwards), each row exactly once."""
    ordered = np.asarray(lengths, dtype=np.int64)
    start = 0
    while start < len(ordered):
        batch = next_batch(ordered, start, budget, padded=padded)
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
    """Runs rows through a forward pass, longest first, within a budget that memory may lower.

    A batch that runs out of memory is halved by tokens and tried again; the lower budget stays
    for all that follows, in later calls too, so a device pays for the lesson once. A single row
    that does not fit raises `RowOutOfMemoryError`: never a made-up number. ``padded`` says what a
    batch costs: see `next_batch`. ``origin`` says where the first budget is from; ``on_lower``
    hears each lower one. Several threads may run rows at once: their batches take turns, with
    those of all models that were loaded as `one_device`.
    """

    def __init__(
        self,
        budget: int,
        *,
        padded: bool,
        is_out_of_memory: Callable[[BaseException], bool],
        free: Callable[[], None] = lambda: None,
        device: str = "the device",
        origin: str = "given",
        on_lower: Callable[[int], None] = lambda budget: None,
    ) -> None:
        self.budget = budget
        self.origin = origin
        self.padded = padded
        self.device = device
        self._is_out_of_memory = is_out_of_memory
        self._free = free
        self._on_lower = on_lower
        self._turns = device_turns()

    def run(
        self,
        lengths: ArrayLike,
        forward: Callable[..., None],
        *,
        build: Callable[[Places], object] | None = None,
    ) -> Iterator[Places]:
        """Call ``forward`` with the places of each batch's rows, longest first; yield those done.

        Places are indices into ``lengths``. What ``build`` makes of them, while another thread
        may have the device, is given to ``forward`` too.
        """
        given = np.asarray(lengths, dtype=np.int64)
        order = longest_first(given)
        ordered = given[order]
        start, planned_for = 0, 0
        ahead: deque[tuple[Batch, Places, tuple[object, ...]]] = deque()
        while start < len(ordered):
            if not ahead or planned_for != self.budget:
                planned_for = self.budget
                ahead = deque(self._build_ahead(ordered, order, start, build))
            batch, places, built = ahead.popleft()
            with self._turns.turn():
                fits = self._fits(forward, places, *built)
                if not fits:
                    self._lower(batch, places)
            if fits:
                yield places
                start = batch.stop

    def _build_ahead(
        self,
        ordered: Places,
        order: Places,
        start: int,
        build: Callable[[Places], object] | None,
    ) -> Iterator[tuple[Batch, Places, tuple[object, ...]]]:
        """The next batches of at most `AHEAD_TOKENS`, one at least: between two forward passes a
        batch costs several times what it costs in one go."""
        stop, tokens = start, 0
        while stop < len(ordered):
            batch = next_batch(ordered, stop, self.budget, padded=self.padded)
            tokens += batch.tokens
            if stop > start and tokens > AHEAD_TOKENS:
                return
            places = order[batch.start : batch.stop]
            yield batch, places, () if build is None else (build(places),)
            stop = batch.stop

    def run_or_reject(
        self,
        lengths: ArrayLike,
        forward: Callable[..., None],
        *,
        item: str,
        owners: Callable[[int], tuple[int, ...]],
        build: Callable[[Places], object] | None = None,
    ) -> Iterator[Places]:
        """As `run`; a row that does not fit is a `RejectedItemsError` that names its ``owners``."""
        try:
            yield from self.run(lengths, forward, build=build)
        except RowOutOfMemoryError as exc:
            raise RejectedItemsError(
                f"{item} of {exc.tokens} tokens does not fit into the memory of {self.device}",
                kind="out_of_memory",
                indices=owners(exc.row),
            ) from exc

    def _fits(self, forward: Callable[..., None], *given: object) -> bool:
        try:
            forward(*given)
        except (RuntimeError, MemoryError) as exc:
            if not self._is_out_of_memory(exc):
                raise
            return False
        return True

    def _lower(self, batch: Batch, places: Places) -> None:
        # The failed attempt's exception is gone by now, and with it the tensors it held.
        self._free()
        if batch.rows == 1:
            raise RowOutOfMemoryError(int(places[0]), batch.tokens)
        # Another thread may have lowered it since this batch was planned.
        self.budget = min(self.budget, max(1, batch.tokens // 2))
        self.origin = "lowered when memory ran out"
        self._on_lower(self.budget)
        logger.warning(
            "out of memory at %d tokens (%d rows): the token budget is now %d",
            batch.tokens,
            batch.rows,
            self.budget,
        )
