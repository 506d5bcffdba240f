"""Every text of one list with every text of another, for many records, so many pairs at a time.

Pairs grow with the square of the texts: two sides with 500 claims each are half a million. So
pairs, what a model makes of them and their rows are made for one block at a time. A chunk that has
no more than a block is one call of the model, as if there were no blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.distinct import Pair
from claimscore.pipeline.encoders.protocols import OnBatch, PairClassifier, RejectedItemsError
from claimscore.pipeline.passes.base import Listen, failure_row, truncated

#: Pairs of a block: 64 pairs of summaries with 32 claims a side have as many. About 100 MB of
#: texts, tokens and results.
PAIRS_AT_ONCE = 2**17


class Grid(Protocol):
    """All pairs of one record: every premise with every hypothesis."""

    @property
    def id(self) -> str: ...

    @property
    def premises(self) -> Sequence[str]: ...

    @property
    def hypotheses(self) -> Sequence[str]: ...


G = TypeVar("G", bound=Grid)


class Judged(NamedTuple):
    """Some rows: the place of the record's grid in the list, the two indices, what the model said
    (``[n, 3]``), and whether it read the pair in part only."""

    grids: NDArray[np.int64]
    premises: NDArray[np.int64]
    hypotheses: NDArray[np.int64]
    values: NDArray[np.float32]
    cut: pl.Series

    def columns(self) -> dict[str, NDArray[np.float32] | pl.Series]:
        """What the model said, by the names of the tables."""
        names = ("entailment", "neutral", "contradiction")
        found = {name: np.ascontiguousarray(self.values[:, i]) for i, name in enumerate(names)}
        return {**found, "truncated": self.cut}


class PairResult(NamedTuple):
    """The rows of all blocks, and `failures` rows of the records that were left out."""

    rows: pl.DataFrame
    failures: list[dict[str, Any]]


def judge(
    classifier: PairClassifier,
    grids: Sequence[G],
    *,
    kind: str,
    listen: Listen,
    frame: Callable[[Sequence[G], Judged], pl.DataFrame],
) -> PairResult:
    """Ask the model about all pairs, grid by grid and premise by premise; `frame` makes rows.

    A pair that is rejected costs its own record, not the chunk: the others are judged again.
    """
    left = list(grids)
    failures: list[dict[str, Any]] = []
    while True:
        try:
            frames = list(_by_blocks(classifier, left, listen, frame))
        except RejectedItemsError as exc:
            rejected = {left[place].id for place in exc.indices}
            failures += [failure_row(kind, record, exc) for record in sorted(rejected)]
            left = [grid for grid in left if grid.id not in rejected]
        else:
            return PairResult(pl.concat(frames), failures)


def _by_blocks(
    classifier: PairClassifier,
    grids: Sequence[G],
    listen: Listen,
    frame: Callable[[Sequence[G], Judged], pl.DataFrame],
) -> Iterator[pl.DataFrame]:
    """A frame a block; of what is rejected the indices are those of the grids."""
    widths = np.array([len(grid.hypotheses) for grid in grids], dtype=np.int64)
    sizes = widths * np.array([len(grid.premises) for grid in grids], dtype=np.int64)
    ends, total = np.cumsum(sizes), int(sizes.sum())
    on_batch = listen(total)
    for start in range(0, max(total, 1), PAIRS_AT_ONCE):
        stop = min(start + PAIRS_AT_ONCE, total)
        pairs = list(_pairs(grids, ends, start, stop))
        at = np.arange(start, stop)
        owners = np.searchsorted(ends, at, side="right")
        try:
            values = classifier.classify(pairs, on_batch=partial(_tell, on_batch, start))
        except RejectedItemsError as exc:
            places = tuple({int(owners[index]): None for index in exc.indices})
            raise RejectedItemsError(str(exc), exc.kind, places) from exc
        premises, hypotheses = np.divmod(at - (ends - sizes)[owners], widths[owners])
        cut = truncated(classifier, pairs)
        yield frame(grids, Judged(owners, premises, hypotheses, values, cut))


def _tell(on_batch: OnBatch, before: int, done: int) -> None:
    on_batch(before + done)


def _pairs(grids: Sequence[Grid], ends: NDArray[np.int64], start: int, stop: int) -> Iterator[Pair]:
    """The pairs from `start` to `stop` of all grids, one after the other."""
    first = int(np.searchsorted(ends, start, side="right"))
    for grid, end in zip(grids[first:], ends[first:].tolist(), strict=True):
        begin = end - len(grid.premises) * len(grid.hypotheses)
        if begin >= stop:
            return
        every = product(grid.premises, grid.hypotheses)
        yield from islice(every, max(start - begin, 0), stop - begin)
