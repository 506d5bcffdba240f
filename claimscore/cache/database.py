"""The database file of a cache, open. The only home of diskcache.

Values are JSON bytes under string keys. diskcache would pickle anything else, and would
unpickle whatever it finds, which is running code out of a file (CVE-2025-69872); the
`_BytesDisk` below can do neither.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import diskcache
from diskcache.core import UNKNOWN

from claimscore.cache.layout import mark_format
from claimscore.cache.table import MODE_RAW

#: The name of the file.
DATABASE: str = diskcache.core.DBNAME

_SETTINGS: dict[str, Any] = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "statistics": 0,
    "disk_min_file_size": 2**31,  # larger than any answer: all values lie in the database
    "sqlite_mmap_size": 0,  # reading a mapped file that was cut off kills the process
    "sqlite_cache_size": 1024,  # pages a thread, 4 MB: with twice as many it is no faster
    "sqlite_cell_size_check": 1,  # find damaged pages earlier
}
#: What diskcache, told so, writes among its settings.
KNOWN_SETTINGS = {*diskcache.core.DEFAULT_SETTINGS, *_SETTINGS}


class Database(Protocol):
    """One database file, as long as it lies where it was opened."""

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""

    def is_current(self) -> bool:
        """Whether the file at the path is still the one that was opened."""

    def close(self) -> None:
        """Close this thread's connection."""


class DiskDatabase:
    """A database that diskcache made or takes care of."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = str(path)
        self._cache = diskcache.Cache(
            str(path.parent), timeout=busy_timeout_s, disk=_BytesDisk, **_SETTINGS
        )
        mark_format(self.connection())
        self._identity = _identity(path)

    def connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._cache._con
        return connection

    def is_current(self) -> bool:
        return _identity(self._path) == self._identity

    def close(self) -> None:
        """With what was written in the database itself, so that one file can be copied."""
        if self.is_current():
            with contextlib.suppress(sqlite3.Error):
                self.connection().execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._cache.close()


class ReadOnlyDatabase:
    """A database in a folder where nothing can be written, one connection a thread.

    Without the right to make its help files SQLite reads nothing, unless it is told that
    the file does not change; should it change all the same, the checksums tell.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._identity = _identity(path)
        try:
            self._mode = "mode=ro"
            self.connection().execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError:
            self.close()
            self._mode = "immutable=1"

    @property
    def leaves_log_unread(self) -> bool:
        """Whether there are answers that SQLite would need its help files for."""
        log = self._path.with_name(f"{self._path.name}-wal")
        return self._mode == "immutable=1" and log.exists() and log.stat().st_size > 0

    def connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            address = f"file:{quote(str(self._path))}?{self._mode}"
            found = self._local.connection = sqlite3.connect(
                address, uri=True, isolation_level=None
            )
        return found

    def is_current(self) -> bool:
        return _identity(self._path) == self._identity

    def close(self) -> None:
        if hasattr(self._local, "connection"):
            self._local.connection.close()
            del self._local.connection


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

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> bytes | None:
        """Never raises, opens no file and unpickles nothing, whatever the row says."""
        return value if mode == MODE_RAW and type(value) is bytes else None


def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """SQLite's own connection, for a look at a file before diskcache trusts it."""
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)


def _identity(path: Path | str) -> tuple[int, int] | None:
    """An identity that stays the same until the file is replaced; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - twice as fast, and asked for every request
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def may_write(path: Path) -> bool:
    """Whether a file, and its folder, can be written."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path.parent, path))


def make_private(folder: Path) -> None:
    """Create the folder so that no other user can read it.

    A folder that holds other things (`--cache-dir .`) keeps its own mode: it is not ours
    to close. The database file is private in any case.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(new):
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=0o700)
    if (folder / DATABASE).exists() or not any(folder.iterdir()):
        folder.chmod(0o700)


def create(database: Path) -> None:
    """An empty, private file, where there is none yet.

    One that is there is not opened: closing it would drop SQLite's locks of other threads.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
