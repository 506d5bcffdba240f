"""Which form a cache's database has: the number of its format, and diskcache's tables.

The number lies in diskcache's table of settings, under `claimscore`. A database without it
was made before it was written and has format 1.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

from claimscore.cache.rescue import NotOurLayout
from claimscore.cache.table import transaction
from claimscore.errors import ConfigError

#: Goes up when the meaning of a stored row changes; then `MIGRATIONS` gets a line.
FORMAT = 1

#: From a format to the next one, all in one transaction, for every database that is older.
#: `pages` must then still understand the rows of older formats, or a rescue would lose them.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}

_NAME = "claimscore"

_COLUMNS = {
    "Settings": ["key", "value"],
    "Cache": [
        "rowid", "key", "raw", "store_time", "expire_time", "access_time", "access_count", "tag",
        "size", "mode", "filename", "value",
    ],
}  # fmt: skip


def check_layout(connection: sqlite3.Connection, known_settings: Collection[str]) -> None:
    """Raise `NotOurLayout` where tables or settings are not what diskcache makes.

    diskcache sets SQLite's switches to whatever it finds among the settings; a name that it
    never writes there is damage, or worse.
    """
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        if not str(name).startswith("sqlite_")
    }
    for table in tables:
        info = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        if [name for (name,) in info] != _COLUMNS.get(table):
            raise NotOurLayout("it has tables that are not a cache's")
    if "Settings" not in tables:
        return
    for (name,) in connection.execute("SELECT key FROM Settings"):
        if type(name) is not str or (
            name.startswith(("sqlite_", "disk_")) and name not in known_settings
        ):
            raise NotOurLayout("it has settings that are not a cache's")


def migrate(connection: sqlite3.Connection, database: Path) -> int | None:
    """Bring an older database to today's format; the format it had, None where it is new.

    `ConfigError` for a database of a newer claimscore, which is left as it is.
    """
    found = stored_format(connection)
    if found is None:
        return None
    if found > FORMAT:
        raise ConfigError(
            f"{database}: made by a newer claimscore (format {found}; this one knows {FORMAT}); "
            "update claimscore, or name another folder with --cache-dir"
        )
    if found < FORMAT:
        with transaction(connection):
            for number in range(found, FORMAT):
                MIGRATIONS[number](connection)
            _write_format(connection)
    return found


def stored_format(connection: sqlite3.Connection) -> int | None:
    """The format that a database says it has; None where there is no cache in it yet."""
    tables = "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'Settings'"
    if connection.execute(tables).fetchone() == (0,):
        return None
    found = connection.execute("SELECT value FROM Settings WHERE key = ?", (_NAME,)).fetchone()
    if found is None:
        return 1
    try:
        number = json.loads(found[0])["format"]
    except (ValueError, TypeError, KeyError):
        number = None
    if type(number) is not int or number < 1:
        raise NotOurLayout("the number of its format cannot be read")
    return number


def mark_format(connection: sqlite3.Connection) -> None:
    """Write today's format into a database that does not say any."""
    if connection.execute("SELECT 1 FROM Settings WHERE key = ?", (_NAME,)).fetchone() is None:
        _write_format(connection)


def _write_format(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO Settings (key, value) VALUES (?, ?)",
        (_NAME, json.dumps({"format": FORMAT})),
    )
