"""What waits between the stages, bounded by the work that it is and not by its number."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class QueueClosedError(Exception):
    """Nothing more can be put: a bug of whoever puts."""


class TokenQueue(Generic[T]):
    """Items in the order in which they were put, each with the tokens it costs.

    Guarantees: an item enters once it fits into `most_tokens` beside those that wait, or once
    none waits, so one that is larger than the bound passes too; who asked first enters first, so
    small items do not keep a large one out. An item costs at least one token, so the number of
    items is bounded as well. For one event loop.
    """

    def __init__(self, most_tokens: int) -> None:
        if most_tokens < 1:
            raise ValueError(f"a queue of {most_tokens} tokens holds nothing")
        self.most_tokens = most_tokens
        self.waiting_tokens = 0
        self._items: deque[tuple[T, int]] = deque()
        self._closed = False
        self._entrance = anyio.Lock()
        self._changed = anyio.Condition()

    def __len__(self) -> int:
        return len(self._items)

    async def put(self, item: T, tokens: int) -> None:
        """Wait until the item may enter; cancelled before that, it has not entered."""
        cost = max(1, tokens)
        async with self._entrance, self._changed:
            while self._items and self.waiting_tokens + cost > self.most_tokens:
                await self._changed.wait()
            if self._closed:
                raise QueueClosedError("the queue is closed")
            self._items.append((item, cost))
            self.waiting_tokens += cost
            self._changed.notify_all()

    async def close(self) -> None:
        """Nothing more will be put: who takes gets what is left, then the end."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __aiter__(self) -> TokenQueue[T]:
        return self

    async def __anext__(self) -> T:
        """The next item; the end where the queue is closed and empty. Several may take at once."""
        async with self._changed:
            while not self._items:
                if self._closed:
                    raise StopAsyncIteration
                await self._changed.wait()
            item, cost = self._items.popleft()
            self.waiting_tokens -= cost
            self._changed.notify_all()
            return item
