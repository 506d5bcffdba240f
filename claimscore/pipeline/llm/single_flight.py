"""Each answer is bought once, and is in the cache before it is used.

Single flight: of all tasks and processes that want one answer, one asks for it. Group commit:
answers that arrive while others are written go into the cache together, off the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping

import anyio
from anyio import to_thread

from claimscore.cache.store import Cache
from claimscore.pipeline.llm.stopping import Stop
from claimscore.types import Completion, Failure

#: Seconds between two looks whether another process has got the answer that is wanted here too.
_OTHER_PROCESS_S = (0.05, 0.15)


@dataclasses.dataclass(eq=False, slots=True)
class Flight:
    """A key that one task is asking for.

    `stored` is its answer in the cache, if there is one. `is_elsewhere`: another process is asking
    for it. `failure` is the outcome of all tasks that wait for this one.
    """

    landed: anyio.Event = dataclasses.field(default_factory=anyio.Event)
    stored: Completion | None = None
    is_elsewhere: bool = False
    failure: Failure | None = None


class SingleFlight:
    """The keys that the tasks of one engine are asking for: `under_way`, with their flights."""

    def __init__(self, cache: Cache, stop: Stop) -> None:
        self.under_way: dict[str, Flight] = {}
        self._cache = cache
        self._stop = stop

    async def follow(self, flight: Flight) -> Failure | None:
        """Wait for another task; None where its answer is stored by now, or it was cancelled."""
        with self._stop.waiting():
            await flight.landed.wait()
        return flight.failure

    @contextlib.contextmanager
    def lead(self, key: str, *, locks: bool) -> Iterator[Flight]:
        """Be the one task that asks for a key; others that want it `follow`.

        With `locks`, other processes that share the cache's folder are told of it. Should this
        task be cancelled, the next of those that wait takes over.
        """
        flight = self.under_way[key] = Flight()
        try:
            flight.is_elsewhere = locks and not self._cache.try_lock(key)
            try:
                if not flight.is_elsewhere:
                    flight.stored = self._cache.get_many([key]).get(key)
                yield flight
            finally:
                if locks and not flight.is_elsewhere:
                    self._cache.unlock(key)
        finally:
            del self.under_way[key]
            flight.landed.set()

    async def wait_for_other_process(self) -> None:
        """Wait a moment: the other process may buy the answer, or end and free its lock."""
        with self._stop.waiting():
            await anyio.sleep(random.uniform(*_OTHER_PROCESS_S))


@dataclasses.dataclass(eq=False, slots=True)
class _Group:
    answers: dict[str, Completion] = dataclasses.field(default_factory=dict)
    done: anyio.Event = dataclasses.field(default_factory=anyio.Event)
    error: Exception | None = None


class GroupCommit:
    """Writes answers to a cache by the group: one thread at a time, off the event loop.

    Alone, an answer is committed at once; under load, one transaction carries hundreds.
    `after` is called in the thread when a group is in the cache.
    """

    def __init__(self, cache: Cache, after: Callable[[], None]) -> None:
        self._cache = cache
        self._after = after
        self._group = _Group()
        self._writing = anyio.Lock(fast_acquire=True)
        self._threads = anyio.CapacityLimiter(1)

    async def keep(self, key: str, answer: Completion) -> None:
        """Return when a killed process cannot lose the answer; raise what kept it out.

        Cancellation waits: the answer is paid. The first of a group writes it.
        """
        group, is_first = self._group, not self._group.answers
        group.answers[key] = answer
        with anyio.CancelScope(shield=True):
            if is_first:
                await self._write(group)
            else:
                await group.done.wait()
        if group.error is not None:
            raise group.error

    async def _write(self, group: _Group) -> None:
        async with self._writing:
            self._group = _Group()
            try:
                await to_thread.run_sync(self._put, group.answers, limiter=self._threads)
            except Exception as exc:  # raised again in every `keep` of the group
                group.error = exc
        group.done.set()

    def _put(self, answers: Mapping[str, Completion]) -> None:
        self._cache.put_many(answers)
        self._after()
