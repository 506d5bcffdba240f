"""Which items share a forward pass, and the only loop over batches.

Batches are a function of the token lengths and the budget alone, so the same input gives the
same batches, and with them the same numbers, on every run.
"""

from __future__ import annotations

import contextlib
import logging
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from claimscore.pipeline.encoders.devices import (
    cpu_pool,
    cpu_threads,
    device_lock,
    free_memory,
    is_out_of_memory,
)
from claimscore.pipeline.encoders.distinct import Distinct
from claimscore.pipeline.encoders.protocols import OnBatch, RejectedItemsError
from claimscore.pipeline.encoders.tokenizing import TokenBatch, TokenRows

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("claimscore")

#: Tokens in one forward pass, by device: on a CPU so few that the states of a layer stay near the
#: cores, on a GPU so many that launching costs nothing. More pays nowhere. The budget decides which
#: texts share a pass, and so the last bits of a score (2e-5 at most).
DEFAULT_TOKENS = {"cpu": 1024, "cuda": 131_072}
#: Tokens of the batches that are built at once: between two forward passes a batch costs several
#: times what it costs in one go, and arrays of more tokens do not stay in the cache of a core.
AHEAD_TOKENS = 2**15

#: Packed batches on a CPU are a multiple of this number, so that 2 or 4 threads end together, or an
#: even number if each would have fewer tokens than the second: with 256 a pass costs a thread 5%
#: more than with 1,024.
LEVEL, LEAST_TOKENS = 4, 256

#: Indices of rows.
Places = NDArray[np.int64]
Prepare = Callable[[TokenBatch], TokenBatch]
#: Computes a batch and keeps what it finds by the places of its rows. Several threads may call it,
#: and again for rows that were computed before memory ran out.
Forward = Callable[[Places, TokenBatch], None]


class BatchPlan(NamedTuple):
    """Half-open range of a list of lengths sorted downwards, and the tokens it costs a model."""

    start: int
    stop: int
    tokens: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


def longest_first(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the order that sorts lengths downwards; equal lengths keep their order.

    Longest first, so that a lack of memory shows at once and not after hours.
    """
    return np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")


def plan_batches(
    lengths: ArrayLike, start: int, budget: int, *, padded: bool, level: bool = False
) -> Iterator[BatchPlan]:
    """Yield the batches from ``start`` on: the longest that cost at most ``budget``, or one row.

    ``lengths`` are sorted downwards. A packed batch costs the sum of its lengths, a padded one
    its rows times its first length. Packed batches may be ``level``: as many as `LEVEL` says, that
    cost about the same, for threads that compute side by side.
    """
    array = np.asarray(lengths, dtype=np.int64)
    ordered: list[int] = array.tolist()
    totals: list[int] = [0, *np.cumsum(array).tolist()]
    n_left = _n_level(totals[-1] - totals[start], ordered[start:], budget) if level else 0
    while start < len(ordered):
        if padded:
            most = start + budget // max(1, ordered[start])
        else:
            most = bisect_right(totals, totals[start] + budget, start) - 1
        if n_left:
            aim = totals[start] + (totals[-1] - totals[start]) / n_left
            most = min(most, bisect_right(totals, aim + ordered[start] / 2, start) - 1)
            n_left -= 1
        stop = min(max(most, start + 1), len(ordered))
        tokens = (stop - start) * ordered[start] if padded else totals[stop] - totals[start]
        yield BatchPlan(start, stop, max(1, tokens))
        start = stop


def _n_level(tokens: int, lengths: Sequence[int], budget: int) -> int:
    """How many batches of about the same cost hold so many tokens."""
    longest = lengths[0] if lengths else 0
    needed = math.ceil(tokens / max(1, budget // 2, budget - longest // 2))
    few = tokens // LEAST_TOKENS
    return max(needed, min(-(-needed // LEVEL) * LEVEL, few - few % 2))


def pad(rows: Sequence[Sequence[int]], width: int, value: int, *, left: bool) -> NDArray[np.int64]:
    """Return the rows as one ``[rows, width]`` array, filled up with ``value`` on one side."""
    padded = np.full((len(rows), width), value, dtype=np.int64)
    for i, row in enumerate(rows):
        if left:
            padded[i, width - len(row) :] = row
        else:
            padded[i, : len(row)] = row
    return padded


class BatchRunner:
    """Runs rows through a forward pass, longest first, within a budget that memory may lower.

    A batch that runs out of memory is halved by tokens and tried again; the lower budget stays
    for all that follows, in later calls too. A single row that does not fit is rejected: never a
    made-up number. ``padded`` says what a batch costs: see `plan_batches`. No budget is more than
    ``at_most``. Several threads may run rows at once: their
    batches take turns, with those of all models loaded as one `shared_device`.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        given: int | None,
        padded: bool,
        at_most: int | None = None,
    ) -> None:
        budget = DEFAULT_TOKENS[device.type] if given is None else given
        self.budget = budget if at_most is None else max(1, min(budget, at_most))
        self.padded = padded
        self.device = device
        self._is_side_by_side = device.type == "cpu" and not padded
        self._lock = device_lock()

    def run(
        self,
        items: Distinct[Any],
        rows: TokenRows,
        forward: Forward,
        *,
        lengths: Places | None = None,
        prepare: Prepare | None = None,
        item: str = "a text",
        owners: Places | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        """Call ``forward`` with the places and the batch of rows after rows, longest first.

        ``lengths`` say what rows cost, where that is not their tokens; ``owners`` to which item a
        row belongs, where an item may have several rows. Rows of several batches are built at once,
        and ``prepare`` sees them before they are cut, while another thread may have the device.
        ``on_batch`` hears how many inputs are done after each batch. Raises `RejectedItemsError`
        for an ``item`` that does not fit alone.
        """
        costs = rows.lengths if lengths is None else lengths
        order = longest_first(costs)
        ordered = costs[order]
        n_items, counts, done = len(items.items), items.counts, 0
        owner = np.arange(n_items) if owners is None else owners
        rows_left = np.bincount(owner, minlength=n_items)
        batches = self._computed(ordered, order, rows, forward, prepare)
        with contextlib.closing(batches):
            for plan, places, fits in batches:
                if not fits:
                    raise RejectedItemsError(
                        f"{item} of {plan.tokens} tokens does not fit into the memory of "
                        f"{self.device}",
                        kind="out_of_memory",
                        indices=items.positions(int(owner[places[0]])),
                    )
                if on_batch is None:
                    continue
                finished = places  # of items with one row each
                if owners is not None:
                    touched = owner[places]
                    np.subtract.at(rows_left, touched, 1)
                    finished = np.unique(touched[rows_left[touched] == 0])
                done += int(counts[finished].sum())
                on_batch(done)

    def _computed(
        self,
        ordered: Places,
        order: Places,
        rows: TokenRows,
        forward: Forward,
        prepare: Prepare | None,
    ) -> Generator[tuple[BatchPlan, Places, bool]]:
        """The batches in order, each after its pass; False for a single row that does not fit."""
        start = 0
        while start < len(ordered):
            budget = self.budget
            built = self._built(ordered, order, start, rows, prepare)
            for plan, places, fits in self._tried(built, forward):
                if not fits:
                    # The failed attempt's exception is gone by now, and with it its tensors.
                    free_memory(self.device)
                    self._lower(plan)
                if fits or plan.rows == 1:
                    yield plan, places, fits
                    start = plan.stop
                if self.budget != budget:  # another thread may have lowered it
                    break

    def _tried(
        self, built: Iterator[tuple[BatchPlan, Places, TokenBatch]], forward: Forward
    ) -> Iterator[tuple[BatchPlan, Places, bool]]:
        """The batches in order, with whether they fit into memory.

        A packed model computes as many side by side on a CPU as torch has threads, each on one: the
        numbers are those of one thread, and another program at work holds up one of them, not all.
        """
        n = cpu_threads() if self._is_side_by_side else 1
        if n == 1:
            for plan, places, batch in built:
                with self._lock:
                    fits = _fits(forward, places, batch)
                yield plan, places, fits
            return
        out = deque[tuple[BatchPlan, Places, Future[bool]]]()
        with cpu_pool() as pool:
            try:
                for plan, places, batch in built:
                    out.append((plan, places, pool.submit(_fits, forward, places, batch)))
                    if len(out) > n:  # one waits, so that no thread does
                        yield _done(*out.popleft())
                while out:
                    yield _done(*out.popleft())
            finally:
                for *_, fitted in out:
                    fitted.cancel()
                wait([fitted for *_, fitted in out])

    def _built(
        self,
        ordered: Places,
        order: Places,
        start: int,
        rows: TokenRows,
        prepare: Prepare | None,
    ) -> Iterator[tuple[BatchPlan, Places, TokenBatch]]:
        """The batches from ``start`` on; those of `AHEAD_TOKENS` are built at once."""
        level = self._is_side_by_side
        rest = deque(plan_batches(ordered, start, self.budget, padded=self.padded, level=level))
        while rest:
            plans = [rest.popleft()]
            tokens = plans[0].tokens
            while rest and (tokens := tokens + rest[0].tokens) <= AHEAD_TOKENS:
                plans.append(rest.popleft())
            whole = rows.batch(order[plans[0].start : plans[-1].stop])
            whole = whole if prepare is None else prepare(whole)
            for plan, batch in zip(plans, whole.cut([plan.rows for plan in plans]), strict=True):
                yield plan, order[plan.start : plan.stop], batch

    def _lower(self, batch: BatchPlan) -> None:
        if batch.rows == 1:
            return
        # Another thread may have lowered it since this batch was planned.
        self.budget = min(self.budget, max(1, batch.tokens // 2))
        logger.warning(
            "out of memory at %d tokens (%d rows): the token budget is now %d",
            batch.tokens,
            batch.rows,
            self.budget,
        )


def _done(plan: BatchPlan, places: Places, fitted: Future[bool]) -> tuple[BatchPlan, Places, bool]:
    return plan, places, fitted.result()


def _fits(forward: Forward, places: Places, batch: TokenBatch) -> bool:
    import torch

    try:
        with torch.inference_mode():  # each thread has its own
            forward(places, batch)
    except (RuntimeError, MemoryError) as exc:
        if not is_out_of_memory(exc):
            raise
        return False
    return True
