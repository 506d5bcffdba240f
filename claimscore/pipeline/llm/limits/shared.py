"""One key's limits, shared by all processes of one user on one machine.

A provider counts by key, not by process: two runs that each keep its limit go at twice
its rate. So they draw from one account (`cell_rate`) in a small SQLite file (`state_file`).

The file is a convenience. Where it cannot be used, is locked or damaged, a run goes on by
itself and says so; it is never stopped for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, cast

from claimscore.atomic import reason
from claimscore.pipeline.llm.limits.cell_rate import Account, Kind, taken
from claimscore.pipeline.llm.limits.state_file import (
    FORGET_S,
    Book,
    StateFile,
    is_locked,
    why_replace,
)
from claimscore.types import JSON

T = TypeVar("T")
Clock = Callable[[], float]

#: The state file that all processes of a user share.
LIMITS_FILE = "limits.sqlite"

#: After the file could not be used, it is left alone for so long.
ALONE_S = 10.0

#: One process sets no more files aside than this; then something else is wrong.
_MOST_SET_ASIDE = 3

_SELECT_ACCOUNT = (
    "SELECT free_at, touched_at, per_minute FROM paces WHERE scope = ? AND kind = ? AND boot = ?"
)
_SELECT_FACTS = "SELECT name, value FROM facts WHERE scope = ? AND at BETWEEN ? AND ?"


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
        self._file = StateFile(path.absolute(), scope)
        self._alone_until = -math.inf
        self._n_set_aside = 0
        #: The accounts as last seen, for the time alone; and which of them moved in it.
        self._known: dict[Kind, Account] = {}
        self._unshared: set[Kind] = set()

    def lease(self, kind: Kind, units: float, per_minute: float, depth_s: float) -> float:
        """Take units; return in how many seconds from now on they may be used.

        `depth_s` is how much unused time may be caught up at once. What is not used may be
        given back; what a killed process had taken has gone by as time has.
        """

        def work(book: Book) -> float:
            account, wait_s = taken(
                self._current(book, kind), units, per_minute, depth_s, self._clock()
            )
            self._write(book, kind, account)
            return wait_s

        wait_s = self._shared(work)
        if wait_s is not None:
            return wait_s
        account, wait_s = taken(self._known.get(kind), units, per_minute, depth_s, self._clock())
        self._keep_alone(kind, account)
        return wait_s

    def give_back(self, kind: Kind, units: float, per_minute: float) -> None:
        """Return units that were leased and will not be used."""

        def less(account: Account) -> Account:
            return account._replace(free_at=account.free_at - units * 60 / per_minute)

        def work(book: Book) -> bool:
            account = self._current(book, kind)
            if account is not None:
                self._write(book, kind, less(account))
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

    def _current(self, book: Book, kind: Kind) -> Account | None:
        """The account in the file; what this process took alone, or in a lost file, counts too."""
        row = book.connection.execute(_SELECT_ACCOUNT, (book.scope, kind, self._boot)).fetchone()
        account = Account(*row) if row and all(map(_is_number, row)) else None
        known = self._known.get(kind)
        if account is None or (known is not None and kind in self._unshared and known > account):
            return known
        return account

    def _write(self, book: Book, kind: Kind, account: Account) -> None:
        book.connection.execute(
            "REPLACE INTO paces VALUES (?, ?, ?, ?, ?, ?, ?)",
            (book.scope, kind, self._boot, *account, self._wall_clock()),
        )
        self._known[kind] = account
        self._unshared.discard(kind)

    def _facts(self) -> Mapping[str, Any]:
        now = self._wall_clock()

        def work(book: Book) -> dict[str, Any]:
            fresh = (book.scope, now - FORGET_S, now + FORGET_S)
            return {n: _json(v) for n, v in book.connection.execute(_SELECT_FACTS, fresh)}

        return self._shared(work) or {}

    def _keep(self, facts: Mapping[str, Any]) -> None:
        now = self._wall_clock()

        def work(book: Book) -> bool:
            rows = [(book.scope, name, json.dumps(value), now) for name, value in facts.items()]
            book.connection.executemany("REPLACE INTO facts VALUES (?, ?, ?, ?)", rows)
            return True

        self._shared(work)

    # -- when the file cannot be used

    def _keep_alone(self, kind: Kind, account: Account) -> None:
        self._known[kind] = account
        self._unshared.add(kind)

    def _shared(self, work: Callable[[Book], T]) -> T | None:
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
        why = why_replace(error)
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
        if is_locked(error):
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
