"""Which requests are in flight, and since when: what a run that hangs is waiting for."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio


class InFlight:
    """Requests by a token; a dict keeps the order in which they came: the first is the oldest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: dict[int, tuple[str, float]] = {}
        self._n_entered = 0
        self._all_back: anyio.Event | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def enter(self, key: str) -> int:
        """Note a request that was sent; the token takes it away again."""
        self._n_entered += 1
        self._requests[self._n_entered] = (key, self._clock())
        return self._n_entered

    def leave(self, token: int) -> None:
        """It came back, one way or the other."""
        del self._requests[token]
        if self._all_back is not None and not self._requests:
            self._all_back.set()
            self._all_back = None

    async def landed(self) -> None:
        """Return when nothing is out."""
        while self._requests:
            self._all_back = self._all_back or anyio.Event()
            await self._all_back.wait()

    def oldest(self) -> tuple[str, float] | None:
        """The key of the request that has been out longest, and for how many seconds."""
        for key, since in self._requests.values():
            return key, self._clock() - since
        return None
