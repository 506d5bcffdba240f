"""Stored answers as an engine uses them: looked up, claimed, kept.

`OwnAnswers` has the cache in this process: nothing in it waits but `keep`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from claimscore.cache.base import Cache
from claimscore.cache.entry import Entry
from claimscore.pipeline.llm.commit import GroupCommit

#: What `begin` says of a key without an answer: ask for it, or somebody else is asking.
Turn = Literal["mine", "elsewhere"]


@runtime_checkable
class Answers(Protocol):
    """Where the answers of an engine lie, and who may ask for which."""

    #: So many rows are begun for each that may be sent: 1 where `begin` takes no time.
    ahead: int

    @property
    def read_only(self) -> bool:
        """Whether new answers cannot be kept."""

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entries that are there."""

    async def begin(self, key: str) -> Entry | Turn:
        """The entry; where there is none, whether this engine may ask for it until `end`."""

    async def keep(self, key: str, entry: Entry) -> None:
        """Return when a killed process cannot lose it any more."""

    def end(self, key: str) -> None:
        """The end of what `begin` said, whatever that was. Cancelled, `begin` ends itself."""

    async def run(self) -> None:
        """Write until closed."""

    def close(self) -> None:
        """Let `run` end after what has arrived."""


class OwnAnswers:
    """A cache of this process; `after` is called when a group of answers is in it.

    `claims`: other processes that share its folder are told what is being asked.
    """

    ahead = 1

    def __init__(self, cache: Cache, after: Callable[[], None], *, claims: bool) -> None:
        self._cache = cache
        self._claims = claims
        self._commits = GroupCommit(cache, after)
        self.keep = self._commits.put
        self.run = self._commits.run
        self.close = self._commits.close

    @property
    def read_only(self) -> bool:
        return self._cache.read_only

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        return self._cache.get_many(keys)

    async def begin(self, key: str) -> Entry | Turn:
        if self._claims and not self._cache.claim(key):
            return "elsewhere"
        return self._cache.get_many([key]).get(key, "mine")

    def end(self, key: str) -> None:
        if self._claims:
            self._cache.release(key)
