"""Where paid answers lie: a folder with one database, which several processes may share."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from claimscore.atomic import reason, sync_folder
from claimscore.cache.database import (
    DATABASE,
    STEP,
    Database,
    NewRow,
    StoredRow,
    can_write,
    counted,
    is_damage,
    readable_rows,
    sqlite_code,
)
from claimscore.cache.entry import Entry, damage_of, decode_entry, encode_entry
from claimscore.cache.in_flight_locks import InFlightLocks
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock

T = TypeVar("T")

_BUSY_TIMEOUT_S = 60.0

#: How often work is done on a database before the cache gives up: damage may come again.
_TRIES = 3

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


class DiskCache:
    """A folder that several processes may share; nothing is ever evicted.

    A kill at any moment loses nothing that `put_many` returned for (SQLite's WAL); a power cut may
    lose the last commits, never earlier ones. A damaged database is set aside, at opening or in
    use, and a new one takes over the rows that SQLite can still read (`recoveries` and `notices`
    say so; `on_notice` hears of it at once, in the thread where it happens). A folder that cannot
    be written is refused.
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
        self.recoveries: list[str] = []
        self._on_notice = on_notice
        self._busy_timeout_s = busy_timeout_s
        self._has_told_damage = False
        self._path = folder.absolute() / DATABASE
        self._replacing = threading.Lock()
        with self._explained():
            self._database = self._open()
        self._in_flight = InFlightLocks(self._path.with_name(f"{DATABASE}.in-flight"))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there is one in a folder; opening it would make one."""
        return (folder / DATABASE).exists()

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Inline look-ups, a few us each; a thread hop would cost more than most calls."""
        rows = self._use(lambda database: database.look_up(keys))
        found = {}
        for key, value in rows:
            entry = decode_entry(key, value) if type(value) is bytes else None
            if entry is None:
                self._tell_damage(key)
            else:
                found[key] = entry
        return found

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""
        self.put_rows([NewRow(key, encode_entry(key, entry)) for key, entry in entries.items()])

    def put_rows(self, rows: Sequence[NewRow]) -> None:
        """The same for encoded entries that were bought earlier."""
        self._use(lambda database: database.put(rows))

    def try_lock(self, key: str) -> bool:
        return self._in_flight.try_lock(key)

    def unlock(self, key: str) -> None:
        self._in_flight.unlock(key)

    def close(self) -> None:
        self._in_flight.close()
        self._database.close()

    # -- for maintenance

    @property
    def set_aside(self) -> list[str]:
        """The names of files that hold damage, the newest last."""
        paths = self.folder.glob("*damaged-*[0-9]")
        return [path.name for path in sorted(paths, key=lambda path: (len(path.name), path.name))]

    @contextlib.contextmanager
    def inspected(self) -> Iterator[Database]:
        """The database as it is: damage is an error that says so, and nothing is replaced."""
        with self._explained():
            yield self._database

    def recover(self, why: str) -> None:
        """Set the database aside and take over the rows that SQLite can read."""
        with self._explained():
            self._replace(self._database, why)

    # -- one database after the other

    def _use(self, work: Callable[[Database], T]) -> T:
        """The result of `work` on the database that is in place after it.

        A database that was set aside meanwhile may have taken rows in vain: `work` is done again.
        """
        for n_left in reversed(range(_TRIES)):
            database, why = self._database, None
            try:
                found = work(database)
                if database.is_current():
                    return found
            except (OSError, sqlite3.Error) as exc:
                if n_left == 0 or not is_damage(exc, self._path):
                    raise self._translate_error(exc, StoppedEarly) from exc
                # other errors may be bugs of ours: opening looks at the file by itself
                certain = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY)
                why = str(exc) if sqlite_code(exc) in certain else None
            with self._explained():
                self._replace(database, why)
        raise StoppedEarly(f"{self.folder}: the cache is replaced again and again; look into it")

    def _replace(self, database: Database, why: str | None) -> None:
        """Open the database that is in place now, after setting a damaged one aside.

        Of all threads and processes that meet the damage one does this; the others wait.
        """
        with self._replacing:
            if self._database is not database:
                return
            self._database = self._open(database, why)
            database.close()

    def _open(self, damaged: Database | None = None, why: str | None = None) -> Database:
        """The database in the folder: made if there is none, replaced if it is damaged."""
        if self._path.exists() and not can_write(self._path):
            raise ConfigError(
                f"{self.folder}: the cache cannot be written; make folder and files writable for "
                "you, or copy the folder and name the copy with --cache-dir"
            )
        _make_private(self.folder)
        with self._only_process() as lock:
            was_used = os.fstat(lock.descriptor).st_size > 0
            if why is None and was_used and self._path.exists() and not self._path.stat().st_size:
                why = "the file was emptied"
            elif damaged is not None and not damaged.is_current():
                why = None  # another process was faster
            try:
                if why is not None:
                    raise sqlite3.DatabaseError(why)
                database = self._open_whole()
            except sqlite3.Error as exc:
                if not is_damage(exc, self._path):
                    raise
                self._set_aside()
                database = self._open_whole(str(exc))
            if not was_used:
                os.write(lock.descriptor, b"1\n")  # from now on an empty database is damage
            return database

    @contextlib.contextmanager
    def _only_process(self) -> Iterator[FileLock]:
        """No other process opens or replaces the database meanwhile."""
        lock = FileLock.take(
            self._path.with_name(f"{DATABASE}.lock"),
            patience_s=self._busy_timeout_s,
            required=False,
        )
        if lock is None:
            raise StoppedEarly(
                f"{self.folder}: another process has been replacing the cache for "
                f"{self._busy_timeout_s:g} s; see what it is doing"
            )
        with lock:
            yield lock

    # -- recovery: a killed one is finished when the cache is opened next

    @property
    def _quarantine(self) -> Path:
        """A damaged database whose rows are not taken over yet."""
        return self._path.with_name(f"{DATABASE}.recovering")

    def _set_aside(self) -> None:
        """First the database, then its log: a log without a database waits for this."""
        if self._quarantine.exists():  # then the database is the broken beginning of its copy
            _log(self._path).unlink(missing_ok=True)
            self._path.unlink()
        else:
            self._path.replace(self._quarantine)
        self._set_log_aside()

    def _set_log_aside(self) -> None:
        _move(_log(self._path), _log(self._quarantine))
        self._path.with_name(f"{DATABASE}-shm").unlink(missing_ok=True)  # an index of the log
        sync_folder(self.folder)

    def _open_whole(self, why: str = "a recovery was interrupted") -> Database:
        """The database with the rows of one that was set aside, if there is one."""
        damaged = self._quarantine
        if damaged.exists() and not self._path.exists():
            self._set_log_aside()
        _create(self._path)
        database = Database(self._path, self._busy_timeout_s)
        if damaged.exists():
            try:
                self._take_over(database, why)
            except BaseException:
                database.close()
                raise
        return database

    def _take_over(self, database: Database, why: str) -> None:
        """Keep the sound rows of the database in quarantine, and say what became of it."""
        damaged = self._quarantine
        n_before, n_taken = counted(damaged), 0
        rows = (
            NewRow(row.key, row.value, time_s(row.bought_at))
            for row in readable_rows(damaged)
            if type(row.value) is bytes and damage_of_row(row) is None
        )
        while some := list(itertools.islice(rows, STEP)):
            database.put(some)
            n_taken += len(some)
        aside = next(
            path
            for number in itertools.count(1)
            if not (path := self._path.with_name(f"{DATABASE}.damaged-{number}")).exists()
        )
        damaged.with_name(f"{damaged.name}-shm").unlink(missing_ok=True)
        _move(_log(damaged), _log(aside))
        damaged.rename(aside)
        sync_folder(self.folder)
        if n_before is None:
            losses = "how many are lost is not known"
        else:
            n_lost = max(0, n_before - n_taken)
            losses = f"about {n_lost:,} are lost" if n_lost else "none is known to be lost"
        notice = (
            f"{self.folder}: the cache was damaged ({why}) and is set aside as {aside.name}; "
            f"{n_taken:,} answers were saved, {losses}; what is missing is asked again"
        )
        self.recoveries.append(notice)
        self._notice(notice)

    # -- words

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        if self._on_notice is not None:
            self._on_notice(text)

    def _tell_damage(self, key: str) -> None:
        if not self._has_told_damage:
            self._has_told_damage = True
            self._notice(
                f"{self.folder}: the stored answer {key} is damaged and is asked again; "
                "`claimscore cache verify` looks for others"
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of files and SQLite as ours."""
        try:
            yield
        except (OSError, sqlite3.Error) as exc:
            raise self._translate_error(exc) from exc

    def _translate_error(
        self, error: BaseException, kind: type[ClaimscoreError] = ConfigError
    ) -> Exception:
        """The error as one of ours, in a line with the folder and what to do."""
        code = sqlite_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
            return StoppedEarly(
                f"{self.folder}: another process has held the cache locked for "
                f"{self._busy_timeout_s:g} s; see what it is doing"
            )
        why = reason(error) if isinstance(error, OSError) else str(error)
        if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in _DISK_FULL:
            return StoppedEarly(f"{self.folder}: answers cannot be kept ({why}); make room there")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return ConfigError(
                f"{self.folder}: the cache is damaged ({why}); `claimscore cache verify --repair` "
                "saves what can be read"
            )
        return kind(
            f"{self.folder}: the cache cannot be used ({why}); make the folder readable and "
            "writable for you, or name another one with --cache-dir"
        )


def damage_of_row(row: StoredRow) -> str | None:
    """Why a row holds no answer, for people; None where it holds one."""
    if not (row.is_ours and type(row.value) is bytes):
        return "it is not in the form that claimscore writes"
    return damage_of(row.key, row.value)


def time_s(stored: object) -> float:
    """A time of purchase; 0 where it is none."""
    return stored if isinstance(stored, float) and stored > 0 else 0.0


def _log(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def _move(path: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.replace(target)


def _make_private(folder: Path) -> None:
    """Create the folder so that no other user can read it.

    A folder that holds other things (`--cache-dir .`) keeps its own mode: it is not ours to
    close. The database file is private in any case.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(new):
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=0o700)
    if (folder / DATABASE).exists() or not any(folder.iterdir()):
        folder.chmod(0o700)


def _create(database: Path) -> None:
    """An empty, private file, where there is none yet.

    One that is there is not opened: closing it would drop SQLite's locks of other threads.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
