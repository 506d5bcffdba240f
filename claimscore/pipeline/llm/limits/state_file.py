"""The SQLite file in which processes of one user share what they know of servers.

Transactions are short and nothing in the file is dear, so it lives with a rollback journal, which
a killed writer cannot break and which network home folders bear (SQLite's WAL they do not), and
without syncs: a power cut may damage it, and then it is begun anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

SCHEMA_VERSION = 1

#: What was learnt of a server longer ago than this is forgotten.
FORGET_S = 7 * 24 * 3600.0

#: How long a statement may wait for another process: it is called on the event loop.
BUSY_S = 0.2

#: The file is not, or no longer, a database of ours.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS salt (value BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS paces (scope TEXT, kind TEXT, boot TEXT, free_at REAL, "
    "touched_at REAL, per_minute REAL, at REAL, PRIMARY KEY (scope, kind, boot)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS facts (scope TEXT, name TEXT, value TEXT, at REAL, "
    "PRIMARY KEY (scope, name)) WITHOUT ROWID",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

#: Connections that a fork brought along. SQLite forbids even closing them in the child.
_INHERITED: list[sqlite3.Connection] = []


class Book(NamedTuple):
    """An open file, and what this server and key are called in it."""

    connection: sqlite3.Connection
    scope: str


class OtherVersion(sqlite3.DatabaseError):
    """The file was made by a claimscore that keeps other things in it."""

    def __init__(self, version: int) -> None:
        super().__init__(f"made by another version of claimscore (schema {version})")
        self.version = version


class StateFile:
    """The database: opened when first used, and again after a fork or when it was replaced."""

    def __init__(self, path: Path, scope: str) -> None:
        self.path = path
        self._scope = scope
        self._book: Book | None = None
        self._pid = 0
        self._identity: tuple[int, int] | None = None

    def transact(self, work: Callable[[Book], T], wall_time: float) -> T:
        """Do `work`, wholly or not at all, while no other process is at it."""
        book = self._current() or self._open(wall_time)
        with _transaction(book.connection):
            return work(book)

    def set_aside(self, why: str) -> Path | None:
        """Rename file and journal; None where another process already has."""
        if _identity(self.path) != self._identity:
            self.close()
            return None
        self.close()
        aside = _unused(self.path.with_name(f"{self.path.name}.{why}"))
        journal = self.path.with_name(f"{self.path.name}-journal")
        with contextlib.suppress(FileNotFoundError):
            # First: left behind, it would be rolled back into the new file.
            journal.rename(aside.with_name(f"{aside.name}-journal"))
        self.path.rename(aside)
        return aside

    def close(self) -> None:
        if self._book is not None:
            if self._pid == os.getpid():
                self._book.connection.close()
            else:
                _INHERITED.append(self._book.connection)
        self._book = None

    def _current(self) -> Book | None:
        """The open file, if it is this process's and still the one under its name."""
        if self._pid != os.getpid() or _identity(self.path) != self._identity:
            self.close()
        return self._book

    def _open(self, wall_time: float) -> Book:
        _make_private(self.path)
        self._pid, self._identity = os.getpid(), _identity(self.path)
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
        )
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = PERSIST")
            with _transaction(connection):
                salt = _set_up(connection, wall_time)
        except BaseException:
            connection.close()
            raise
        digest = hashlib.blake2b(self._scope.encode(), key=salt, digest_size=16)
        self._book = Book(connection, digest.hexdigest())
        return self._book


def _set_up(connection: sqlite3.Connection, wall_time: float) -> bytes:
    """Make the tables where they are missing, forget what is old; return the salt."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO salt VALUES (?)", (secrets.token_bytes(32),))
    elif version != SCHEMA_VERSION:
        raise OtherVersion(version)
    for table in ("paces", "facts"):
        connection.execute(f"DELETE FROM {table} WHERE at < ?", (wall_time - FORGET_S,))
    (salt,) = connection.execute("SELECT value FROM salt").fetchone()
    return bytes(salt)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is in the block or nothing; others wait from its first statement on."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _make_private(path: Path) -> None:
    """An empty file that only the user can read, in folders made likewise."""
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            folder.mkdir(mode=0o700)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:  # not opened here: closing it would drop this process's locks
        if path.is_file():
            path.chmod(0o600)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, at every lease
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _unused(path: Path) -> Path:
    """The first of path-1, path-2 and so on that is not taken."""
    n = 1
    while path.with_name(f"{path.name}-{n}").exists():
        n += 1
    return path.with_name(f"{path.name}-{n}")


def why_replace(error: Exception) -> str | None:
    """In a word for a file's name, why a new file must be begun; None where that would not help."""
    if isinstance(error, OtherVersion):
        return f"version-{error.version}"
    return "damaged" if _primary_code(error) in _DAMAGED else None


def is_locked(error: Exception) -> bool:
    """Whether another process is at the file."""
    return _primary_code(error) in _LOCKED


def _primary_code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
