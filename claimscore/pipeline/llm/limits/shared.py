"""One key's limits, shared by all processes of one user on one machine.

A provider counts by key, not by process: two runs that each keep its limit go at twice
its rate. So they draw from one account in a small SQLite file: for each limit one number,
`free_at`, the time up to which everything is given away (a generic cell rate algorithm).
Whoever wants units moves it forward. Nobody holds anything that would have to expire: a
killed process leaves behind only the time that it had taken and not used.

The file is a convenience. Where it cannot be used, is locked or damaged, a run goes on by
itself and says so; it is never stopped for it.

Transactions are short and nothing in the file is dear, so it lives with a rollback
journal, which a killed writer cannot break and which network home folders bear (SQLite's
WAL they do not), and without syncs: a power cut may damage it, and then it is begun anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import platform
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar, cast

from claimscore.atomic import reason
from claimscore.types import JSON

T = TypeVar("T")
Kind = Literal["requests", "tokens"]
Clock = Callable[[], float]

SCHEMA_VERSION = 1

#: The state file that all processes of a user share.
LIMITS_FILE = "limits.sqlite"

#: What was learnt of a server longer ago than this is forgotten.
FORGET_S = 7 * 24 * 3600.0

#: How long a statement may wait for another process: it is called on the event loop.
BUSY_S = 0.2

#: After the file could not be used, it is left alone for so long.
ALONE_S = 10.0

#: More than this given away ahead is doubted where it was done at a lower rate.
PLAUSIBLE_S = 120.0

#: One process sets no more files aside than this; then something else is wrong.
_MOST_SET_ASIDE = 3

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
_SELECT_PACE = (
    "SELECT free_at, touched_at, per_minute FROM paces WHERE scope = ? AND kind = ? AND boot = ?"
)
_SELECT_FACTS = "SELECT name, value FROM facts WHERE scope = ? AND at BETWEEN ? AND ?"


class Pace(NamedTuple):
    """One limit's account: given away up to `free_at`; last touched when, and at which rate."""

    free_at: float
    touched_at: float
    per_minute: float


@dataclasses.dataclass(frozen=True, slots=True)
class Learnt:
    """What a server's limits turned out to be; None where it is not known.

    `rpm_depth_s` and `tpm_depth_s` are the seconds of the rate that it lets through at
    once; `good_rps` is the last rate of requests a second that it bore.
    """

    rpm: float | None = None
    tpm: float | None = None
    rpm_depth_s: float | None = None
    tpm_depth_s: float | None = None
    good_rps: float | None = None


def shared_scope(base_url: str, key: str | None) -> str:
    """What `SharedBudget` tells servers and keys apart by; not for logs or files.

    Before it reaches the file it is hashed with a random salt that lies only there. So
    tables made beforehand do not help to find a key from it. Who has the file and guesses
    the very key can see that the guess is right: the salt does not protect against that,
    the length of a key does.
    """
    return hashlib.sha256(f"{base_url.rstrip('/')}\0{key or ''}".encode()).hexdigest()


def taken(
    pace: Pace | None, units: float, per_minute: float, depth_s: float, now: float
) -> tuple[Pace, float]:
    """The account after `units` were taken, and in how many seconds they may be used.

    In any window of T seconds the units taken for use in it are at most
    per_minute * (T + depth_s) / 60, one lease, and what was given back meanwhile.
    """
    start = now - depth_s
    if pace is not None:
        start = max(start, _free_at(pace, per_minute, now))
    return Pace(start + units * 60 / per_minute, now, per_minute), max(0.0, start - now)


def _free_at(pace: Pace, per_minute: float, now: float) -> float:
    """`free_at` as it is meant now.

    A clock that was set back takes it along: what was given away ahead stays so. And where
    minutes were given away at a lower rate, by a mistaken option perhaps, their units cost
    what they cost at this one.
    """
    free_at = pace.free_at + min(0.0, now - pace.touched_at)
    ahead_s = free_at - now
    if ahead_s > PLAUSIBLE_S and pace.per_minute < per_minute:
        return now + ahead_s * pace.per_minute / per_minute
    return free_at


class SharedBudget:
    """The limits of one server and key, as `shared_scope` names them, in the file `path`.

    Calls take about 60 us. A locked file holds one up for less than half a second; then,
    and wherever the file cannot be used, this process keeps the limits by itself for a
    while, as if it were alone. `warning` is the last thing that went wrong, for people;
    `on_warning` hears of each as it comes, of the same one once. The file is opened by the
    first call. For one thread; after a fork each process has its own connection.
    """

    def __init__(
        self,
        path: Path,
        scope: str,
        *,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
        boot: str | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.warning: str | None = None
        self._on_warning = on_warning
        self._clock = clock
        self._wall_clock = wall_clock
        self._boot = boot or _this_boot()
        self._file = _StateFile(path.absolute(), scope)
        self._alone_until = -math.inf
        self._n_set_aside = 0
        #: The accounts as last seen, for the time alone; and which of them moved in it.
        self._known: dict[Kind, Pace] = {}
        self._unshared: set[Kind] = set()

    def lease(self, kind: Kind, units: float, per_minute: float, depth_s: float) -> float:
        """Take units; return in how many seconds from now on they may be used.

        `depth_s` is how much unused time may be caught up at once. What is not used may be
        given back; what a killed process had taken has gone by as time has.
        """

        def work(book: _Book) -> float:
            pace, wait_s = taken(
                self._current(book, kind), units, per_minute, depth_s, self._clock()
            )
            self._write(book, kind, pace)
            return wait_s

        wait_s = self._shared(work)
        if wait_s is not None:
            return wait_s
        pace, wait_s = taken(self._known.get(kind), units, per_minute, depth_s, self._clock())
        self._keep_alone(kind, pace)
        return wait_s

    def give_back(self, kind: Kind, units: float, per_minute: float) -> None:
        """Return units that were leased and will not be used."""

        def less(pace: Pace) -> Pace:
            return pace._replace(free_at=pace.free_at - units * 60 / per_minute)

        def work(book: _Book) -> bool:
            pace = self._current(book, kind)
            if pace is not None:
                self._write(book, kind, less(pace))
            return True

        if self._shared(work) is None and kind in self._known:
            self._keep_alone(kind, less(self._known[kind]))

    def recall(self) -> Learnt | None:
        """What any process has last remembered of each limit; None where nothing was."""
        facts = self._facts()
        values = {name: facts.get(f"learnt {name}") for name in _LEARNT}
        numbers = {name: float(value) for name, value in values.items() if _is_amount(value)}
        return Learnt(**numbers) if numbers else None

    def remember(self, learnt: Learnt) -> None:
        """Keep what is known; what is None leaves alone what others know."""
        values = {name: getattr(learnt, name) for name in _LEARNT}
        self._keep({f"learnt {name}": v for name, v in values.items() if v is not None})

    def recall_fact(self, name: str) -> JSON | None:
        """What was last remembered of the server under this name."""
        value = self._facts().get(f"fact {name}")
        return value if isinstance(value, dict) else None

    def remember_fact(self, name: str, value: JSON) -> None:
        """Keep anything else about the server; like limits, it is forgotten after a week."""
        self._keep({f"fact {name}": value})

    def close(self) -> None:
        """Release the file. It would be opened again by any other call."""
        self._file.close()

    # -- in the file

    def _current(self, book: _Book, kind: Kind) -> Pace | None:
        """The account in the file; what this process took alone, or in a lost file, counts too."""
        row = book.connection.execute(_SELECT_PACE, (book.scope, kind, self._boot)).fetchone()
        pace = Pace(*row) if row and all(map(_is_number, row)) else None
        known = self._known.get(kind)
        if pace is None or (known is not None and kind in self._unshared and known > pace):
            return known
        return pace

    def _write(self, book: _Book, kind: Kind, pace: Pace) -> None:
        book.connection.execute(
            "REPLACE INTO paces VALUES (?, ?, ?, ?, ?, ?, ?)",
            (book.scope, kind, self._boot, *pace, self._wall_clock()),
        )
        self._known[kind] = pace
        self._unshared.discard(kind)

    def _facts(self) -> Mapping[str, Any]:
        now = self._wall_clock()

        def work(book: _Book) -> dict[str, Any]:
            fresh = (book.scope, now - FORGET_S, now + FORGET_S)
            return {n: _json(v) for n, v in book.connection.execute(_SELECT_FACTS, fresh)}

        return self._shared(work) or {}

    def _keep(self, facts: Mapping[str, Any]) -> None:
        now = self._wall_clock()

        def work(book: _Book) -> bool:
            rows = [(book.scope, name, json.dumps(value), now) for name, value in facts.items()]
            book.connection.executemany("REPLACE INTO facts VALUES (?, ?, ?, ?)", rows)
            return True

        self._shared(work)

    # -- when the file cannot be used

    def _keep_alone(self, kind: Kind, pace: Pace) -> None:
        self._known[kind] = pace
        self._unshared.add(kind)

    def _shared(self, work: Callable[[_Book], T]) -> T | None:
        """What `work` returns, done in one transaction; None where the file cannot be used."""
        if self._clock() < self._alone_until:
            return None
        try:
            return self._file.transact(work, self._wall_clock())
        except (sqlite3.Error, OSError) as exc:
            error: Exception = exc
        try:
            if self._set_aside(error):
                return self._file.transact(work, self._wall_clock())
        except (sqlite3.Error, OSError) as exc:
            error = exc
        self._go_alone(error)
        return None

    def _set_aside(self, error: Exception) -> bool:
        """Where the file is damaged or not of this version, begin a new one."""
        why = _why_replace(error)
        if why is None or self._n_set_aside == _MOST_SET_ASIDE:
            return False
        self._n_set_aside += 1
        aside = self._file.set_aside(why)
        if aside is not None:
            self._warn(f"{error}; it is now {aside.name}, and a new one was begun")
        return True

    def _go_alone(self, error: Exception) -> None:
        """Leave the file alone for a while: each try may cost the event loop `BUSY_S`."""
        self._file.close()
        self._alone_until = self._clock() + ALONE_S
        why = reason(error) if isinstance(error, OSError) else str(error)
        if _primary_code(error) in _LOCKED:
            why = "another process holds it locked"
        self._warn(
            f"{why}; limits are not shared with other processes meanwhile "
            "(CLAIMSCORE_STATE_DIR names another folder)"
        )

    def _warn(self, what: str) -> None:
        text = f"{self._file.path}: {what}"
        if self._on_warning is not None and text != self.warning:
            self._on_warning(text)
        self.warning = text


#: Connections that a fork brought along. SQLite forbids even closing them in the child.
_INHERITED: list[sqlite3.Connection] = []


class _Book(NamedTuple):
    """An open file, and what this server and key are called in it."""

    connection: sqlite3.Connection
    scope: str


class _OtherVersion(sqlite3.DatabaseError):
    """The file was made by a claimscore that keeps other things in it."""

    def __init__(self, version: int) -> None:
        super().__init__(f"made by another version of claimscore (schema {version})")
        self.version = version


class _StateFile:
    """The database: opened when first used, and again after a fork or when it was replaced."""

    def __init__(self, path: Path, scope: str) -> None:
        self.path = path
        self._scope = scope
        self._book: _Book | None = None
        self._pid = 0
        self._identity: tuple[int, int] | None = None

    def transact(self, work: Callable[[_Book], T], wall_time: float) -> T:
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

    def _current(self) -> _Book | None:
        """The open file, if it is this process's and still the one under its name."""
        if self._pid != os.getpid() or _identity(self.path) != self._identity:
            self.close()
        return self._book

    def _open(self, wall_time: float) -> _Book:
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
        self._book = _Book(connection, digest.hexdigest())
        return self._book


def _set_up(connection: sqlite3.Connection, wall_time: float) -> bytes:
    """Make the tables where they are missing, forget what is old; return the salt."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO salt VALUES (?)", (secrets.token_bytes(32),))
    elif version != SCHEMA_VERSION:
        raise _OtherVersion(version)
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


def _why_replace(error: Exception) -> str | None:
    if isinstance(error, _OtherVersion):
        return f"version-{error.version}"
    return "damaged" if _primary_code(error) in _DAMAGED else None


def _primary_code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _this_boot() -> str:
    """What `time.monotonic` counts from: a home folder may be mounted on many machines."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _is_number(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_amount(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < cast(float, value) < math.inf


def _json(text: object) -> Any:
    """The value, or None where it is not as it was written."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


_LEARNT = tuple(field.name for field in dataclasses.fields(Learnt))
