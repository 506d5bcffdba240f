"""Limits and facts of one server and key, shared by all processes of one user on one machine.

A provider counts by key, not by process: two runs that each keep its limit go at twice its rate.
So they lease units of one token bucket a limit, which lies in a small file.

The file is a line of JSON that a process reads and writes while it holds the file's lock. It is a
convenience and nothing in it is dear: one that cannot be read is begun anew. Where it cannot be
used, a process keeps the limits by itself for a while and says so; no run stops for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast

from claimscore.atomic import reason
from claimscore.file_lock import FileLock
from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket
from claimscore.types import JSON

#: What the file has of one server and key: values by their names, and when each was written.
Entries = dict[str, tuple[Any, float]]

#: What a limit counts.
Kind = Literal["requests", "tokens"]

#: The file in the user's state folder.
LIMITS_FILE = "limits.json"

#: A lease is for so many seconds of the rate, and at least for one request. A killed process
#: loses no more than one lease.
LEASE_S = 0.2

#: Units that are not used so long after they might have been are given back.
VALID_S = 0.3

#: How long a call may wait for another process: it is called on the event loop.
BUSY_S = 0.2

#: After the file could not be used, it is left alone for so long.
ALONE_S = 10.0

#: What no process has written for so long is forgotten.
FORGET_S = 7 * 24 * 3600.0


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

    Calls take about 60 us. A locked file delays one call by `BUSY_S`; then, and wherever the file
    cannot be used, the limits are not shared for `ALONE_S`: nothing is leased, and each process
    keeps them by itself. `on_warning` hears of each such error once.
    """

    def __init__(
        self,
        path: Path,
        scope: str,
        *,
        clock: Callable[[], float] = time.time,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path.absolute()
        self._scope = scope
        self._clock = clock
        self._on_warning = on_warning
        self._alone_until = -math.inf
        self._last_warning = ""

    # -- limits

    def leases(self, kind: Kind) -> Leases:
        """Units of one limit, leased a few at a time."""
        return Leases(self, kind)

    def lease(self, kind: Kind, units: float, rate: float, depth_s: float) -> float:
        """Take units of a limit of `rate` units a second; in how many seconds they may be used.

        At most `depth_s` seconds of unused time are caught up. What is not used may be given back.
        What a killed process has taken is made up for by time, like anything that was used.
        """
        now, depth = self._clock(), depth_s * rate
        with self._entries(now) as entries:
            level, at = entries.get(kind, (depth, now))
            bucket = TokenBucket(rate, depth, level if _is_number(level) else depth, at)
            wait_s = bucket.wait_s(now)
            entries[kind] = bucket.level - units, now
        return wait_s

    def give_back(self, kind: Kind, units: float) -> None:
        """Return units that were leased and will not be used."""
        with self._entries(self._clock()) as entries:
            level, at = entries.get(kind, (None, 0.0))
            if _is_number(level):
                entries[kind] = level + units, at

    def recall(self) -> RememberedLimits | None:
        """The limits as any process last remembered each; None where none was."""
        with self._entries(self._clock()) as entries:
            names = (field.name for field in dataclasses.fields(RememberedLimits))
            values = {name: entries.get(f"limit {name}", (None, 0.0))[0] for name in names}
        known = {name: value for name, value in values.items() if _is_number(value) and value > 0}
        return RememberedLimits(**known) if known else None

    def remember(self, limits: RememberedLimits) -> None:
        """Keep what is known; a field that is None leaves alone what others know."""
        values = dataclasses.asdict(limits)
        self._keep({f"limit {name}": v for name, v in values.items() if v is not None})

    # -- facts

    def recall_fact(self, name: str) -> JSON | None:
        """The fact that was last remembered of the server under this name."""
        with self._entries(self._clock()) as entries:
            value, _ = entries.get(f"fact {name}", (None, 0.0))
        return value if isinstance(value, dict) else None

    def remember_fact(self, name: str, value: JSON) -> None:
        """Keep anything else about the server; like limits, it is forgotten after a week."""
        self._keep({f"fact {name}": value})

    def _keep(self, values: Mapping[str, Any]) -> None:
        now = self._clock()
        with self._entries(now) as entries:
            entries.update({name: (value, now) for name, value in values.items()})

    # -- the file

    @contextlib.contextmanager
    def _entries(self, now: float) -> Iterator[Entries]:
        """The entries of this server and key, to be read and changed while other processes wait.

        Where the file cannot be used, there are none and none are kept.
        """
        file = self._open(now)
        if file is None:
            yield {}
            return
        with file.lock:
            yield file.entries(self._scope)
            try:
                file.write()
            except OSError as exc:
                self._go_alone(exc, now)

    def _open(self, now: float) -> _File | None:
        """The file, locked; None where it cannot be used."""
        if self._alone_until - ALONE_S <= now < self._alone_until:
            return None
        try:
            if not self._path.parent.exists():
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock.take(self._path, patience_s=BUSY_S)
            if lock is None:
                raise OSError("another process holds it locked")
            file = _File(lock, now)
        except OSError as exc:
            self._go_alone(exc, now)
            return None
        if file.is_damaged:
            self._warn("it was damaged, and is begun anew")
        return file

    def _go_alone(self, error: OSError, now: float) -> None:
        """Leave the file alone for a while: each try may cost the event loop `BUSY_S`."""
        self._alone_until = now + ALONE_S
        self._warn(
            f"{reason(error)}; limits are not shared with other processes meanwhile "
            "(CLAIMSCORE_STATE_DIR names another folder)"
        )

    def _warn(self, what: str) -> None:
        text = f"{self._path}: {what}"
        if self._on_warning is not None and text != self._last_warning:
            self._on_warning(text)
        self._last_warning = text


class _File:
    """The content of a locked file: a salt, and entries by server; without those that are old."""

    def __init__(self, lock: FileLock, now: float) -> None:
        self.lock = lock
        self.is_damaged = False
        self._salt = secrets.token_bytes(32)
        self._servers: dict[str, Entries] = {}
        data = os.pread(lock.descriptor, os.fstat(lock.descriptor).st_size, 0)
        # A line that is shorter than the one before it leaves the end of that behind it.
        self._line, _, _ = data.partition(b"\n")
        try:
            if data:
                self._parse(json.loads(self._line), now)
        except (ValueError, TypeError, LookupError, AttributeError):
            self.is_damaged = True

    def _parse(self, content: Any, now: float) -> None:
        salt = bytes.fromhex(content["salt"])
        self._servers = {
            server: {
                name: (value, at)
                for name, (value, at) in entries.items()
                if abs(now - at) <= FORGET_S
            }
            for server, entries in content["servers"].items()
        }
        self._salt = salt

    def entries(self, scope: str) -> Entries:
        """What is known of one server and key."""
        name = hashlib.blake2b(scope.encode(), key=self._salt, digest_size=16).hexdigest()
        return self._servers.setdefault(name, {})

    def write(self) -> None:
        """Write what has changed, in one call: hardly a kill comes in the middle of it."""
        servers = {name: entries for name, entries in self._servers.items() if entries}
        line = json.dumps({"salt": self._salt.hex(), "servers": servers}).encode()
        if line != self._line:
            os.pwrite(self.lock.descriptor, line + b"\n", 0)


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


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(cast("float", value))
