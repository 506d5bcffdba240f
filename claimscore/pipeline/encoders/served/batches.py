"""Batches of items in flight with a server, several at a time; answers in the items' order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import RejectedError
from claimscore.pipeline.encoders.batching import longest_first
from claimscore.pipeline.encoders.distinct import Distinct
from claimscore.pipeline.encoders.protocols import OnBatch, RejectedItemsError

T = TypeVar("T", bound=Hashable)

#: One row of numbers an item, in their order; `RejectedError` where the server refuses the batch.
Ask = Callable[[list[T], threading.Event], NDArray[np.float32]]

#: How often the caller is called, and so may stop, while nothing is answered.
TICK_S = 0.2


class _Done(NamedTuple):
    """What became of one batch: its items' places, the rows, what was refused; or an error."""

    places: list[int]
    rows: dict[int, NDArray[np.float32]]
    refused: dict[int, RejectedError]
    error: Exception | None = None


class Batches(Generic[T]):
    """Asks for rows of numbers, ``size`` items a request and at most ``in_flight`` requests.

    Each distinct item is asked once, and what a call learnt before it found an item that is
    refused is at hand for the next call: its caller asks again without that item.
    """

    def __init__(self, ask: Ask[T], *, size: int, in_flight: int) -> None:
        self.size = size
        self.in_flight = in_flight
        self._ask = ask
        self._kept: dict[T, NDArray[np.float32]] = {}

    def rows(
        self, unique: Distinct[T], lengths: Sequence[int], on_batch: OnBatch | None
    ) -> list[NDArray[np.float32]]:
        """Return a row of numbers for each distinct item, the longest asked for first.

        ``on_batch`` hears the number of inputs done after each batch, and now and then while
        nothing comes; when it raises, no more is sent. Raises `RejectedItemsError` naming the
        inputs that the server refused for one reason.
        """
        kept, self._kept = self._kept, {}
        rows = {place: kept[item] for place, item in enumerate(unique.items) if item in kept}
        refused: dict[int, RejectedError] = {}
        counts = unique.counts
        done = int(counts[list(rows)].sum())
        order = [place for place in longest_first(lengths).tolist() if place not in rows]
        work = _Work(self, unique.items, order)
        try:
            for _ in range(work.n_batches):
                while (part := work.next_done()) is None:
                    if on_batch is not None:
                        on_batch(done)
                if part.error is not None:
                    raise part.error
                rows |= part.rows
                refused |= part.refused
                done += int(counts[part.places].sum())
                if on_batch is not None:
                    on_batch(done)
        finally:
            work.stop.set()
        if refused:
            self._kept = {unique.items[place]: row for place, row in rows.items()}
            first = refused[min(refused)]
            same = [place for place, error in refused.items() if str(error) == str(first)]
            raise RejectedItemsError(str(first), first.kind, unique.positions(*same)) from first
        return [rows[place] for place in range(len(unique.items))]

    def settle(self, items: Sequence[T], places: list[int], stop: threading.Event) -> _Done:
        """Ask for one batch, in halves where it is refused, until the items at fault are alone."""
        try:
            answer = self._ask([items[place] for place in places], stop)
        except RejectedError as exc:
            if len(places) == 1:
                return _Done(places, {}, {places[0]: exc})
            middle = len(places) // 2
            first = self.settle(items, places[:middle], stop)
            second = self.settle(items, places[middle:], stop)
            return _Done(places, first.rows | second.rows, first.refused | second.refused)
        return _Done(places, dict(zip(places, answer, strict=True)), {})


def stacked(rows: list[NDArray[np.float32]], width: int) -> NDArray[np.float32]:
    """The rows as one array ``[n, d]``; ``[0, width]`` where there are none."""
    return np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32)


class _Work(Generic[T]):
    """The threads of one call. They are nobody's to wait for: a stopped call leaves at once."""

    def __init__(self, batches: Batches[T], items: Sequence[T], order: Sequence[int]) -> None:
        self.stop = threading.Event()
        size = batches.size
        parts = [list(order[at : at + size]) for at in range(0, len(order), size)]
        self.n_batches = len(parts)
        self._batches = batches
        self._items = items
        self._todo = iter(parts)
        self._lock = threading.Lock()
        self._done: queue.SimpleQueue[_Done] = queue.SimpleQueue()
        for _ in range(min(batches.in_flight, len(parts))):
            threading.Thread(target=self._work, daemon=True).start()

    def next_done(self) -> _Done | None:
        """The next batch that is done; None where there was none for a while."""
        try:
            return self._done.get(timeout=TICK_S)
        except queue.Empty:
            return None

    def _work(self) -> None:
        while not self.stop.is_set():
            with self._lock:
                places = next(self._todo, None)
            if places is None:
                return
            try:
                done = self._batches.settle(self._items, places, self.stop)
            except Exception as exc:  # raised again by the caller's thread
                done = _Done(places, {}, {}, exc)
            self._done.put(done)
