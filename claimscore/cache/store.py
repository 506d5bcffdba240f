"""Where paid answers lie: a folder with one database after the other.

Mostly there is one, for ever. Where it turns out to be damaged, or was replaced, the
next one takes its place while others are at work with it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from claimscore.cache import table
from claimscore.cache.base import CacheStats
from claimscore.cache.complaints import as_ours, sqlite_code
from claimscore.cache.database import (
    DATABASE,
    KNOWN_SETTINGS,
    Database,
    DiskDatabase,
    ReadOnlyDatabase,
    connect,
    create,
    make_private,
    may_write,
)
from claimscore.cache.entry import Entry, decode_entry, encode_entry
from claimscore.cache.in_flight_locks import InFlightLocks
from claimscore.cache.layout import check_layout, migrate
from claimscore.cache.lock import CacheLock
from claimscore.cache.pages import salvage
from claimscore.cache.rescue import Damage, damage_in, finish_rescue, rescue
from claimscore.cache.table import NewRow
from claimscore.errors import ConfigError, StoppedEarly

T = TypeVar("T")

_BUSY_TIMEOUT_S = 60.0

#: How often a look-up or a group is tried again because the file was damaged or replaced.
_TRIES = 3


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
        self._path = folder.absolute() / DATABASE
        self._lock = CacheLock(self._path.with_name(f"{DATABASE}.lock"), busy_timeout_s)
        self._replacing = threading.Lock()
        with self._explained():
            self._database = self._open()
        self._in_flight = InFlightLocks(self._path.with_name(f"{DATABASE}.in-flight"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there is one in a folder; opening it would make one."""
        return (folder / DATABASE).exists()

    @property
    def read_only(self) -> bool:
        """Whether new answers cannot be kept here."""
        return isinstance(self._database, ReadOnlyDatabase)

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Inline look-ups, a few us each; a thread hop would cost more than most calls."""
        found, damaged = self.read(lambda connection: _decoded(connection, keys))
        for key in damaged:
            self._count_damaged(key)
        return found

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        now = time.time()
        self.put_rows(
            [NewRow(key, now, encode_entry(key, entry)) for key, entry in entries.items()]
        )

    def put_rows(self, rows: Sequence[NewRow]) -> None:
        """Keep all of these encoded entries or none."""
        self.write(lambda connection: table.upsert(connection, rows))
        self._n_expected += len(rows)

    def try_lock(self, key: str) -> bool:
        return self._in_flight.try_lock(key)

    def unlock(self, key: str) -> None:
        self._in_flight.unlock(key)

    def stats(self) -> CacheStats:
        return CacheStats(self.read(table.count), self._n_damaged)

    def close(self) -> None:
        self._in_flight.close()
        self._database.close()

    # -- for upkeep

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work` on the database; done again where the file had to be replaced."""
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
        """The damage of the file; a header may also claim that it cannot be written."""
        if sqlite_code(error) == sqlite3.SQLITE_READONLY and may_write(self._path):
            return Damage("its header says that it cannot be written", certain=True)
        return damage_in(error)

    def _is_confirmed(self, damage: Damage) -> bool:
        """Whether a second look agrees; without it, a bug of ours could cost a sound file."""
        if damage.certain:
            return True
        with contextlib.closing(connect(self._path, self._busy_timeout_s)) as connection:
            try:
                check_layout(connection, KNOWN_SETTINGS)
                found = connection.execute("PRAGMA integrity_check(1)").fetchone()
                return tuple(found) != ("ok",)
            except sqlite3.Error as exc:
                return damage_in(exc) is not None

    def _replace(self, database: Database, damage: Damage | None) -> None:
        """Open what is in place now; where it is still the damaged one, set it aside before.

        Of all threads and processes that meet the damage, one does this; the others wait.
        """
        with self._replacing:
            if self._database is not database:
                return
            if self.read_only:
                raise ConfigError(
                    f"{self.folder}: {DATABASE} is damaged or was replaced, and cannot be "
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

    def _open(self) -> Database:
        """The database in the folder: made if there is none, rescued if it is damaged."""
        if self._path.exists() and not may_write(self._path):
            return self._open_read_only()
        make_private(self.folder)
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

    def _open_checked(self) -> DiskDatabase:
        create(self._path)
        with contextlib.closing(connect(self._path, self._busy_timeout_s)) as connection:
            migrate(connection, self._path)
            check_layout(connection, KNOWN_SETTINGS)
        return DiskDatabase(self._path, self._busy_timeout_s)

    def _open_read_only(self) -> ReadOnlyDatabase:
        database = ReadOnlyDatabase(self._path)
        migrate(database.connection(), self._path)
        unread = " (but for those of an unfinished run)" if database.leaves_log_unread else ""
        self._notice(
            f"{self.folder}: the cache cannot be written; stored answers are used{unread}, new "
            "ones cannot be kept"
        )
        return database

    def _make_database(self, folder: Path, groups: Iterator[list[NewRow]]) -> int:
        folder.mkdir(mode=0o700)
        create(folder / DATABASE)
        database = DiskDatabase(folder / DATABASE, self._busy_timeout_s)
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
        """Errors of files and SQLite as ours."""
        try:
            yield
        except (OSError, sqlite3.Error) as exc:
            raise self._as_ours(exc, writing=writing) from exc

    def _as_ours(self, error: OSError | sqlite3.Error, *, writing: bool) -> Exception:
        return as_ours(error, self.folder, self._busy_timeout_s, writing=writing)


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
