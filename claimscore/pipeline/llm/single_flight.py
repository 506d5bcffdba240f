"""Of all who want the same answer, one asks for it: here, and among processes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import NamedTuple

import anyio

from claimscore.cache.entry import Entry
from claimscore.pipeline.llm.answers import StoredAnswers, Turn
from claimscore.pipeline.llm.stopping import Stop
from claimscore.retry import Sleep
from claimscore.types import Failure

#: Seconds between two looks whether another process has got the answer that is wanted here too.
_OTHER_PROCESS_S = (0.05, 0.15)


class Flight:
    """A request that is being asked; `failure` is what all who wait for it get."""

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.failure: Failure | None = None


class Begun(NamedTuple):
    """What is known of a key as somebody begins with it: its answer, or whose turn it is."""

    found: Entry | Turn
    flight: Flight


class SingleFlight:
    """The keys that tasks of this engine are asking for."""

    def __init__(self, answers: StoredAnswers, stop: Stop, sleep: Sleep) -> None:
        #: Requests that are waited for, since another process is asking them.
        self.n_elsewhere = 0
        self._answers = answers
        self._stop = stop
        self._sleep = sleep
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def under_way(self, key: str) -> Flight | None:
        """The flight of another task that asks for this key."""
        return self._flights.get(key)

    async def landed(self, flight: Flight) -> Failure | None:
        """Wait for another task's; None where the answer is stored by now, or was given up."""
        with self._stop.waiting():
            await flight.landed.wait()
        return flight.failure

    @contextlib.asynccontextmanager
    async def begin(self, key: str) -> AsyncIterator[Begun]:
        """Ask for a key that no other task is asking for; who wants the same waits.

        Should this task be cancelled, the next of those who wait takes over.
        """
        flight = self._flights[key] = Flight()
        try:
            found = self._answers.begin(key)
            try:
                yield Begun(found, flight)
            finally:
                self._answers.end(key)
        finally:
            del self._flights[key]
            flight.landed.set()

    async def wait_for_other_process(self) -> None:
        """A while, in which it may have bought the answer; should it end, the claim is free."""
        self.n_elsewhere += 1
        try:
            with self._stop.waiting():
                await self._sleep(random.uniform(*_OTHER_PROCESS_S))
        finally:
            self.n_elsewhere -= 1
