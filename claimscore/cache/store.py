"""Where paid answers lie: a folder with one database, which several processes may share."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from claimscore.atomic import reason
from claimscore.cache.database import (
    DATABASE,
    Database,
    NewRow,
    StoredRow,
    can_write,
    is_damage,
    sqlite_code,
)
from claimscore.cache.entry import Entry, checked_entry, decode_entry, encode_entry
from claimscore.cache.in_flight_locks import InFlightLocks
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock

T = TypeVar("T")

_BUSY_TIMEOUT_S = 60.0

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}

#: What to do with a damaged database. Unlike `.recover`, every build of sqlite3 has `.dump`; it
#: reads a table from both ends and says ROLLBACK where it met damage.
_RESCUE = (
    "in its folder, `mkdir old && mv cache.db* old && sqlite3 old/cache.db .dump | "
    "sed 's/^ROLLBACK.*/COMMIT;/' | sqlite3 cache.db` makes a new cache of what can be read; "
    "the rest is asked again"
)


class DiskCache:
    """A folder that several processes may share; nothing is ever evicted.

    A kill at any moment loses nothing that `put_many` returned for (SQLite's WAL); a power cut may
    lose the last commits, never earlier ones. A damaged entry counts as missing (`notices` and
    `on_notice` tell of the first). `on_kept` gets the rows of each `put_many` after its commit, in
    its thread; not those of an import. Raises `ConfigError` at opening for a damaged database,
    which is left as it is, and for a folder that cannot be written; `StoppedEarly` for damage in
    use.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_notice: Callable[[str], None] | None = None,
        on_kept: Callable[[Sequence[NewRow]], None] | None = None,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
    ) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self._on_notice = on_notice
        self._on_kept = on_kept
        self._busy_timeout_s = busy_timeout_s
        self._has_told_damage = False
        self._path = folder.absolute() / DATABASE
        locks = self._path.with_name(f"{DATABASE}.in-flight")
        with self._explained():
            self._database = self._open(was_used=locks.exists())
        self._in_flight = InFlightLocks(locks)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there is one in a folder; opening it would make one."""
        try:
            return (folder / DATABASE).exists()
        except OSError as exc:
            raise ConfigError(_unusable(folder, reason(exc))) from exc

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Inline look-ups, a few us each; a thread hop would cost more than most calls."""
        rows = self._use(lambda database: database.look_up(keys))
        entries = {}
        for key, value in rows:
            entry = decode_entry(key, value) if type(value) is bytes else None
            if entry is None:
                self._tell_damage(key)
            else:
                entries[key] = entry
        return entries

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""
        now = time.time()
        rows = [NewRow(key, encode_entry(key, entry), now) for key, entry in entries.items()]
        self.put_rows(rows)
        if self._on_kept is not None:
            self._on_kept(rows)

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
        """The result of `work`. `StoppedEarly` where it fails, or where the file is not there any
        more after it, so that `work` was in vain."""
        with self._explained(StoppedEarly):
            result = work(self._database)
            if self._database.is_current():
                return result
        raise StoppedEarly(
            f"{self.folder}: the cache was removed or replaced while this process used it; "
            "run the same command again"
        )

    @contextlib.contextmanager
    def inspected(self) -> Iterator[Database]:
        """The database as it is, for maintenance; its errors become ours."""
        with self._explained():
            yield self._database

    def _open(self, *, was_used: bool) -> Database:
        """The database in the folder, made if there is none, by one process at a time."""
        if self._path.exists() and not can_write(self._path):
            raise ConfigError(
                f"{self.folder}: the cache cannot be written; make folder and files writable for "
                "you, or copy the folder and name the copy with --cache-dir"
            )
        _make_private(self.folder)
        lock = FileLock.take(
            self._path.with_name(f"{DATABASE}.lock"),
            patience_s=self._busy_timeout_s,
            required=False,
        )
        if lock is None:
            raise StoppedEarly(
                f"{self.folder}: another process has been opening the cache for "
                f"{self._busy_timeout_s:g} s; see what it is doing"
            )
        with lock:
            if was_used and self._path.exists() and not self._path.stat().st_size:
                raise sqlite3.DatabaseError("the file was emptied")
            _create(self._path)
            return Database(self._path, self._busy_timeout_s)

    def _tell_damage(self, key: str) -> None:
        if not self._has_told_damage:
            self._has_told_damage = True
            text = (
                f"{self.folder}: the stored answer {key} is damaged and is asked again; "
                "`claimscore cache verify` looks for others"
            )
            self.notices.append(text)
            if self._on_notice is not None:
                self._on_notice(text)

    @contextlib.contextmanager
    def _explained(self, kind: type[ClaimscoreError] = ConfigError) -> Iterator[None]:
        """Errors of files and SQLite as ours: of this kind, where waiting does not help."""
        try:
            yield
        except (OSError, sqlite3.Error) as exc:
            raise self._translate_error(exc, kind) from exc

    def _translate_error(self, error: BaseException, kind: type[ClaimscoreError]) -> Exception:
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
        if is_damage(error):
            return kind(f"{self._path} is damaged ({why}); {_RESCUE}")
        return kind(_unusable(self.folder, why))


def _unusable(folder: Path, why: str) -> str:
    return (
        f"{folder}: the cache cannot be used ({why}); make the folder readable and writable for "
        "you, or name another one with --cache-dir"
    )


def entry_of(row: StoredRow) -> Entry | str:
    """The answer of a row, or why it holds none, for people."""
    return checked_entry(row.key, row.value or b"")


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
