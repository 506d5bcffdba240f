"""The lock of a run directory in an object store: an object that its holder renews.

The holder writes the object anew every `RENEW_S` seconds, each time on the condition that it is
still what the holder wrote last; the store judges that, so of two processes one is refused.

Whether a holder is alive is told by the object, not by clocks: who wants the lease watches it, and
takes it over once it has not changed for `VALID_S` seconds of the watcher's own time. So clocks
may differ by any amount. No process waits where the time that the holder wrote down is more than
`SKEW_S` older than a lease can be: clocks that differ by less than that are borne. Nor does who
knows that the holder is dead, because it ran on this machine.

A holder that was asleep for longer than that notices it: before it writes it makes sure of its
lease (`check`). A request of it that was on its way all the time may still arrive; the manifest's
journal refuses those (`segments`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.storage import Storage

#: Seconds that a lease holds without a sign of life, between two signs, between two looks.
VALID_S, RENEW_S, LOOK_S = 60.0, 10.0, 2.0

#: Seconds before its end from which on the holder makes sure before it writes.
_MARGIN_S = 15.0

#: Seconds by which the clocks of machines may differ.
SKEW_S = 300.0


class Clock(Protocol):
    """Time, for tests to turn."""

    def now(self) -> float:
        """Seconds since 1970."""

    def passed(self) -> float:
        """Seconds since some moment, sleep of the machine included."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return time.time()

    def passed(self) -> float:
        boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime(boottime)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclasses.dataclass(frozen=True)
class Holder:
    """The holder of the lease: `token` is its own, empty where it was given back; `sign` counts its
    signs of life, so that no two are the same bytes."""

    token: str
    process: int = 0
    host: str = ""
    machine: str = ""
    at: float = 0.0
    sign: int = 0

    @classmethod
    def read(cls, content: bytes) -> Holder:
        """From the object; one that is none of ours counts as free."""
        try:
            found: dict[str, Any] = json.loads(content)
            return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls)})
        except (ValueError, KeyError, TypeError):
            return cls("")

    def to_bytes(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"


class _Seen(NamedTuple):
    version: str
    holder: Holder


class Lease:
    """Held from `take` to `release`; meanwhile a thread renews it. Threads may share it.

    `machine` names a lock of this machine that the caller holds, so that an earlier holder with the
    same one is dead. `tell` hears what people who wait should know.
    """

    def __init__(
        self,
        folder: Storage,
        name: str,
        machine: str = "",
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.token = secrets.token_hex(8)
        self._folder = folder
        self._name = name
        self._machine = machine
        self._tell = tell
        self._clock = clock or SystemClock()
        self._version = ""
        self._renewed = 0.0
        self._lost = False
        self._signs = itertools.count()
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # Taking it

    def take(self) -> None:
        """Get the lease; waits as long as it cannot be told whether another holder is alive.

        `ConfigError` where it is.
        """
        while not self._try():
            pass
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def _try(self) -> bool:
        began = self._clock.passed()
        mine = self._sign_of_life()
        if self._folder.create(self._name, mine):
            version = self._own_version()
        else:
            seen = self._look()
            if seen is None:
                return False
            if self._may_be_alive(seen.holder):
                self._watch(seen)
            began = self._clock.passed()
            version = self._folder.replace_if(self._name, mine, seen.version)
        if version is None:
            return False
        self._version, self._renewed = version, began
        return True

    def _look(self) -> _Seen | None:
        version = self._folder.version(self._name)
        if version is None:
            return None
        try:
            return _Seen(version, Holder.read(self._folder.read(self._name)))
        except FileNotFoundError:
            return None

    def _may_be_alive(self, holder: Holder) -> bool:
        if not holder.token or holder.token == self.token:
            return False
        if self._machine and holder.machine == self._machine:
            return False
        return self._clock.now() - holder.at <= VALID_S + SKEW_S

    def _watch(self, seen: _Seen) -> None:
        """Wait until it is certain that the holder is gone; `ConfigError` where it is not."""
        holder = seen.holder
        who = f"process {holder.process} on {holder.host}"
        began = self._clock.passed()
        self._tell(f"waiting up to {VALID_S:.0f} s to see whether {who} is still at work")
        while self._clock.passed() - began < VALID_S:
            self._clock.sleep(LOOK_S)
            version = self._folder.version(self._name)
            if version is None:
                return
            if version != seen.version:
                raise ConfigError(
                    f"{self._folder.name} is in use by {who}; wait for it, or stop it"
                )

    # Keeping it

    def check(self) -> None:
        """`StoppedEarly` where the lease is no longer this process's, or that cannot be told."""
        if self._lost or self._clock.passed() - self._renewed > VALID_S - _MARGIN_S:
            self.renew()

    def renew(self) -> None:
        """Give a sign of life. Raises as `check` does."""
        with self._mutex:
            if not self._lost:
                began = self._clock.passed()
                version = self._folder.replace_if(self._name, self._sign_of_life(), self._version)
                version = version or self._own_version()
                if version is not None:
                    self._version, self._renewed = version, began
                    return
                self._lost = True
        raise StoppedEarly(
            f"{self._folder.name}: another process has taken this run over, since this one gave "
            f"no sign of life for {VALID_S:.0f} s; run the same command again when that one ends"
        )

    def _own_version(self) -> str | None:
        """The version of the object where this process wrote it: an answer of the store to an
        earlier try may have been lost on the way."""
        seen = self._look()
        return seen.version if seen is not None and seen.holder.token == self.token else None

    def _keep(self) -> None:
        while not (self._ended.wait(RENEW_S) or self._lost):
            with contextlib.suppress(ClaimscoreError):  # who writes next hears of it
                self.renew()

    def release(self) -> None:
        """Give it back, so that the next one need not wait; a store that is away is no error."""
        self._ended.set()
        with self._mutex, contextlib.suppress(ClaimscoreError):
            if not self._lost:
                self._folder.replace_if(self._name, Holder("").to_bytes(), self._version)
            self._lost = True

    def _sign_of_life(self) -> bytes:
        return Holder(
            token=self.token,
            process=os.getpid(),
            host=socket.gethostname(),
            machine=self._machine,
            at=self._clock.now(),
            sign=next(self._signs),
        ).to_bytes()


def current_holder(folder: Storage, name: str) -> Holder | None:
    """The holder of the lease, as far as this machine's clock can tell; None where it is free."""
    try:
        holder = Holder.read(folder.read(name))
    except FileNotFoundError:
        return None
    return holder if holder.token and time.time() - holder.at < VALID_S else None
