"""Stored answers as an engine uses them: looked up, locked while they are asked for, kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from claimscore.cache.base import Cache
from claimscore.cache.entry import Entry
from claimscore.pipeline.llm.commit import GroupCommit

#: What `begin` says of a key without an answer: ask for it, or another process is asking.
Turn = Literal["mine", "elsewhere"]


class StoredAnswers:
    """A cache as one engine uses it; `after` is called when a group of answers is in it.

    `claims`: other processes that share its folder are told which keys are being asked.
    """

    def __init__(self, cache: Cache, after: Callable[[], None], *, claims: bool) -> None:
        self._cache = cache
        self._claims = claims
        self._commits = GroupCommit(cache, after)
        self.run = self._commits.run
        self.close = self._commits.close

    @property
    def read_only(self) -> bool:
        """Whether new answers cannot be kept."""
        return self._cache.read_only

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entries that are there."""
        return self._cache.get_many(keys)

    def begin(self, key: str) -> Entry | Turn:
        """The entry; where there is none, whether this engine may ask for it until `end`."""
        if self._claims and not self._cache.claim(key):
            return "elsewhere"
        return self._cache.get_many([key]).get(key, "mine")

    async def keep(self, key: str, entry: Entry) -> None:
        """Return when a killed process cannot lose it any more."""
        await self._commits.put(key, entry)

    def end(self, key: str) -> None:
        """The end of what `begin` said, whatever that was."""
        if self._claims:
            self._cache.release(key)
