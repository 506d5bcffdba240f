"""Where paid answers lie. The only home of diskcache.

Values are JSON bytes under string keys. diskcache would pickle anything else, and would
unpickle whatever it finds, which is running code out of a file (CVE-2025-69872); the
`_BytesDisk` below can do neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import diskcache
from diskcache.core import MODE_RAW, UNKNOWN

from claimscore.cache.key import canonical_json
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.types import JSON, Completion

#: Larger than any answer: diskcache keeps all values inside its one SQLite file.
_NEVER_A_FILE = 2**31
_DATABASE = diskcache.core.DBNAME
_BUSY_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A paid answer; `rejected` says why it failed its check when it came, None if it passed."""

    completion: Completion
    rejected: str | None = None

    def to_json(self) -> JSON:
        return {"completion": self.completion.to_json(), "rejected": self.rejected}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        return cls(Completion.from_json(value["completion"]), value["rejected"])


@dataclasses.dataclass(frozen=True, slots=True)
class CacheStats:
    """Entries in the cache, and damaged ones met since it was opened."""

    entries: int
    damaged: int


class Cache(Protocol):
    """Answers by request key. Implementations may be used from several threads."""

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entries that are there; missing and damaged ones are left out."""

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""

    def stats(self) -> CacheStats:
        """Numbers for people."""

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

    def stats(self) -> CacheStats:
        return CacheStats(len(self.entries), 0)

    def close(self) -> None:
        pass


class DiskCache:
    """A folder that several processes may share; nothing is ever evicted.

    A kill at any moment loses nothing that `put_many` returned for (SQLite's WAL); a power
    cut may lose the last commits, never earlier ones.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damaged = 0
        with _explained(folder):
            _make_private(folder)
            self._cache = diskcache.Cache(
                str(folder.absolute()),
                timeout=_BUSY_TIMEOUT_S,
                disk=_BytesDisk,
                eviction_policy="none",
                cull_limit=0,
                statistics=0,
                disk_min_file_size=_NEVER_A_FILE,
            )

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Inline look-ups, 6 us each; a thread hop would cost more than most calls."""
        found = {}
        with _explained(self.folder):
            for key in keys:
                data = self._cache.get(key)
                if data is None:
                    continue
                entry = None if data is _DAMAGED else _decode(key, data)
                if entry is None:
                    self._damaged += 1
                else:
                    found[key] = entry
        return found

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        encoded = [(key, _encode(key, entry)) for key, entry in entries.items()]
        with _explained(self.folder, writing=True), self._cache.transact():
            for key, data in encoded:
                self._cache.set(key, data)

    def stats(self) -> CacheStats:
        with _explained(self.folder):
            return CacheStats(len(self._cache), self._damaged)

    def close(self) -> None:
        self._cache.close()


class _Damaged:
    """What `fetch` gives for a row that we did not write."""


_DAMAGED = _Damaged()


class _BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache publishes no types
    """Bytes under text keys, in the database itself; everything else is refused."""

    def put(self, key: object) -> tuple[str, bool]:
        if type(key) is not str:
            raise TypeError(f"cache keys are str, not {type(key).__name__}")
        return key, True

    def get(self, key: object, raw: object) -> str:
        if type(key) is not str or not raw:
            raise TypeError("the cache holds a key that claimscore did not write")
        return key

    def store(self, value: object, read: bool, key: object = UNKNOWN) -> tuple[Any, ...]:
        if type(value) is not bytes or read:
            raise TypeError(f"cache values are bytes, not {type(value).__name__}")
        return 0, MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> bytes | _Damaged:
        """Never raises, opens no file and unpickles nothing, whatever the row says."""
        if mode == MODE_RAW and type(value) is bytes:
            return value
        return _DAMAGED


def _encode(key: str, entry: Entry) -> bytes:
    """`{"v":1,"sum":"<16 hex>","entry":{...}}`; the sum is over the key and the entry's bytes."""
    body = canonical_json(entry.to_json())
    return b"".join((_HEAD, _checksum(key, body), _MIDDLE, body, b"}"))


def _decode(key: str, data: bytes) -> Entry | None:
    """The entry, or None where a single bit is not as it was written."""
    if not data.startswith(_HEAD) or data[_SUM_END:_BODY] != _MIDDLE or data[-1:] != b"}":
        return None
    body = data[_BODY:-1]
    if data[_SUM_START:_SUM_END] != _checksum(key, body):
        return None
    try:
        return Entry.from_json(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return None


def _checksum(key: str, body: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(body)
    return digest.hexdigest()[:16].encode()


_HEAD = b'{"v":1,"sum":"'
_MIDDLE = b'","entry":'
_SUM_START = len(_HEAD)
_SUM_END = _SUM_START + 16
_BODY = _SUM_END + len(_MIDDLE)


def _make_private(folder: Path) -> None:
    """Create folder and database so that nobody else can read them.

    A folder that holds other things (`--cache-dir .`) keeps its own mode: it is not ours
    to close. The database file is private in any case.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(new):
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=0o700)
    database = folder / _DATABASE
    if database.exists() or not any(folder.iterdir()):
        folder.chmod(0o700)
    os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))


@contextlib.contextmanager
def _explained(folder: Path, *, writing: bool = False) -> Iterator[None]:
    """Errors of files and SQLite as ours, with the folder and what to do."""
    try:
        yield
    except (OSError, sqlite3.Error, diskcache.Timeout) as exc:
        reason = str(exc) or "another process held it locked for too long"
        if writing or isinstance(exc, diskcache.Timeout):
            raise StoppedEarly(
                f"{folder}: answers cannot be kept ({reason}); make room there"
            ) from exc
        raise ConfigError(
            f"{folder}: the cache cannot be used ({reason}); make the folder readable and "
            "writable for you, or name another one with --cache-dir. A damaged "
            f"{_DATABASE} must be moved away."
        ) from exc
