"""How many rows nobody has begun, over all calls of an engine, and who waits for few of them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import anyio


@dataclasses.dataclass(slots=True)
class Unbegun:
    """How many rows of one call nobody has begun."""

    n: int


class Backlog:
    """The rows of all calls; fewer than `few` are few."""

    def __init__(self, few: int) -> None:
        self._few = few
        self._n = 0
        self._became_few = anyio.Event()

    async def runs_short(self) -> None:
        """Wait until few rows are left to be begun; at once where there are not more."""
        while self._n >= self._few:
            if self._became_few.is_set():
                self._became_few = anyio.Event()
            await self._became_few.wait()

    @contextlib.contextmanager
    def call(self, n: int) -> Iterator[Unbegun]:
        """The rows of a call count as long as nobody begins them; none once it is over."""
        rows = Unbegun(n)
        self._n += n
        try:
            yield rows
        finally:
            self.begin(rows, rows.n)

    def begin(self, rows: Unbegun, n: int = 1) -> None:
        """So many rows of a call are begun."""
        rows.n -= n
        self._n -= n
        if self._n < self._few:
            self._became_few.set()
