"""Many tasks wait for a few long pieces of work, and one of those who wait does it.

So nothing runs in the background and nothing outlives the last who wants it: where the task that
leads is cancelled, the next of those who wait takes over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from claimscore.types import Completion, Request


class Waiter:
    """A request and its outcome; `n_tries` counts the batches that did not answer it."""

    __slots__ = ("_wake", "job", "key", "n_calls", "n_tries", "outcome", "request")

    def __init__(self, key: str, request: Request, job: Job) -> None:
        self.key = key
        self.request = request
        self.job = job
        self.n_calls = 0
        self.n_tries = 0
        self.outcome: Completion | Exception | None = None
        self._wake: anyio.Event | None = None
        job.waiters[key] = self

    def move(self, job: Job) -> None:
        """Wait for another piece of work from now on."""
        self.job.waiters.pop(self.key, None)
        self.job = job
        job.waiters[self.key] = self

    def settle(self, outcome: Completion | Exception) -> None:
        """Give it its outcome."""
        self.job.waiters.pop(self.key, None)
        self.outcome = outcome
        self.wake()

    def wake(self) -> None:
        """Let it look again at what it waits for."""
        if self._wake is not None:
            self._wake.set()
            self._wake = None

    async def wait(self) -> None:
        """Until somebody wakes it."""
        if self._wake is None:
            self._wake = anyio.Event()
        await self._wake.wait()


class Job:
    """A piece of work; `led` while one of its waiters does it."""

    def __init__(self) -> None:
        self.waiters: dict[str, Waiter] = {}
        self.led = False

    def call_for_leader(self) -> None:
        """Wake one waiter where nobody leads: the last, as cancellations come in order."""
        if not self.led and self.waiters:
            next(reversed(self.waiters.values())).wake()


class Crowd:
    """All who wait, by key; `work` does a job, or a part of it, for all its waiters."""

    def __init__(self, first: Job, work: Callable[[Job], Awaitable[None]]) -> None:
        self.waiters: dict[str, Waiter] = {}
        self._first = first
        self._work = work

    async def outcome(self, key: str, request: Request) -> Completion:
        """Join in, lead where nobody does, and return or raise what becomes of the request."""
        waiter = self.waiters.get(key)
        if waiter is None:
            waiter = self.waiters[key] = Waiter(key, request, self._first)
        waiter.n_calls += 1
        try:
            while waiter.outcome is None:
                await self._take_part(waiter)
        finally:
            waiter.n_calls -= 1
            if not waiter.n_calls:
                self._leave(waiter)
        if isinstance(waiter.outcome, Completion):
            return waiter.outcome
        raise waiter.outcome.with_traceback(None)  # many tasks raise the same

    async def _take_part(self, waiter: Waiter) -> None:
        job = waiter.job
        if job.led:
            await waiter.wait()
            return
        job.led = True
        try:
            await self._work(job)
        finally:
            job.led = False
            job.call_for_leader()

    def _leave(self, waiter: Waiter) -> None:
        del self.waiters[waiter.key]
        waiter.job.waiters.pop(waiter.key, None)
        waiter.job.call_for_leader()
