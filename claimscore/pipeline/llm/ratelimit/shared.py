"""Limits and facts of one server and key, shared by all processes of one user on one machine.

A provider counts by key, not by process: two runs that each keep its limit go at twice its rate.
So they lease units of one token bucket a limit, which lies in a small SQLite file.

The file is a convenience and nothing in it is dear. Where it cannot be used, a process keeps the
limits by itself for a while and says so; no run stops for it. Transactions are short. A rollback
journal survives a killed writer and works on network folders, which SQLite's WAL does not. There
are no syncs: a power cut may damage the file, and then a new one is begun.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar, cast

from claimscore.atomic import reason
from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket
from claimscore.types import JSON

T = TypeVar("T")

#: What a limit counts.
Kind = Literal["requests", "tokens"]

#: The file in the user's state folder.
LIMITS_FILE = "limits.sqlite"

#: A lease is for so many seconds of the rate, and at least for one request. A killed process
#: loses no more than one lease.
LEASE_S = 0.2

#: Units that are not used so long after they might have been are given back.
VALID_S = 0.3

#: How long a statement may wait for another process: it is called on the event loop.
BUSY_S = 0.2

#: After the file could not be used, it is left alone for so long.
ALONE_S = 10.0

#: Rows that no process has written for so long are forgotten.
FORGET_S = 7 * 24 * 3600.0

_SCHEMA_VERSION = 2
_SCHEMA = (
    "CREATE TABLE salt (value BLOB NOT NULL)",
    "CREATE TABLE buckets (scope TEXT, kind TEXT, level REAL, at REAL, "
    "PRIMARY KEY (scope, kind)) WITHOUT ROWID",
    "CREATE TABLE facts (scope TEXT, name TEXT, value TEXT, at REAL, "
    "PRIMARY KEY (scope, name)) WITHOUT ROWID",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)
_SELECT_FACTS = "SELECT name, value FROM facts WHERE scope = ? AND at BETWEEN ? AND ?"

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@dataclasses.dataclass(frozen=True, slots=True)
class RememberedLimits:
    """A server's limits as any process last knew them; None where they are not known.

    `rpm` and `tpm` are declared by headers; `found_rps` is the rate of requests a second at which
    the server was found to begin to refuse.
    """

    rpm: float | None = None
    tpm: float | None = None
    found_rps: float | None = None


def shared_scope(base_url: str, key: str | None) -> str:
    """The text by which `SharedLimits` tells servers and keys apart; not for logs or files.

    Before it reaches the file it is hashed with a random salt that lies only there. So tables made
    beforehand do not help to find a key from the file. A reader of the file who guesses the very
    key can see that the guess is right: the length of a key protects against that, not the salt.
    """
    return hashlib.sha256(f"{base_url.rstrip('/')}\0{key or ''}".encode()).hexdigest()


class SharedLimits:
    """The limits of one server and key, as `shared_scope` names them, in the file `path`.

    Calls take about 60 us. A locked file delays one call by less than half a second; then, and
    wherever the file cannot be used, the limits are not shared for `ALONE_S`: nothing is leased,
    and each process keeps them by itself. `on_warning` hears of each such error once; `warning`
    is the last one. The file is opened by the first call, and again when it was replaced.
    """

    def __init__(
        self,
        path: Path,
        scope: str,
        *,
        clock: Callable[[], float] = time.time,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.warning: str | None = None
        self._path = path.absolute()
        self._scope = scope
        self._clock = clock
        self._on_warning = on_warning
        self._connection: sqlite3.Connection | None = None
        #: The file that is open, and what this server and key are called in it.
        self._identity: tuple[int, int] | None = None
        self._name = ""
        self._alone_until = -math.inf

    # -- limits

    def leases(self, kind: Kind) -> Leases:
        """Units of one limit, leased a few at a time."""
        return Leases(self, kind)

    def lease(self, kind: Kind, units: float, rate: float, depth_s: float) -> float:
        """Take units of a limit of `rate` units a second; in how many seconds they may be used.

        At most `depth_s` seconds of unused time are caught up. What is not used may be given back.
        What a killed process has taken is made up for by time, like anything that was used.
        """

        def work(connection: sqlite3.Connection) -> float:
            bucket = self._bucket(connection, kind, rate, depth_s * rate)
            wait_s = bucket.wait_s(self._clock())
            self._write(connection, kind, bucket.level - units)
            return wait_s

        return self._transact(work) or 0.0

    def give_back(self, kind: Kind, units: float) -> None:
        """Return units that were leased and will not be used."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE buckets SET level = level + ? WHERE scope = ? AND kind = ?",
                (units, self._name, kind),
            )

        self._transact(work)

    def recall(self) -> RememberedLimits | None:
        """The limits as any process last remembered each; None where none was."""
        facts = self._facts()
        names = [field.name for field in dataclasses.fields(RememberedLimits)]
        values = {name: facts.get(f"limit {name}") for name in names}
        known = {name: float(value) for name, value in values.items() if _is_amount(value)}
        return RememberedLimits(**known) if known else None

    def remember(self, limits: RememberedLimits) -> None:
        """Keep what is known; a field that is None leaves alone what others know."""
        values = dataclasses.asdict(limits)
        self._keep({f"limit {name}": v for name, v in values.items() if v is not None})

    # -- facts

    def recall_fact(self, name: str) -> JSON | None:
        """The fact that was last remembered of the server under this name."""
        value = self._facts().get(f"fact {name}")
        return value if isinstance(value, dict) else None

    def remember_fact(self, name: str, value: JSON) -> None:
        """Keep anything else about the server; like limits, it is forgotten after a week."""
        self._keep({f"fact {name}": value})

    def close(self) -> None:
        """Release the file. Any other call would open it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # -- rows

    def _bucket(
        self, connection: sqlite3.Connection, kind: Kind, rate: float, capacity: float
    ) -> TokenBucket:
        row = connection.execute(
            "SELECT level, at FROM buckets WHERE scope = ? AND kind = ?", (self._name, kind)
        ).fetchone()
        if row is None or not all(type(value) is float and math.isfinite(value) for value in row):
            return TokenBucket(rate, capacity, capacity)
        return TokenBucket(rate, capacity, *row)

    def _write(self, connection: sqlite3.Connection, kind: Kind, level: float) -> None:
        connection.execute(
            "REPLACE INTO buckets VALUES (?, ?, ?, ?)", (self._name, kind, level, self._clock())
        )

    def _facts(self) -> Mapping[str, Any]:
        def work(connection: sqlite3.Connection) -> dict[str, Any]:
            now = self._clock()
            fresh = (self._name, now - FORGET_S, now + FORGET_S)
            return {name: _json(value) for name, value in connection.execute(_SELECT_FACTS, fresh)}

        return self._transact(work) or {}

    def _keep(self, facts: Mapping[str, Any]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            now = self._clock()
            rows = [(self._name, name, json.dumps(value), now) for name, value in facts.items()]
            connection.executemany("REPLACE INTO facts VALUES (?, ?, ?, ?)", rows)

        self._transact(work)

    # -- the file

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of `work`, done wholly or not at all; None where the file cannot be used."""
        now = self._clock()
        if self._alone_until - ALONE_S <= now < self._alone_until:
            return None
        try:
            if self._connection is None or _identity(self._path) != self._identity:
                self._open()
            assert self._connection is not None
            with _transaction(self._connection):
                return work(self._connection)
        except (sqlite3.Error, OSError) as exc:
            self.close()
            try:
                aside = self._set_aside(exc)
            except OSError as again:
                exc, aside = again, False
            if not aside:
                self._go_alone(exc)
            return None

    def _open(self) -> None:
        self.close()
        _make_private(self._path)
        self._identity = _identity(self._path)
        connection = self._connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
        )
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = PERSIST")
        with _transaction(connection):
            salt = _set_up(connection, self._clock())
        self._name = hashlib.blake2b(self._scope.encode(), key=salt, digest_size=16).hexdigest()

    def _set_aside(self, error: Exception) -> bool:
        """Whether the next call may begin a new file, in place of one that cannot be read."""
        if not isinstance(error, _OtherVersionError) and _code(error) not in _DAMAGED:
            return False
        if _identity(self._path) == self._identity:  # else another process has set it aside
            aside = self._path.with_name(f"{self._path.name}.unusable")
            # The journal first: left behind, it would be rolled back into the new file.
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(f"{self._path.name}-journal").replace(f"{aside}-journal")
            self._path.replace(aside)
            self._warn(f"{error}; it is now {aside.name}, and a new one is begun")
        return True

    def _go_alone(self, error: Exception) -> None:
        """Leave the file alone for a while: each try may cost the event loop `BUSY_S`."""
        self._alone_until = self._clock() + ALONE_S
        why = reason(error) if isinstance(error, OSError) else str(error)
        if _code(error) in _LOCKED:
            why = "another process holds it locked"
        self._warn(
            f"{why}; limits are not shared with other processes meanwhile "
            "(CLAIMSCORE_STATE_DIR names another folder)"
        )

    def _warn(self, what: str) -> None:
        text = f"{self._path}: {what}"
        if self._on_warning is not None and text != self.warning:
            self._on_warning(text)
        self.warning = text


class Leases:
    """Units of one limit, taken from what processes share a few at a time."""

    #: By so many seconds of the rate a window may hold more than was leased for it.
    slack_s = LEASE_S + VALID_S

    def __init__(self, shared: SharedLimits, kind: Kind) -> None:
        self._shared = shared
        self._kind: Kind = kind
        self._held = 0.0
        self._usable_at = 0.0

    def wait_s(self, units: float, bucket: TokenBucket, now: float) -> float:
        """Seconds until so many units may be used; leases what is missing at the bucket's rate."""
        if now > self._usable_at + VALID_S:
            self.give_back()
        if self._held < units:
            missing = max(units - self._held, 1.0, LEASE_S * bucket.rate)
            depth_s = max(BURST_S, bucket.level / bucket.rate)
            wait_s = self._shared.lease(self._kind, missing, bucket.rate, depth_s)
            self._held += missing
            self._usable_at = now + wait_s
        return max(0.0, self._usable_at - now)

    def take(self, units: float) -> None:
        """Use units (or, negative, hold more)."""
        self._held -= units

    def give_back(self) -> None:
        """Return what is held."""
        if self._held > 0:
            self._shared.give_back(self._kind, self._held)
            self._held = 0.0


class _OtherVersionError(sqlite3.DatabaseError):
    """The file was made by a claimscore that keeps other things in it."""


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do the block wholly or not at all; other processes wait from its first statement on."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _set_up(connection: sqlite3.Connection, now: float) -> bytes:
    """Make the tables where they are missing, forget what is old; return the salt."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO salt VALUES (?)", (secrets.token_bytes(32),))
    elif version != _SCHEMA_VERSION:
        raise _OtherVersionError(f"made by another version of claimscore (schema {version})")
    for table in ("buckets", "facts"):
        connection.execute(f"DELETE FROM {table} WHERE at < ?", (now - FORGET_S,))
    (salt,) = connection.execute("SELECT value FROM salt").fetchone()
    return bytes(salt)


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


def _code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_amount(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < cast(float, value) < math.inf


def _json(text: object) -> Any:
    """The value, or None where it is not as it was written."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
