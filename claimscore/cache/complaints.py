"""Errors of files and of SQLite, translated for the user of a cache, with what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from claimscore.atomic import reason as os_reason
from claimscore.cache.database import DATABASE, may_write
from claimscore.cache.rescue import damage_in
from claimscore.errors import ConfigError, StoppedEarly

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


def as_ours(
    error: OSError | sqlite3.Error, folder: Path, waited_s: float, *, writing: bool
) -> Exception:
    """The error as one of ours, in a line with the folder and what to do.

    `waited_s` is how long SQLite waits for another process.
    """
    code = sqlite_code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return StoppedEarly(
            f"{folder}: another process has held the cache locked for "
            f"{waited_s:g} s; see what it is doing"
        )
    reason = os_reason(error) if isinstance(error, OSError) else str(error)
    is_full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in _DISK_FULL
    if writing or is_full:
        return StoppedEarly(
            f"{folder}: answers cannot be kept ({reason}); "
            + ("make room there" if is_full else "see that the folder is there and writable")
        )
    if (damage := damage_in(error)) is not None:
        where = (
            "there" if may_write(folder / DATABASE) else "in a copy of it, as it cannot be written"
        )
        return ConfigError(
            f"{folder}: the cache is damaged ({damage.reason}); `claimscore cache verify "
            f"--repair` saves what can be read {where}"
        )
    return ConfigError(
        f"{folder}: the cache cannot be used ({reason}); make the folder readable and "
        "writable for you, or name another one with --cache-dir"
    )


def sqlite_code(error: BaseException) -> int:
    """SQLite's number for a kind of error; 0 where it is none of SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
