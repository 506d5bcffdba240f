"""Answers to the cache by the group: one writer, off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio
from anyio import to_thread

from claimscore.cache.base import Cache
from claimscore.cache.entry import Entry


class GroupCommit:
    """Collects what arrives while the last group is written, then writes it as one.

    Alone, an answer is committed at once; under load, one transaction carries hundreds.
    `after` is called in the writer's thread when a group is in the cache.
    """

    def __init__(self, cache: Cache, after: Callable[[], None]) -> None:
        self._cache = cache
        self._after = after
        self._group: _Group | None = None
        self._wake = anyio.Event()
        self._closed = False

    async def put(self, key: str, entry: Entry) -> None:
        """Return when the entry is in the cache; raise what kept it out."""
        if self._closed:  # the writer has gone; being late is no reason to lose an answer
            self._write({key: entry})
            return
        if self._group is None:
            self._group = _Group()
        group = self._group
        group.entries[key] = entry
        self._wake.set()
        await group.done.wait()
        if group.error is not None:
            raise group.error

    async def run(self) -> None:
        """Write until closed. Cancellation does not end it: answers may still land."""
        one_thread = anyio.CapacityLimiter(1)
        with anyio.CancelScope(shield=True):
            while self._group is not None or not self._closed:
                if self._group is None:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    continue
                group, self._group = self._group, None
                try:
                    await to_thread.run_sync(self._write, group.entries, limiter=one_thread)
                except Exception as exc:  # raised again in every `put` of the group
                    group.error = exc
                group.done.set()

    def _write(self, entries: Mapping[str, Entry]) -> None:
        self._cache.put_many(entries)
        self._after()

    def close(self) -> None:
        """Let `run` end after what has arrived."""
        self._closed = True
        self._wake.set()


class _Group:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.done = anyio.Event()
        self.error: Exception | None = None
