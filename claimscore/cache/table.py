"""The table that diskcache keeps, read and written by the hundred.

diskcache makes the table, its indexes and the triggers that count rows; these statements do
to it what diskcache's own `get`, `set` and `delete` do one row a call, several times faster.
Keys are text and values are bytes in the row itself, always; what else a row may say (a
pickle, a file to read) is never followed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

#: diskcache's number for "the bytes of `value`, as they are".
MODE_RAW = 1

#: Keys in one look-up (SQLite takes at least 999), and rows of one step of a walk.
_LOOK_UP = _STEP = 500

_UPSERT = """
    INSERT INTO Cache (key, raw, store_time, expire_time, access_time, access_count, tag, size,
                       mode, filename, value)
    VALUES (?1, 1, ?2, NULL, ?2, 0, NULL, 0, 1, NULL, ?3)
    ON CONFLICT (key, raw) DO UPDATE SET
        store_time = excluded.store_time, expire_time = NULL, access_time = excluded.access_time,
        access_count = 0, tag = NULL, size = 0, mode = 1, filename = NULL, value = excluded.value
"""

#: Keys as bytes: a damaged one may not be text.
_NEXT_ROWS = """
    SELECT rowid, CAST(key AS BLOB),
           raw = 1 AND mode = 1 AND typeof(key) = 'text' AND typeof(value) = 'blob',
           store_time, value
    FROM Cache WHERE rowid > ? ORDER BY rowid LIMIT ?
"""

_NEXT_OLD_ROWS = """
    SELECT rowid, length(value) FROM Cache WHERE rowid > ? AND store_time < ? ORDER BY rowid LIMIT ?
"""


class NewRow(NamedTuple):
    """A row to write; `store_time` is when the answer was bought."""

    key: str
    store_time: float
    value: bytes


class StoredRow(NamedTuple):
    """A row as it lies there. Where it is not `ours`, `key` and `value` may be anything."""

    rowid: int
    key: str
    ours: bool
    store_time: object
    value: object


class OldRow(NamedTuple):
    """A row that was stored long ago, and the bytes of its value."""

    rowid: int
    n_bytes: int


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements of the block or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def look_up(connection: sqlite3.Connection, keys: Sequence[str]) -> Iterator[tuple[str, object]]:
    """(key, value) of the rows that are there, in any order."""
    for start in range(0, len(keys), _LOOK_UP):
        some = keys[start : start + _LOOK_UP]
        marks = ("?," * len(some))[:-1]
        statement = f"SELECT key, value FROM Cache WHERE raw = 1 AND key IN ({marks})"
        yield from connection.execute(statement, some)


def upsert(connection: sqlite3.Connection, rows: Iterable[NewRow]) -> None:
    """Write rows, in place of those with the same key. Belongs into a transaction."""
    connection.executemany(_UPSERT, rows)


def upsert_newer(connection: sqlite3.Connection, rows: Iterable[NewRow]) -> None:
    """Write rows where there is none with the same key, or only an older one."""
    connection.executemany(f"{_UPSERT} WHERE excluded.store_time > Cache.store_time", rows)


def walk(connection: sqlite3.Connection) -> Iterator[StoredRow]:
    """Every row, in the order of their numbers, a few hundred in memory at a time.

    Between the steps nothing is held: others may write, and what they write may be met or not.
    """
    last = -(2**63)
    while rows := connection.execute(_NEXT_ROWS, (last, _STEP)).fetchall():
        for rowid, key, ours, store_time, value in rows:
            text = bytes(key or b"").decode("utf-8", "backslashreplace")
            yield StoredRow(rowid, text, bool(ours), store_time, value)
        last = rows[-1][0]


def walk_old(connection: sqlite3.Connection, before: float) -> Iterator[list[OldRow]]:
    """Rows stored before a time, in groups."""
    last = -(2**63)
    while rows := connection.execute(_NEXT_OLD_ROWS, (last, before, _STEP)).fetchall():
        yield [OldRow(rowid, n_bytes or 0) for rowid, n_bytes in rows]
        last = rows[-1][0]


def delete(connection: sqlite3.Connection, rows: Iterable[StoredRow]) -> int:
    """Delete rows as they were read; one that was written again meanwhile stays."""
    statement = "DELETE FROM Cache WHERE rowid = ? AND value IS ?"
    return connection.executemany(statement, ((row.rowid, row.value) for row in rows)).rowcount


def delete_old(connection: sqlite3.Connection, rows: Iterable[OldRow], before: float) -> int:
    """Delete rows; one that was written again meanwhile stays."""
    statement = "DELETE FROM Cache WHERE rowid = ? AND store_time < ?"
    return connection.executemany(statement, ((row.rowid, before) for row in rows)).rowcount


def count(connection: sqlite3.Connection) -> int:
    """Rows, as the triggers counted them."""
    found = connection.execute("SELECT value FROM Settings WHERE key = 'count'").fetchone()
    return found[0] if found else 0


def count_again(connection: sqlite3.Connection) -> None:
    """Put the counter right."""
    connection.execute(
        "UPDATE Settings SET value = (SELECT COUNT(*) FROM Cache) WHERE key = 'count'"
    )
