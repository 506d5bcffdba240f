"""The database file of a cache: diskcache writes it, a read-only connection of our own reads it.

One statement for 500 keys takes a fifth of the time of 500 calls of `diskcache.Cache.get`. The
first write loads diskcache, so a command whose answers are all stored does without.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
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

#: SQLite's numbers of errors in the surroundings of the file; the others are damage.
_SURROUNDINGS = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}


class NewRow(NamedTuple):
    """An encoded answer, and when it was bought, in seconds since 1970."""

    key: str
    value: bytes
    bought_at: float


class StoredRow(NamedTuple):
    """A row as it lies there: `value` is None where it has not the form that claimscore writes,
    `bought_at` 0 where it is no time."""

    rowid: int
    key: str
    bought_at: float
    value: bytes | None


class Database:
    """One database file, as long as it lies where it was opened.

    Raises errors of SQLite for a damaged file, `ConfigError` for one that is no cache of this
    version of claimscore.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path, self._busy_timeout_s = path, busy_timeout_s
        self._reading, self._making = threading.Lock(), threading.Lock()
        self._writer: Any = None
        self._reader = sqlite3.connect(
            # not "ro": the last to close would leave its help files there
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._reader.execute("PRAGMA query_only = 1")
            for switch in ("cache_size", "cell_size_check"):
                self._reader.execute(f"PRAGMA {switch} = {_SETTINGS[f'sqlite_{switch}']}")
            if not _is_whole(self._reader, path):
                self._open_writer()
        except BaseException:
            self._reader.close()
            raise
        self._identity = _identity(path)

    def _open_writer(self) -> Any:
        """diskcache's cache, which has a connection for each thread."""
        with self._making:
            if self._writer is None:
                import diskcache

                from claimscore.cache.bytes_disk import BytesDisk

                self._writer = diskcache.Cache(
                    self._path.parent, self._busy_timeout_s, BytesDisk, **_SETTINGS
                )
        return self._writer

    def select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement that changes nothing; from any thread."""
        with self._reading:
            return self._reader.execute(statement, values).fetchall()

    def look_up(self, keys: Sequence[str]) -> list[tuple[str, object]]:
        """(key, value) of the rows that are there, in any order."""
        rows: list[tuple[str, object]] = []
        with self._reading:
            for start in range(0, len(keys), STEP):
                some = keys[start : start + STEP]
                marks = ("?," * len(some))[:-1]
                statement = f"SELECT key, value FROM Cache WHERE raw = 1 AND key IN ({marks})"
                rows += self._reader.execute(statement, some)
        return rows

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
                rows = [_stored(*row) for row in self.select(statement, last, *limit)]
                walked = [row for row in rows if writer is None or writer.delete(row.key)]
            if not rows:
                return
            if rows[-1].rowid <= last:  # of a damaged page: the walk would begin anew for ever
                raise sqlite3.DatabaseError("its rows are out of order")
            yield walked
            last = rows[-1].rowid

    def put(self, rows: Sequence[NewRow]) -> None:
        """Keep all of these or none, in place of those with the same keys; from any thread."""
        with self._transaction() as writer:
            for row in rows:
                writer.set(row.key, row.value, tag=row.bought_at)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        """diskcache's cache in one transaction. Raises the error of SQLite that came first:
        diskcache raises others over it where a transaction cannot begin or roll back."""
        writer = self._open_writer()
        try:
            with writer.transact():
                yield writer
        except Exception as exc:
            with contextlib.suppress(sqlite3.Error):  # and with it a transaction that is left
                writer.close()
            first: BaseException = exc
            while isinstance(first.__context__, sqlite3.Error):
                first = first.__context__
            raise first from None

    def is_current(self) -> bool:
        """Whether the file at the path is still the one that was opened."""
        return _identity(self._path) == self._identity

    def close(self) -> None:
        """Close; the last one to close a file puts its log into it, so that it can be copied."""
        with self._reading:
            self._reader.close()
        with self._making:
            if self._writer is not None:
                self._writer.close()
                self._writer = None


def _stored(
    rowid: int, key: bytes | None, bought_at: object, value: Any, is_ours: int | None
) -> StoredRow:
    text = bytes(key or b"").decode("utf-8", "backslashreplace")
    time_s = bought_at if isinstance(bought_at, float) and bought_at > 0 else 0.0
    return StoredRow(rowid, text, time_s, value if is_ours else None)


def _is_whole(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the answers' table is there.

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
        ours = settings.get("claimscore", _SETTINGS["claimscore"])
        number = json.loads(ours)["format"]
        maker = "a newer" if number > FORMAT else "an older"
    except (ValueError, TypeError, KeyError):
        raise sqlite3.DatabaseError("the number of its format cannot be read") from None
    if number != FORMAT:
        raise ConfigError(
            f"{path}: made by {maker} claimscore (format {number}; this one knows {FORMAT}); carry "
            "its answers over by `cache export` there and `cache import` here, or name another "
            "folder with --cache-dir"
        )
    return ("Cache", _TABLES["Cache"]) in tables


def sqlite_code(error: BaseException) -> int:
    """SQLite's number for a kind of error; 0 where it is none of SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_damage(error: BaseException) -> bool:
    """Whether an error is the fault of the file, not of its surroundings.

    Python's own errors, without a number, are damage where they speak of the content.
    """
    code = sqlite_code(error)
    if not code:
        return type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError)
    return code not in _SURROUNDINGS


def can_write(path: Path) -> bool:
    """Whether a file, and its folder, can be written."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path.parent, path))


def _identity(path: Path) -> tuple[int, int] | None:
    """An identity that stays the same until the file is replaced; None where there is none."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - twice as fast, and asked for every request
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino
