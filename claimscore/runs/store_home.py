"""A run directory in an object store, with a folder on this machine for what is appended to.

The store has everything that a run is gone on with, from any machine: each file is one object,
written whole. What grows line by line (events, what was spent) is appended to in the folder here
and copied into the store every few seconds; when the run ends its copies are there and the folder
is empty.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from claimscore.atomic import os_errors, write_bytes, write_text
from claimscore.config import user_state_dir
from claimscore.errors import ClaimscoreError
from claimscore.file_lock import is_locked
from claimscore.runs import settings_files
from claimscore.runs.home import LOCK, NOTE, STATE, append_line, end_last_line, refuse_foreign
from claimscore.runs.lease import Lease, current_holder
from claimscore.runs.lock import FolderLock
from claimscore.runs.mirror import Content, Mirror
from claimscore.runs.segments import SegmentJournal
from claimscore.storage import Storage, open_storage

_EVENTS = "events.jsonl"

#: What stays in the folder here when a run ends: its lock, and names for people and the lease.
_KEPT = {LOCK, "machine", "address"}

#: The ending of files that are appended to: they go only when the store has them.
_GROWING = ".jsonl"


class StoreHome:
    """An address such as `s3://bucket/runs/a`."""

    def __init__(self, where: str, tell: Callable[[str], None]) -> None:
        self.storage: Storage = open_storage(where)
        digest = hashlib.sha256(self.storage.name.encode()).hexdigest()[:16]
        self.state = user_state_dir() / "runs" / digest
        self._tell = tell
        self._lock: FolderLock | None = None
        self._lease: Lease | None = None
        self._mirror = Mirror(self.storage)
        self._note: bytes | None = None
        self._copied_events = -1
        self._is_removed = False

    # Opening and closing

    def open(self) -> None:
        with os_errors(self.state):
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = FolderLock(self.state, LOCK, self.storage.name)
        try:
            if not self.storage.exists("run.toml"):
                tops = {name.partition("/")[0] for name in self.storage.names()}
                refuse_foreign(sorted(tops - {STATE}), self.storage.name)
            lease = Lease(self.storage, LOCK, self.machine, tell=self._tell)
            lease.take()
            self._lease = lease
            self._take_events()
        except BaseException:
            self.release()
            raise
        self._mirror.add(_EVENTS, self._new_events)
        self._mirror.add(f"{STATE}/{NOTE}", self._new_note)
        self._mirror.start()

    @property
    def machine(self) -> str:
        path = self.state / "machine"
        if not path.exists():
            write_text(path, secrets.token_hex(16))
            write_text(self.state / "address", f"{self.storage.name}\n")
        with os_errors(path):
            return path.read_text()

    def _take_events(self) -> None:
        """Go on with the longer of the store's events and those here, which a kill may leave."""
        path = self.state / _EVENTS
        with os_errors(path), contextlib.suppress(FileNotFoundError):
            stored = self.storage.read(_EVENTS)
            if not path.exists() or path.stat().st_size < len(stored):
                write_bytes(path, stored)
                self._copied_events = len(stored)

    def check(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def release(self) -> None:
        lease, self._lease = self._lease, None
        lock, self._lock = self._lock, None
        try:
            if lease is not None:
                self._empty_state(lease)
                lease.release()
                if self._is_removed:
                    self.storage.delete(LOCK)
        finally:
            if lock is not None:
                lock.release()

    def _empty_state(self, lease: Lease) -> None:
        """Copy a last time, then remove what is here. What is not in the store stays here, for
        the next call on this machine: where the store is away, or this call was over before it
        looked at a file that an earlier one left."""
        try:
            lease.check()
            if not self._is_removed:
                self._mirror.stop()
        except ClaimscoreError:
            return
        copied = {name.rpartition("/")[2] for name in self._mirror.names}
        with contextlib.suppress(OSError):
            for entry in self.state.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                elif entry.name in copied or not (entry.name in _KEPT or entry.suffix == _GROWING):
                    entry.unlink(missing_ok=True)

    def remove_traces(self) -> None:
        with contextlib.suppress(ClaimscoreError):
            self._mirror.stop()
            self.storage.delete(*self.storage.names(STATE), _EVENTS, LOCK)

    def remove(self) -> None:
        self._mirror.stop()
        self._is_removed = True
        self.storage.delete(*self.storage.names(f"{STATE}/manifest"))
        self.storage.delete(*(n for n in self.storage.names() if n not in settings_files.NAMES))
        self.storage.delete(*settings_files.NAMES)

    def clean(self) -> None:
        end_last_line(self.state / _EVENTS)

    def is_locked(self) -> bool:
        holder = current_holder(self.storage, LOCK)
        if holder is None:
            return False
        with contextlib.suppress(OSError):
            if (self.state / "machine").read_text() == holder.machine:
                return is_locked(self.state / LOCK)
        return True

    # Files

    def journal(self) -> SegmentJournal:
        writer = self._lease.token if self._lease is not None else ""
        return SegmentJournal(self.storage.child(f"{STATE}/manifest"), writer)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="claimscore-") as scratch:
            path = Path(scratch) / name
            yield path
            self.storage.upload(name, path)

    def mirror(self, name: str, content: Content) -> None:
        self._mirror.add(f"{STATE}/{name}", content)

    def write_through(self) -> None:
        self._mirror.copy()

    def mirrored(self, name: str) -> bytes | None:
        try:
            return self.storage.read(f"{STATE}/{name}")
        except FileNotFoundError:
            return None

    def add_event(self, line: bytes) -> None:
        append_line(self.state / _EVENTS, line)

    def _new_events(self) -> bytes | None:
        path = self.state / _EVENTS
        with os_errors(path):
            if not path.exists() or path.stat().st_size == self._copied_events:
                return None
            content = path.read_bytes()
        self._copied_events = len(content)
        return content

    def write_note(self, note: bytes) -> None:
        self._note = note

    def _new_note(self) -> bytes | None:
        note, self._note = self._note, None
        return note
