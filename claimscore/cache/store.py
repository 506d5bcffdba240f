"""Where paid answers lie. The only home of diskcache.

Values are JSON bytes under string keys. diskcache would pickle anything else, and would
unpickle whatever it finds, which is running code out of a file (CVE-2025-69872); the
`_BytesDisk` below can do neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import diskcache
from diskcache.core import UNKNOWN

from claimscore.atomic import reason as os_reason
from claimscore.cache import table
from claimscore.cache.claims import Claims
from claimscore.cache.entry import Entry, decode_entry, encode_entry
from claimscore.cache.layout import check_layout, mark_format, migrate
from claimscore.cache.lock import FolderLock
from claimscore.cache.pages import salvage
from claimscore.cache.rescue import Damage, damage_in, finish_rescue, rescue
from claimscore.cache.table import MODE_RAW, NewRow
from claimscore.errors import ConfigError, StoppedEarly

__all__ = ["Cache", "CacheStats", "DiskCache", "Entry", "MemoryCache"]

T = TypeVar("T")

_DATABASE: str = diskcache.core.DBNAME
_BUSY_TIMEOUT_S = 60.0

_SETTINGS: dict[str, Any] = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "statistics": 0,
    "disk_min_file_size": 2**31,  # larger than any answer: all values lie in the database
    "sqlite_mmap_size": 0,  # reading a mapped file that somebody cut off kills the process
    "sqlite_cache_size": 1024,  # pages a thread, 4 MB: with twice as many it is no faster
    "sqlite_cell_size_check": 1,  # find damaged pages earlier
}
_KNOWN_SETTINGS = {*diskcache.core.DEFAULT_SETTINGS, *_SETTINGS}

#: How often a look-up or a group is tried again because the file was damaged or replaced.
_TRIES = 3

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclasses.dataclass(frozen=True, slots=True)
class CacheStats:
    """Entries in the cache, and damaged ones met since it was opened."""

    entries: int
    damaged: int


class Cache(Protocol):
    """Answers by request key. Implementations may be used from several threads."""

    @property
    def read_only(self) -> bool:
        """Whether new answers cannot be kept."""

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entries that are there; missing and damaged ones are left out."""

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""

    def claim(self, key: str) -> bool:
        """Say that this process is about to ask for it; False where another one is asking."""

    def release(self, key: str) -> None:
        """The end of a claim: the entry is there now, or never will be."""

    def stats(self) -> CacheStats:
        """Numbers for people."""

    def close(self) -> None:
        """Release the files; nothing may be asked afterwards."""


class MemoryCache:
    """A cache that ends with the process: for tests."""

    read_only = False

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        return {key: self.entries[key] for key in keys if key in self.entries}

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        self.entries.update(entries)

    def claim(self, key: str) -> bool:
        return True

    def release(self, key: str) -> None:
        pass

    def stats(self) -> CacheStats:
        return CacheStats(len(self.entries), 0)

    def close(self) -> None:
        pass


class DiskCache:
    """A folder that several processes may share; nothing is ever evicted.

    A kill at any moment loses nothing that `put_many` returned for (SQLite's WAL); a power
    cut may lose the last commits, never earlier ones. A damaged database is set aside, and
    what can be read of it is saved, whenever it is noticed (`was_mended`); `notices` says so,
    and `on_notice` hears of it at once, in whichever thread it happens. In a folder that cannot
    be written (`read_only`) stored answers are read and `put_many` refuses.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_notice: Callable[[str], None] | None = None,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
    ) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self.was_mended = False
        self._on_notice = on_notice
        self._busy_timeout_s = busy_timeout_s
        self._n_damaged = 0
        self._n_expected = 0  # answers that were there, as far as this process can know
        self._path = folder.absolute() / _DATABASE
        self._lock = FolderLock(self._path.with_name(f"{_DATABASE}.lock"), busy_timeout_s)
        self._replacing = threading.Lock()
        with self._explained():
            self._database = self._open()
        self._claims = Claims(self._path.with_name(f"{_DATABASE}.claims"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there is one in a folder; opening it would make one."""
        return (folder / _DATABASE).exists()

    @property
    def read_only(self) -> bool:
        """Whether new answers cannot be kept here."""
        return isinstance(self._database, _ReadOnlyDatabase)

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Inline look-ups, a few us each; a thread hop would cost more than most calls."""
        found, damaged = self.read(lambda connection: _decoded(connection, keys))
        for key in damaged:
            self._count_damaged(key)
        return found

    def read_rows(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The encoded entries that are there, for whoever decodes them; damaged ones too."""
        found = self.read(lambda connection: list(table.look_up(connection, keys)))
        return {key: value for key, value in found if type(value) is bytes}

    def note_damaged(self, key: str) -> None:
        """Somebody could not decode what was read for them."""
        self._count_damaged(key)

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        now = time.time()
        self.put_rows(
            [NewRow(key, now, encode_entry(key, entry)) for key, entry in entries.items()]
        )

    def put_rows(self, rows: Sequence[NewRow]) -> None:
        """Keep all of these encoded entries or none."""
        self.write(lambda connection: table.upsert(connection, rows))
        self._n_expected += len(rows)

    def claim(self, key: str) -> bool:
        return self._claims.claim(key)

    def release(self, key: str) -> None:
        self._claims.release(key)

    def stats(self) -> CacheStats:
        return CacheStats(self.read(table.count), self._n_damaged)

    def close(self) -> None:
        self._claims.close()
        self._database.close()

    # -- for upkeep

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` makes of the database; done again where the file had to be replaced."""
        try:
            return self._tried(work, contextlib.nullcontext)
        except (OSError, sqlite3.Error) as exc:
            raise self._as_ours(exc, writing=False) from exc

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same in a transaction."""
        if self.read_only:
            raise ConfigError(
                f"{self.folder}: new answers cannot be kept, the cache cannot be written; make "
                "folder and files writable for you, or name another folder with --cache-dir"
            )

        def committed(connection: sqlite3.Connection) -> T:
            with table.transaction(connection):
                return work(connection)

        with self._explained(writing=True):
            return self._tried(committed, self._lock.shared)

    @contextlib.contextmanager
    def inspected(self) -> Iterator[sqlite3.Connection]:
        """The database as it is: damage is an error that says so, and nothing is replaced.

        What is deleted here from a file that is set aside meanwhile may come back.
        """
        with self._explained():
            yield self._database.connection()

    def mend(self, reason: str) -> None:
        """Set the database aside and save what can be read of it."""
        with self._explained(writing=True):
            self._replace(self._database, Damage(reason, certain=True))

    # -- one database after the other

    def _tried(
        self,
        work: Callable[[sqlite3.Connection], T],
        guard: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> T:
        """`work` on the database that is in place, not on one that was set aside meanwhile."""
        for n_left in reversed(range(_TRIES)):
            database, damage = self._database, None
            try:
                with guard():
                    if database.is_current():
                        return work(database.connection())
            except sqlite3.Error as exc:
                damage = self._damage_in(exc)
                if damage is None or n_left == 0 or not self._is_confirmed(damage):
                    raise
            self._replace(database, damage)
        raise StoppedEarly(f"{self.folder}: the cache is replaced again and again; look into it")

    def _damage_in(self, error: sqlite3.Error) -> Damage | None:
        """What is wrong with the file; a header may also claim that it cannot be written."""
        if _code(error) == sqlite3.SQLITE_READONLY and _may_write(self._path):
            return Damage("its header says that it cannot be written", certain=True)
        return damage_in(error)

    def _is_confirmed(self, damage: Damage) -> bool:
        """Whether a second look agrees; without it, a bug of ours could cost a sound file."""
        if damage.certain:
            return True
        with contextlib.closing(_connect(self._path, self._busy_timeout_s)) as connection:
            try:
                check_layout(connection, _KNOWN_SETTINGS)
                found = connection.execute("PRAGMA integrity_check(1)").fetchone()
                return tuple(found) != ("ok",)
            except sqlite3.Error as exc:
                return damage_in(exc) is not None

    def _replace(self, database: _Database, damage: Damage | None) -> None:
        """Open what is in place now; where it is still the damaged one, set it aside before.

        Of all threads and processes that meet the damage, one does this; the others wait.
        """
        with self._replacing:
            if self._database is not database:
                return
            if self.read_only:
                raise ConfigError(
                    f"{self.folder}: {_DATABASE} is damaged or was replaced, and cannot be "
                    "written; name another folder with --cache-dir"
                )
            if damage is not None:
                with self._lock.exclusive():
                    if database.is_current():
                        self._set_aside(damage)
            self._database = self._open()
            database.close()

    def _set_aside(self, damage: Damage) -> None:
        if not damage.certain and not any(found.row for found in salvage(self._path)):
            raise ConfigError(
                f"{self._path}: not a cache of claimscore ({damage.reason}); move it away, or "
                "name another folder with --cache-dir"
            )
        done = rescue(self._path, self._make_database)
        if self._n_expected:  # the file may have forgotten how many it had
            done = done._replace(n_before=max(done.n_before or 0, self._n_expected))
        self._n_expected = done.n_saved
        self.was_mended = True
        self._notice(done.notice(damage.reason))

    def _open(self) -> _Database:
        """The database in the folder: made if there is none, rescued if it is damaged."""
        if self._path.exists() and not _may_write(self._path):
            return self._open_read_only()
        _make_private(self.folder)
        with self._lock.exclusive() as was_used:
            if finish_rescue(self._path) is not None:
                self._notice(f"{self.folder}: the rescue of a damaged cache was finished")
            if was_used and self._path.exists() and self._path.stat().st_size == 0:
                self._set_aside(Damage("the file was emptied", certain=True))
            try:
                database = self._open_checked()
            except sqlite3.Error as exc:
                damage = self._damage_in(exc)
                if damage is None:
                    raise
                self._set_aside(damage)
                database = self._open_checked()
            if not was_used:
                self._lock.sign()
            self._n_expected = max(self._n_expected, table.count(database.connection()))
            return database

    def _open_checked(self) -> _DiskDatabase:
        _create(self._path)
        with contextlib.closing(_connect(self._path, self._busy_timeout_s)) as connection:
            migrate(connection, self._path)
            check_layout(connection, _KNOWN_SETTINGS)
        return _DiskDatabase(self._path, self._busy_timeout_s)

    def _open_read_only(self) -> _ReadOnlyDatabase:
        database = _ReadOnlyDatabase(self._path)
        migrate(database.connection(), self._path)
        unread = " (but for those of an unfinished run)" if database.leaves_log_unread else ""
        self._notice(
            f"{self.folder}: the cache cannot be written; stored answers are used{unread}, new "
            "ones cannot be kept"
        )
        return database

    def _make_database(self, folder: Path, groups: Iterator[list[NewRow]]) -> int:
        folder.mkdir(mode=0o700)
        _create(folder / _DATABASE)
        database = _DiskDatabase(folder / _DATABASE, self._busy_timeout_s)
        try:
            connection = database.connection()
            for rows in groups:
                with table.transaction(connection):
                    table.upsert_newer(connection, rows)
            return table.count(connection)
        finally:
            database.close()

    # -- words

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        if self._on_notice is not None:
            self._on_notice(text)

    def _count_damaged(self, key: str) -> None:
        self._n_damaged += 1
        if self._n_damaged == 1:
            self._notice(
                f"{self.folder}: the stored answer {key} is damaged and is asked again; "
                "`claimscore cache verify` looks for others"
            )

    @contextlib.contextmanager
    def _explained(self, *, writing: bool = False) -> Iterator[None]:
        """Errors of files and SQLite as ours, with the folder and what to do."""
        try:
            yield
        except (OSError, sqlite3.Error) as exc:
            raise self._as_ours(exc, writing) from exc

    def _as_ours(self, error: OSError | sqlite3.Error, writing: bool) -> Exception:
        code = _code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
            return StoppedEarly(
                f"{self.folder}: another process has held the cache locked for "
                f"{self._busy_timeout_s:g} s; see what it is doing"
            )
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        is_full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in _DISK_FULL
        if writing or is_full:
            return StoppedEarly(
                f"{self.folder}: answers cannot be kept ({reason}); "
                + ("make room there" if is_full else "see that the folder is there and writable")
            )
        if (damage := damage_in(error)) is not None:
            where = (
                "there" if _may_write(self._path) else "in a copy of it, as it cannot be written"
            )
            return ConfigError(
                f"{self.folder}: the cache is damaged ({damage.reason}); `claimscore cache verify "
                f"--repair` saves what can be read {where}"
            )
        return ConfigError(
            f"{self.folder}: the cache cannot be used ({reason}); make the folder readable and "
            "writable for you, or name another one with --cache-dir"
        )


def _decoded(
    connection: sqlite3.Connection, keys: Sequence[str]
) -> tuple[dict[str, Entry], list[str]]:
    """The entries that are there, and the keys of those that are damaged."""
    found, damaged = {}, []
    for key, value in table.look_up(connection, keys):
        entry = decode_entry(key, value) if type(value) is bytes else None
        if entry is None:
            damaged.append(key)
        else:
            found[key] = entry
    return found, damaged


class _Database(Protocol):
    """One database file, as long as it lies where it was opened."""

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""

    def is_current(self) -> bool:
        """Whether the file at the path is still the one that was opened."""

    def close(self) -> None:
        """Close this thread's connection."""


class _DiskDatabase:
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


class _ReadOnlyDatabase:
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


def _code(error: BaseException) -> int:
    """SQLite's number for a kind of error; 0 where it is none of SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)


def _identity(path: Path | str) -> tuple[int, int] | None:
    """What stays the same as long as a file is not replaced; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - twice as fast, and asked for every request
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _may_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path.parent, path))


def _make_private(folder: Path) -> None:
    """Create the folder so that nobody else can read it.

    A folder that holds other things (`--cache-dir .`) keeps its own mode: it is not ours
    to close. The database file is private in any case.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(new):
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=0o700)
    if (folder / _DATABASE).exists() or not any(folder.iterdir()):
        folder.chmod(0o700)


def _create(database: Path) -> None:
    """An empty, private file, where there is none yet.

    One that is there is not opened: closing it would drop SQLite's locks of other threads.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
