"""A damaged database is set aside, and what can be read of it goes into a new one.

The steps survive a kill between any two of them: the new database is finished under another
name first (`rescued/`); then the damaged files are renamed; then the new one takes their
place. The process that opens the cache next does the rest. All of it happens under the exclusive
lock of the folder.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from claimscore.atomic import sync_folder
from claimscore.cache.pages import salvage
from claimscore.cache.table import NewRow

#: Makes a folder with a new database that holds these rows, the newest for each key; the
#: value is how many there are in the end.
MakeDatabase = Callable[[Path, Iterator[list[NewRow]]], int]

_GROUP = 500
_RESCUED, _UNFINISHED = "rescued", "rescued.tmp"

#: What SQLite says when not the file is at fault but its surroundings, or another process.
_NOT_THE_FILE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_SCHEMA,
}


class NotOurLayout(sqlite3.DatabaseError):
    """A readable database with other tables than diskcache makes: damaged, or not ours."""


class Damage(NamedTuple):
    """The damage of a file. Where it is not `certain`, a bug of ours might look the same."""

    reason: str
    certain: bool


class Rescue(NamedTuple):
    """The outcome for a damaged database; `n_before` is None where it could not be read."""

    set_aside: Path
    n_saved: int
    n_before: int | None

    def notice(self, reason: str) -> str:
        """One line for people."""
        return (
            f"{self.set_aside.parent}: the cache was damaged ({reason}) and is set aside as "
            f"{self.set_aside.name}; {self.n_saved:,} answers were saved, {self._losses()}; "
            "what is missing is asked again"
        )

    def _losses(self) -> str:
        if self.n_before is None:
            return "how many are lost is not known"
        n_lost = max(0, self.n_before - self.n_saved)
        return f"about {n_lost:,} are lost" if n_lost else "none is known to be lost"


def damage_in(error: BaseException) -> Damage | None:
    """The damage that SQLite found in the file itself; None for every other error."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python: our own check, text that is no text, or a bug of ours
        ours = isinstance(error, NotOurLayout) or "decode" in str(error)
        return Damage(str(error), certain=False) if ours else None
    if code & 0xFF in _NOT_THE_FILE:
        return None
    certain = code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return Damage(str(error), certain)


def rescue(database: Path, make_database: MakeDatabase) -> Rescue:
    """Set a damaged database aside and put one in its place with all that can be read."""
    unfinished = database.with_name(_UNFINISHED)
    if unfinished.exists():
        shutil.rmtree(unfinished)
    counts: list[int] = []
    n_saved = make_database(unfinished, _groups(database, counts))
    unfinished.rename(database.with_name(_RESCUED))
    sync_folder(database.parent)
    set_aside = finish_rescue(database)
    assert set_aside is not None
    return Rescue(set_aside, n_saved, counts[0] if counts else None)


def _groups(database: Path, counts: list[int]) -> Iterator[list[NewRow]]:
    rows: list[NewRow] = []
    for found in salvage(database):
        if found.n_answers is not None:
            counts.append(found.n_answers)
        if found.row is not None:
            rows.append(found.row)
        if len(rows) >= _GROUP:
            yield rows
            rows = []
    yield rows


def finish_rescue(database: Path) -> Path | None:
    """Put a rescued database in place, if there is one; the path of the one set aside."""
    rescued = database.with_name(_RESCUED)
    new = rescued / database.name
    set_aside = None
    if new.exists():
        set_aside = _unused(database)
        _move(database.with_name(f"{database.name}-wal"), Path(f"{set_aside}-wal"))
        _move(database, set_aside)
        database.with_name(f"{database.name}-shm").unlink(missing_ok=True)  # an index of the log
        new.rename(database)
        sync_folder(database.parent)
    if rescued.exists():
        shutil.rmtree(rescued)
    return set_aside


def _unused(database: Path) -> Path:
    for number in itertools.count(1):
        path = database.with_name(f"{database.name}.damaged-{number}")
        if not path.exists():
            return path
    raise AssertionError  # pragma: no cover


def _move(path: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.replace(target)
