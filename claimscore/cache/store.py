"""Where paid answers lie: a folder with one database, which several processes may share."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sqlite3
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
from claimscore.cache.entry import Entry, checked_entry, decode_entry, encode_entry
from claimscore.cache.in_flight_locks import InFlightLocks
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock

T = TypeVar("T")

_BUSY_TIMEOUT_S = 60.0

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


class DiskCache:
    """A folder that several processes may share; nothing is ever evicted.

    A kill at any moment loses nothing that `put_many` returned for (SQLite's WAL); a power cut may
    lose the last commits, never earlier ones. Damage that is met in use is noted and raises
    `StoppedEarly`. A damaged database is set aside at the next opening, and a new one takes over
    the rows that SQLite can still read (`notices` say so; `on_notice` hears of it at once). A
    folder that cannot be written is refused.
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
        self._copy = self._path.with_name(f"{DATABASE}.new") / DATABASE
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

    def _use(self, work: Callable[[Database], T]) -> T:
        """The result of `work`. `StoppedEarly` where the file is damaged, or is not there any more
        after it, so that `work` was in vain."""
        try:
            found = work(self._database)
        except (OSError, sqlite3.Error) as exc:
            if not is_damage(exc, self._path):
                raise self._translate_error(exc, StoppedEarly) from exc
            self._note_damage(exc)
            raise StoppedEarly(
                f"{self.folder}: the cache is damaged ({exc}); run the same command again, which "
                "first saves the answers that can be read"
            ) from exc
        if not self._database.is_current():
            raise StoppedEarly(
                f"{self.folder}: the cache was removed or replaced while this process used it; "
                "run the same command again"
            )
        return found

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
        self._note_damage(why)
        self._database.close()
        with self._explained():
            self._database = self._open()

    # -- opening

    def _open(self) -> Database:
        """The database in the folder: made if there is none, replaced if it is damaged.

        The lock file has a line once the database is made, so an empty one is damage. Further lines
        say which damage was met: a killed recovery is done again.
        """
        if self._path.exists() and not can_write(self._path):
            raise ConfigError(
                f"{self.folder}: the cache cannot be written; make folder and files writable for "
                "you, or copy the folder and name the copy with --cache-dir"
            )
        _make_private(self.folder)
        with self._only_process() as lock:
            was_used, *damage = os.pread(lock.descriptor, 4096, 0).splitlines() or [b""]
            why = damage[0].decode() if damage else ""
            if was_used and self._path.exists() and not self._path.stat().st_size:
                why = "the file was emptied"
            try:
                if why and (self._path.exists() or self._copy.exists()):
                    raise sqlite3.DatabaseError(why)
                _create(self._path)
                database = Database(self._path, self._busy_timeout_s)
            except sqlite3.Error as exc:
                if not is_damage(exc, self._path):
                    raise
                os.pwrite(lock.descriptor, _note(exc), 0)
                database = self._recovered(str(exc))
            os.ftruncate(lock.descriptor, 0)
            os.pwrite(lock.descriptor, b"1\n", 0)
            return database

    @contextlib.contextmanager
    def _only_process(self) -> Iterator[FileLock]:
        """No other process opens or replaces the database meanwhile."""
        lock = FileLock.take(self._lock_file, patience_s=self._busy_timeout_s, required=False)
        if lock is None:
            raise StoppedEarly(
                f"{self.folder}: another process has been replacing the cache for "
                f"{self._busy_timeout_s:g} s; see what it is doing"
            )
        with lock:
            yield lock

    @property
    def _lock_file(self) -> Path:
        return self._path.with_name(f"{DATABASE}.lock")

    def _note_damage(self, why: object) -> None:
        """Let the next opening set the database aside."""
        with self._explained(), self._lock_file.open("r+b") as stream:
            stream.write(_note(why))

    def _recovered(self, why: str) -> Database:
        """A new database with the sound rows of the damaged one, which is set aside."""
        if self._path.exists():  # else this one was killed below
            shutil.rmtree(self._copy.parent, ignore_errors=True)
            self._copy.parent.mkdir(mode=0o700)
            self._fill_copy()
            numbers = (self._path.with_name(f"{DATABASE}.damaged-{n}") for n in itertools.count(1))
            self._path.replace(next(path for path in numbers if not path.exists()))
        aside = self._path.with_name(self.set_aside[-1])
        _move(_log(self._path), _log(aside))
        self._path.with_name(f"{DATABASE}-shm").unlink(missing_ok=True)  # an index of the log
        _move(self._copy, self._path)
        shutil.rmtree(self._copy.parent, ignore_errors=True)
        sync_folder(self.folder)
        database = Database(self._path, self._busy_timeout_s)
        self._tell_recovery(why, aside, database)
        return database

    def _fill_copy(self) -> None:
        _create(self._copy)
        with contextlib.closing(Database(self._copy, self._busy_timeout_s)) as copy:
            rows = (
                NewRow(row.key, row.value, row.bought_at)
                for row in readable_rows(self._path)
                if row.value is not None and isinstance(entry_of(row), Entry)
            )
            while some := list(itertools.islice(rows, STEP)):
                copy.put(some)
            copy.select("PRAGMA wal_checkpoint(TRUNCATE)")  # all of it is in the one file

    # -- words

    def _tell_recovery(self, why: str, aside: Path, database: Database) -> None:
        n_before, ((n_saved,),) = counted(aside), database.select("SELECT COUNT(*) FROM Cache")
        losses = "how many are lost is not known"
        if n_before is not None:
            n_lost = max(0, n_before - n_saved)
            losses = f"about {n_lost:,} are lost" if n_lost else "none is known to be lost"
        notice = (
            f"{self.folder}: the cache was damaged ({why}) and is set aside as {aside.name}; "
            f"{n_saved:,} answers were saved, {losses}; what is missing is asked again"
        )
        self.recoveries.append(notice)
        self._notice(notice)

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


def entry_of(row: StoredRow) -> Entry | str:
    """The answer of a row, or why it holds none, for people."""
    return checked_entry(row.key, row.value or b"")


def _note(why: object) -> bytes:
    return b"1\n" + " ".join(str(why).split()).encode("ascii", "replace") + b"\n"


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
