"""The database file of a cache: made by diskcache, read and written through connections of our own.

diskcache makes the file with its tables, triggers and settings, and can read it. It does no more:
one statement for 500 keys takes a fifth of the time of 500 calls of `diskcache.Cache.get`, and
`diskcache.Cache.set` hands the interpreter to other threads five times an answer, so that beside a
busy event loop a group of 64 takes 21 ms instead of 1 ms.

The values are JSON bytes under text keys. diskcache pickles anything else by default, and
unpickles any row that says so, which runs code out of a file (CVE-2025-69872); it is given no row
to read or write here.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from claimscore.errors import ConfigError

#: The name of the file, which diskcache gives it.
DATABASE = "cache.db"

#: The meaning of a stored row. Its number stands among diskcache's settings, under `claimscore`.
FORMAT = 1

_SETTINGS: dict[str, Any] = {
    "claimscore": json.dumps({"format": FORMAT}),
    "eviction_policy": "none",
    "cull_limit": 0,
    "statistics": 0,
    "disk_min_file_size": 2**31,  # larger than any answer: all values lie in the database
    "sqlite_auto_vacuum": 1,  # pruned answers give their room back
    "sqlite_journal_mode": "wal",
    "sqlite_synchronous": 1,
    "sqlite_mmap_size": 0,  # reading a mapped file that was cut off kills the process
    "sqlite_cache_size": 1024,  # pages a connection, 4 MB: with twice as many it is no faster
    "sqlite_cell_size_check": 1,  # SQLite finds damaged pages earlier
}
#: The names of all settings: these, and diskcache's others.
_KNOWN_SETTINGS = {
    *_SETTINGS,
    *("size_limit", "tag_index", "disk_pickle_protocol", "count", "size", "hits", "misses"),
}

_TABLES = {
    "Settings": "key,value",
    "Cache": "rowid,key,raw,store_time,expire_time,access_time,access_count,tag,size,mode,filename,"
    "value",
}

#: Keys in one look-up (SQLite takes at least 999), and rows of one step of a walk.
STEP = 500

#: A row as `StoredRow` has it. The tag is the time of an answer that was bought elsewhere. The key
#: comes as bytes, since a damaged one may not be text.
_ROW = """
    rowid, CAST(key AS BLOB), coalesce(tag, store_time), value,
    raw = 1 AND mode = 1 AND typeof(key) = 'text' AND typeof(value) = 'blob'
"""

_PUT = """
    INSERT INTO Cache (key, raw, store_time, access_time, tag, mode, value)
    VALUES (?1, 1, ?2, ?2, ?3, 1, ?4)
    ON CONFLICT (key, raw) DO UPDATE SET
        store_time = excluded.store_time, access_time = excluded.access_time, access_count = 0,
        expire_time = NULL, tag = excluded.tag, size = 0, mode = 1, filename = NULL,
        value = excluded.value
"""

#: SQLite's numbers of errors in the file itself; the others concern its surroundings. `ERROR` may
#: be a bug of ours too.
_DAMAGE = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_NOTADB,
}


class NewRow(NamedTuple):
    """An encoded answer to write; `bought_at` (seconds since 1970) is None for now."""

    key: str
    value: bytes
    bought_at: float | None = None


class StoredRow(NamedTuple):
    """A row as it lies there. `is_ours`: a text key and bytes; else both may be anything."""

    rowid: int
    key: str
    bought_at: object
    value: object
    is_ours: bool


class Database:
    """One database file, as long as it lies where it was opened.

    One that cannot be written can be read all the same. Raises errors of SQLite for a damaged
    file, `ConfigError` for one that is no cache of this version of claimscore.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = str(path)
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self.leaves_log_unread = False
        if can_write(path):
            self._writer = _open(path, "rw", busy_timeout_s)
        try:
            is_checked = self._writer is not None
            self._reader = _open(path, "ro", busy_timeout_s, is_checked=is_checked)
        except sqlite3.OperationalError:
            if self._writer is not None:
                raise
            # SQLite reads a file whose help files it cannot make only as one that never changes.
            log = path.with_name(f"{path.name}-wal")
            self.leaves_log_unread = log.exists() and log.stat().st_size > 0
            self._reader = _open(path, "ro&immutable=1", busy_timeout_s)
        self._identity = _identity(self._path)

    def select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement that changes nothing; from any thread."""
        with self._reading:
            return self._reader.execute(statement, values).fetchall()

    def look_up(self, keys: Sequence[str]) -> list[tuple[str, object]]:
        """(key, value) of the rows that are there, in any order."""
        found: list[tuple[str, object]] = []
        with self._reading:
            for start in range(0, len(keys), STEP):
                some = keys[start : start + STEP]
                marks = ("?," * len(some))[:-1]
                statement = f"SELECT key, value FROM Cache WHERE raw = 1 AND key IN ({marks})"
                found += self._reader.execute(statement, some)
        return found

    def walk(
        self, bought_before: float | None = None, *, remove: bool = False
    ) -> Iterator[list[StoredRow]]:
        """Every row in the order of their numbers, some hundreds in memory at a time.

        Nothing is held between the steps: other processes may write, and the walk may meet what
        they write or not. With `bought_before`, only rows with an earlier time of purchase. With
        `remove`, the rows of a step are read in the transaction that removes them.
        """
        old = "" if bought_before is None else "AND coalesce(tag, store_time) < ?2"
        statement = f"SELECT {_ROW} FROM Cache WHERE rowid > ?1 {old} ORDER BY rowid LIMIT {STEP}"
        limit = [] if bought_before is None else [bought_before]
        last = -(2**63)
        while True:
            with self._transaction() if remove else contextlib.nullcontext() as writer:
                rows = self.select(statement, last, *limit)
                if writer is not None:
                    writer.executemany(
                        "DELETE FROM Cache WHERE rowid = ?", [row[:1] for row in rows]
                    )
            if not rows:
                return
            yield [_stored(*row) for row in rows]
            last = rows[-1][0]

    def put(self, rows: Sequence[NewRow]) -> None:
        """Keep all of these or none, in place of those with the same keys; from any thread."""
        now = time.time()
        with self._transaction() as writer:
            writer.executemany(_PUT, [(row.key, now, row.bought_at, row.value) for row in rows])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        writer = self._writer
        assert writer is not None, "the cache refuses to write where it cannot"
        with self._writing:
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield writer
                writer.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
                    writer.execute("ROLLBACK")
                raise

    def is_current(self) -> bool:
        """Whether the file at the path is still the one that was opened."""
        return _identity(self._path) == self._identity

    def close(self) -> None:
        """Close; what the log holds goes into the file, so that one file can be copied."""
        with self._reading:
            self._reader.close()
        if self._writer is None:
            return
        with self._writing:
            if self.is_current():
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._writer.close()


def _stored(
    rowid: int, key: bytes | None, bought_at: object, value: object, is_ours: int | None
) -> StoredRow:
    text = bytes(key or b"").decode("utf-8", "backslashreplace")
    return StoredRow(rowid, text, bought_at, value, bool(is_ours))


def readable_rows(path: Path) -> Iterator[StoredRow]:
    """Every row that SQLite can still read of a damaged file, which is left as it is.

    A row on a damaged page is stepped over, with the rows that can be reached only through it.
    """
    statement = f"SELECT {_ROW} FROM Cache WHERE rowid >= ? ORDER BY rowid"
    with contextlib.closing(_connect_damaged(path)) as connection:

        def is_readable(start: int) -> bool:
            try:
                row = connection.execute(f"{statement} LIMIT 1", (start,)).fetchone()
            except sqlite3.DatabaseError:
                return False
            return row is None or row[0] >= start

        start = 0
        while start < 2**62:  # a damaged row may have any number
            try:
                for row in connection.execute(statement, (start,)):
                    start = max(start, row[0] + 1)
                    yield _stored(*row)
                return
            except sqlite3.DatabaseError:
                # one by one, since a page has few rows; then farther and farther, and back
                ahead = itertools.chain(range(1, STEP), (2**n for n in range(9, 62)))
                reach = next((n for n in ahead if is_readable(start + n)), None)
            if reach is None:
                return
            start += bisect.bisect_left(
                range(reach), True, lo=(reach + 1) // 2, key=lambda n: is_readable(start + n)
            )


def counted(path: Path) -> int | None:
    """The number of answers that a damaged file says it has; None where it cannot be read."""
    with contextlib.closing(_connect_damaged(path)) as connection:
        try:
            found = connection.execute("SELECT value FROM Settings WHERE key = 'count'").fetchone()
        except sqlite3.DatabaseError:
            return None
    return found[0] if found and type(found[0]) is int else None


def _open(
    path: Path, mode: str, busy_timeout_s: float, *, is_checked: bool = False
) -> sqlite3.Connection:
    """A connection to the cache, which diskcache makes where it is not all there yet."""
    connection = _connect(path, mode, busy_timeout_s)
    try:
        for switch in ("synchronous", "cache_size", "cell_size_check"):  # each connection's own
            connection.execute(f"PRAGMA {switch} = {_SETTINGS[f'sqlite_{switch}']}")
        is_whole = is_checked or _is_whole(connection, path)
        if mode == "rw" and not is_whole:
            import diskcache

            diskcache.Cache(str(path.parent), timeout=busy_timeout_s, **_SETTINGS).close()
        elif mode == "rw":  # a damaged header may say that the file cannot be written
            connection.execute("UPDATE Settings SET value = value WHERE key IS NULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_whole(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether everything is there that diskcache makes, and set as `_SETTINGS` says.

    Refuses a file that diskcache must not be trusted with, or that has another format: diskcache
    sets SQLite's switches to the values that it finds among the settings.
    """
    columns = """
        SELECT t.name, group_concat(c.name) FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' GROUP BY t.name
    """
    tables = set(connection.execute(columns))
    settings = {}
    if ("Settings", _TABLES["Settings"]) in tables:
        settings = dict(connection.execute("SELECT key, value FROM Settings"))
    for what, unknown in (
        ("tables", tables - _TABLES.items()),
        ("settings", settings.keys() - _KNOWN_SETTINGS),
    ):
        if unknown:
            raise ConfigError(
                f"{path}: not a cache of claimscore (it has other {what}); move it away, or name "
                "another folder with --cache-dir"
            )
    if not settings:
        return False
    try:
        found = json.loads(settings["claimscore"])["format"] if "claimscore" in settings else FORMAT
        maker = "a newer" if found > FORMAT else "an older"
    except (ValueError, TypeError, KeyError):
        raise sqlite3.DatabaseError("the number of its format cannot be read") from None
    if found != FORMAT:
        raise ConfigError(
            f"{path}: made by {maker} claimscore (format {found}; this one knows {FORMAT}); carry "
            "its answers over by `cache export` there and `cache import` here, or name another "
            "folder with --cache-dir"
        )
    last = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'Settings_size_delete'")
    return bool(last.fetchall()) and settings.items() >= _SETTINGS.items()


def sqlite_code(error: BaseException) -> int:
    """SQLite's number for a kind of error; 0 where it is none of SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_damage(error: BaseException, path: Path) -> bool:
    """Whether an error is the fault of the file, not of its surroundings.

    Python's own errors, without a number, are damage where they speak of the content. A damaged
    header may also claim that the file cannot be written.
    """
    code = sqlite_code(error)
    if code == sqlite3.SQLITE_READONLY:
        return can_write(path)
    if not code:
        return type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError)
    return code in _DAMAGE


def can_write(path: Path) -> bool:
    """Whether a file, and its folder, can be written."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path.parent, path))


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )


def _connect_damaged(path: Path) -> sqlite3.Connection:
    """Without a log no help files are made beside the file."""
    log = path.with_name(f"{path.name}-wal")
    return _connect(path, "ro" if log.exists() else "ro&immutable=1", 0.0)


def _identity(path: str) -> tuple[int, int] | None:
    """An identity that stays the same until the file is replaced; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - twice as fast, and asked for every request
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
