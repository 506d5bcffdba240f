"""The interface of a cache of paid answers, and the smallest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from claimscore.cache.entry import Entry


class Cache(Protocol):
    """Answers by request key. Implementations may be used from several threads."""

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entries that are there; missing and damaged ones are left out."""

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""

    def try_lock(self, key: str) -> bool:
        """Tell other processes that this one asks for the key; False where another one does."""

    def unlock(self, key: str) -> None:
        """End `try_lock`: the entry is there now, or never will be."""

    def close(self) -> None:
        """Release the files; nothing may be asked afterwards."""


class MemoryCache:
    """A cache that ends with the process: for tests."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        return {key: self.entries[key] for key in keys if key in self.entries}

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        self.entries.update(entries)

    def try_lock(self, key: str) -> bool:
        return True

    def unlock(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass
