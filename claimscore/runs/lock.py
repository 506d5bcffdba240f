"""One writer a run directory: a file lock on a disk, a renewed lease in an object store.

The file lock ends with its process. The lease is an object that its holder writes anew every
`RENEW_S` seconds, each time on the condition that the object is still the one it wrote last; the
store judges that, so of two processes one is refused.

Signs of life, not clocks, tell whether a holder is alive: a process that wants the lease watches
the object and takes it over once it has not changed for `VALID_S` seconds of the watcher's own
time. It need not wait where the holder's time stamp is more than `SKEW_S` older than a lease can
be (clocks may differ by less than that), or where the dead holder ran on this machine.

A holder that was asleep checks its lease before it writes. A request that it sent before may still
arrive; the numbers of the manifest's objects refuse that one (`manifest_log`).
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimscore.atomic import os_errors
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock

if TYPE_CHECKING:
    from claimscore.storage.objects import ObjectStorage

LOCK = ".lock"

#: A process that only looks whether the folder is locked is gone in less than these seconds.
_PATIENCE_S = 0.1

#: Seconds that a lease holds without a sign of life, between two signs, between two looks.
VALID_S, RENEW_S, LOOK_S = 60.0, 10.0, 2.0

#: Seconds before its end from which on the holder renews before it writes.
_MARGIN_S = 15.0

#: Seconds by which the clocks of machines may differ.
SKEW_S = 300.0


class FolderLock:
    """Held from its making to `release`, or to the end of the process.

    `ConfigError` where another process holds it; the message names the folder, or `what`.
    """

    def __init__(self, folder: Path, what: str = "") -> None:
        self._path = folder / LOCK
        with os_errors(self._path):
            lock = FileLock.take(self._path, patience_s=_PATIENCE_S)
            if lock is None:
                holder = ""
                with contextlib.suppress(OSError):
                    holder = self._path.read_text("ascii", "replace").strip()
                raise ConfigError(
                    f"{what or folder} is in use by process {holder or 'unknown'}; "
                    "wait for it, or stop it"
                )
            os.ftruncate(lock.descriptor, 0)
            os.pwrite(lock.descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def is_held(self) -> bool:
        """Whether the locked file is still in the folder: a lock on a removed file holds no one
        off."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._lock.descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        """Let other processes in."""
        os.ftruncate(self._lock.descriptor, 0)
        self._lock.release()


class Clock:
    """The clock of this machine; tests turn one of their own."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def passed(self) -> float:
        """Seconds since some moment, sleep of the machine included."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclasses.dataclass(frozen=True)
class Holder:
    """The content of a lease. `token` is the holder's own, empty in a released lease; `sign`
    counts signs of life, so that no two are the same bytes."""

    token: str
    process: int = 0
    host: str = ""
    machine: str = ""
    at: float = 0.0
    sign: int = 0

    @classmethod
    def read(cls, content: bytes) -> Holder:
        """From the object; a damaged one counts as released."""
        try:
            found: dict[str, Any] = json.loads(content)
            return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls)})
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls("")

    def to_bytes(self) -> bytes:
        """The object of a lease."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"


class Lease:
    """Held from `take` to `release`; meanwhile a thread renews it. Threads may share it.

    `machine` names a lock of this machine that the caller holds, so an earlier holder with the
    same name is dead. `tell` hears why the caller has to wait.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        machine: str = "",
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.token = secrets.token_hex(8)
        self._storage = storage
        self._machine = machine
        self._tell = tell
        self._clock = clock or Clock()
        self._version = ""
        self._renewed = 0.0
        self._lost = False
        self._signs = itertools.count()
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    def take(self) -> None:
        """Get the lease; waits while another holder may be alive. `ConfigError` where it is."""
        while not self._try():
            pass
        threading.Thread(target=self._keep, name="lease", daemon=True).start()

    def _try(self) -> bool:
        began = self._clock.passed()
        version: str | None
        if self._storage.create(LOCK, self._sign_of_life()):
            version = self._own_version()
        else:
            seen = self._look()
            if seen is None:
                return False
            if self._may_be_alive(seen[1]):
                self._watch(*seen)
            began = self._clock.passed()
            version = self._storage.replace_if(LOCK, self._sign_of_life(), seen[0])
        if version is None:
            return False
        self._version, self._renewed = version, began
        return True

    def _look(self) -> tuple[str, Holder] | None:
        version = self._storage.version(LOCK)
        if version is None:
            return None
        try:
            return version, Holder.read(self._storage.read(LOCK))
        except FileNotFoundError:
            return None

    def _may_be_alive(self, holder: Holder) -> bool:
        if not holder.token or holder.token == self.token:
            return False
        if self._machine and holder.machine == self._machine:
            return False
        return self._clock.now() - holder.at <= VALID_S + SKEW_S

    def _watch(self, version: str, holder: Holder) -> None:
        """Wait until the holder is certainly dead; `ConfigError` where it gives a sign of life."""
        shown = f"process {holder.process} on {holder.host}"
        began = self._clock.passed()
        self._tell(f"waiting up to {VALID_S:.0f} s to see whether {shown} is still at work")
        while self._clock.passed() - began < VALID_S:
            self._clock.sleep(LOOK_S)
            found = self._storage.version(LOCK)
            if found is None:
                return
            if found != version:
                raise ConfigError(
                    f"{self._storage.name} is in use by {shown}; wait for it, or stop it"
                )

    def check(self) -> None:
        """`StoppedEarly` where another process has the lease, or the store cannot tell."""
        if self._lost or self._clock.passed() - self._renewed > VALID_S - _MARGIN_S:
            self.renew()

    def renew(self) -> None:
        """Give a sign of life. Raises as `check` does."""
        with self._mutex:
            if not self._lost:
                began = self._clock.passed()
                version = self._storage.replace_if(LOCK, self._sign_of_life(), self._version)
                version = version or self._own_version()
                if version is not None:
                    self._version, self._renewed = version, began
                    return
                self._lost = True
        raise StoppedEarly(
            f"{self._storage.name}: another process has taken this run over, since this one gave "
            f"no sign of life for {VALID_S:.0f} s; run the same command again when that one ends"
        )

    def _own_version(self) -> str | None:
        """The version of the object if this process wrote it: the store's answer to an earlier
        try may have been lost on the way."""
        seen = self._look()
        return seen[0] if seen is not None and seen[1].token == self.token else None

    def _keep(self) -> None:
        while not (self._ended.wait(RENEW_S) or self._lost):
            with contextlib.suppress(ClaimscoreError):  # the next `check` raises it again
                self.renew()

    def release(self) -> None:
        """Give it back, so that the next process need not wait; an unreachable store is no
        error."""
        self._ended.set()
        with self._mutex, contextlib.suppress(ClaimscoreError):
            if self._version and not self._lost:
                self._storage.replace_if(LOCK, Holder("").to_bytes(), self._version)
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


def current_holder(storage: ObjectStorage) -> Holder | None:
    """The holder of the lease, as far as this machine's clock tells; None where it is free."""
    try:
        holder = Holder.read(storage.read(LOCK))
    except FileNotFoundError:
        return None
    return holder if holder.token and time.time() - holder.at < VALID_S else None
