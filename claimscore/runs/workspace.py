"""The writer's place on its own machine: the lock, a folder for scratch, and files that grow.

A run directory on a disk has all of them in itself. Of a run in an object store the folder is in
the user's state folder. The store has everything that a run needs to continue, from any machine:
each file is one object, written whole. Files that grow line by line (events, the ledger) are
appended to here and mirrored into the store every few seconds; after a run this folder is empty.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from claimscore.atomic import os_errors, remove_leftovers, write_bytes, write_text
from claimscore.config import user_state_dir
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import is_locked
from claimscore.runs.lock import LOCK, FolderLock, Lease, current_holder
from claimscore.runs.manifest_log import LOG_FILE, LOG_FOLDER, FileLog, ManifestLog, ObjectLog
from claimscore.runs.parts import PART_FILE, PART_TABLES
from claimscore.runs.settings_file import COPY, RUN_TOML, STATE
from claimscore.storage import Storage, open_storage

if TYPE_CHECKING:
    from claimscore.storage.objects import ObjectStorage

#: The names in a run directory; a folder without run.toml that has others is not a run directory.
_OWN_NAMES = frozenset(
    (
        *PART_TABLES,
        *(RUN_TOML, "events.jsonl", "scores.parquet", "scores.csv", "summary.json", "report.html"),
    )
)
_EVENTS, NOTE = "events.jsonl", f"{STATE}/now.json"

#: Files of the state folder of a run in a store that stay when the run ends.
_STAYS = {LOCK, "machine", "address"}

#: The ending of files that grow: they go only when the store has them.
_GROWING = ".jsonl"

#: Seconds between two copies; longer where copying takes more than a twentieth of the time.
COPY_S = 5.0

#: Gives a file's content, or None where there is nothing to copy.
Content = Callable[[], bytes | None]


class Workspace:
    """The workspace of the run directory at a path or an address. Threads may share it.

    `state` is the folder on this machine, `storage` has the files of the run directory. `tell`
    hears why the process has to wait for the lock.
    """

    def __init__(self, where: Path | str, tell: Callable[[str], None]) -> None:
        self.storage: Storage = open_storage(where)
        self._tell = tell
        self._lock: FolderLock | None = None
        self._lease: Lease | None = None
        self._mirror: Mirror | None = None
        self._is_removed = self._had_state = False
        self._path = self.storage.local
        if self._path is not None:
            self.state = self._path / STATE
            self._events = self._path / _EVENTS
        else:
            digest = hashlib.sha256(self.storage.name.encode()).hexdigest()[:16]
            self.state = user_state_dir() / "runs" / digest
            self._events = self.state / _EVENTS
            self._mirror = Mirror(self.storage)
        self._note = self.state / "now.json"

    def log(self) -> ManifestLog:
        """The log of the manifest, to be read anew."""
        if self._path is not None:
            return FileLog(self._path)
        return ObjectLog(self._objects, self._lease.token if self._lease is not None else "")

    @property
    def _objects(self) -> ObjectStorage:
        return cast("ObjectStorage", self.storage)

    # Opening and closing

    def open(self) -> None:
        """Take the lock, for writing. `ConfigError` where another process has it, or where other
        files are in this place."""
        with os_errors(self._path or self.state):
            if self._path is not None:
                self._refuse_other_files()
                self.refuse_links()
                self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._had_state = self.state.exists()
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = FolderLock(self._path or self.state, self.storage.name)
        if self._mirror is None:
            return
        self._is_removed = False
        try:
            self._refuse_other_files()
            lease = Lease(self._objects, self.machine, tell=self._tell)
            lease.take()
            self._lease = lease
            self._take_events()
        except BaseException:
            self.release()
            raise
        self._mirror.add(_EVENTS, partial(_read, self._events))
        self._mirror.add(NOTE, partial(_read, self._note))
        self._mirror.start()

    def _refuse_other_files(self) -> None:
        """`--out ~` by mistake must not fill a user's home with tables."""
        if self.storage.exists(RUN_TOML):
            return
        if self._path is None:
            names = {name.partition("/")[0] for name in self.storage.sizes()}
        else:
            names = {path.name for path in self._path.iterdir()} if self._path.exists() else set()
        others = sorted(name for name in names - _OWN_NAMES if not name.startswith("."))
        if others:
            raise ConfigError(
                f"{self.storage.name}: a folder with other files ({others[0]}) and no run.toml; "
                "name a new or an empty folder"
            )

    def refuse_links(self) -> None:
        """`ConfigError` where one of the run's own files is no plain file: what is written through
        a symbolic link, or read from a pipe, is not in the run directory."""
        path = self._path
        for name in (*sorted(_OWN_NAMES), STATE, LOCK) if path is not None else ():
            assert path is not None
            if (odd := _no_plain_file(path / name)) is not None:
                raise ConfigError(
                    f"{odd}: a link, a pipe or a device; a run directory has plain files alone: "
                    "put the file itself there"
                )

    @property
    def machine(self) -> str:
        """A name of this machine that no other has; empty for a run on a disk."""
        if self._path is not None:
            return ""
        path = self.state / "machine"
        if not path.exists():
            write_text(path, secrets.token_hex(16))
            write_text(self.state / "address", f"{self.storage.name}\n")
        with os_errors(path):
            return path.read_text()

    def _take_events(self) -> None:
        """Continue the longer of the store's events and those that a kill left here."""
        path = self._events
        with os_errors(path), contextlib.suppress(FileNotFoundError):
            stored = self.storage.read(_EVENTS)
            if not path.exists() or path.stat().st_size < len(stored):
                write_bytes(path, stored)

    def check(self) -> None:
        """`StoppedEarly` where the lock is lost: another process took the run over in an object
        store, or the folder was removed."""
        if self._lease is not None:
            self._lease.check()
        elif self._lock is not None and not self._lock.is_held():
            raise StoppedEarly(
                f"{self.storage.name} was removed or moved while this process worked in it; "
                "run the same command again"
            )

    def clean(self) -> None:
        """Remove the temporary files of a killed process; the lock is held."""
        if self._path is not None:
            remove_leftovers(self._path, "|".join(map(re.escape, _OWN_NAMES - PART_TABLES)))
            remove_leftovers(self.state, ".+")
            for folder in (self._path / table for table in PART_TABLES):
                if folder.is_dir():
                    remove_leftovers(folder, PART_FILE)
        _end_last_line(self._events)

    def release(self) -> None:
        """Mirror a last time, and let other processes in."""
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
        """Mirror a last time, then remove the files here. A file that is not in the store stays
        for the next call on this machine: the store is unreachable, or this call never looked at
        a file of an earlier one."""
        mirror = self._mirror
        assert mirror is not None, "in a store"
        try:
            lease.check()
            if not self._is_removed:
                mirror.stop()
        except ClaimscoreError:
            return
        copied = {name.rpartition("/")[2] for name in mirror.names}
        with contextlib.suppress(OSError):
            for entry in self.state.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                elif entry.name in copied or not (entry.name in _STAYS or entry.suffix == _GROWING):
                    entry.unlink(missing_ok=True)

    def remove_traces(self) -> None:
        """Remove what `open` made, for a run that was refused before it made anything."""
        if self._mirror is not None:
            with contextlib.suppress(ClaimscoreError):
                self._mirror.stop()
                self.storage.delete(*self.storage.sizes(STATE), _EVENTS, LOCK)
        elif self._path is not None:
            if not self._had_state:
                shutil.rmtree(self.state, ignore_errors=True)
            (self._path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: it was there before
                self._path.rmdir()

    def remove(self) -> None:
        """Remove the run directory. The manifest goes first, so after a kill no step counts, and
        in an object store the settings last, so the rest is found again."""
        storage = self.storage
        if self._mirror is not None:
            self._mirror.stop()
            self._is_removed = True
            storage.delete(*storage.sizes(LOG_FOLDER))
            storage.delete(*(name for name in storage.sizes() if name != RUN_TOML), COPY)
            storage.delete(RUN_TOML)
        elif self._path is not None:
            storage.delete(LOG_FILE)
            for name in (*_OWN_NAMES, STATE, LOCK):
                shutil.rmtree(self._path / name, ignore_errors=True)
                with contextlib.suppress(OSError):
                    (self._path / name).unlink()
            with contextlib.suppress(OSError):  # files of others stay
                self._path.rmdir()

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the run directory now."""
        if self._path is not None:
            return is_locked(self._path / LOCK)
        holder = current_holder(self._objects)
        if holder is None:
            return False
        with contextlib.suppress(OSError):
            if (self.state / "machine").read_text() == holder.machine:
                return is_locked(self.state / LOCK)
        return True

    # Files that grow

    def mirror(self, name: str, content: Content) -> None:
        """Keep a file of the state folder in the store too, for a call on another machine.

        `content` gives its bytes, or None; a thread calls it every few seconds and when the run
        ends. On a disk the state folder is in the run directory, and nothing is done.
        """
        if self._mirror is not None:
            self._mirror.add(f"{STATE}/{name}", content)

    def mirrored(self, name: str) -> bytes | None:
        """The bytes that a machine mirrored last; None on a disk, or without any."""
        with contextlib.suppress(FileNotFoundError):
            return self.storage.read(f"{STATE}/{name}") if self._mirror is not None else None
        return None

    def add_event(self, line: bytes) -> None:
        """Append a line to events.jsonl; a kill may leave half of it."""
        if self._lease is not None or self._lock is None or self._lock.is_held():
            with os_errors(self._events), self._events.open("ab") as stream:
                stream.write(line)

    def write_note(self, note: bytes) -> None:
        """Replace now.json; it is not synced, and errors are passed over."""
        with contextlib.suppress(OSError):
            new = self._note.with_suffix(".tmp")
            new.write_bytes(note)
            new.replace(self._note)


class Mirror:
    """Writes growing files into a store, in a thread from `start` to `stop`. A failed copy is
    repeated with the next one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._contents: dict[str, Content] = {}
        self._copied: dict[str, bytes] = {}
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, name: str, content: Content) -> None:
        """Write this too, under this name; `content` replaces an earlier one of that name."""
        with self._mutex:
            self._contents[name] = content

    @property
    def names(self) -> frozenset[str]:
        """The names of the mirrored files."""
        with self._mutex:
            return frozenset(self._contents)

    def start(self) -> None:
        """Start the thread."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._keep, name="mirror", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and copy a last time. Raises as a write does."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.copy()

    def copy(self) -> None:
        """Copy now the files that have changed."""
        with self._mutex:
            for name, content in self._contents.items():
                new = content()
                if new is not None and new != self._copied.get(name):
                    self._storage.write(name, new)
                    self._copied[name] = new

    def _keep(self) -> None:
        wait_s = COPY_S
        while not self._ended.wait(wait_s):
            began = time.monotonic()
            with contextlib.suppress(ClaimscoreError):  # the next write raises it again
                self.copy()
            wait_s = max(COPY_S, 19 * (time.monotonic() - began))


def _no_plain_file(path: Path) -> Path | None:
    """The path, or one below it, where neither a file nor a folder is; None where there is none."""
    with os_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            return None if stat.S_ISREG(mode) else path
        with os.scandir(path) as entries:
            return next(filter(None, (_no_plain_file(Path(entry)) for entry in entries)), None)
    return None


def _read(path: Path) -> bytes | None:
    with os_errors(path):
        return path.read_bytes() if path.exists() else None


def _end_last_line(path: Path) -> None:
    """Give the half line that a kill left its end."""
    with os_errors(path):
        if not path.is_file() or not path.stat().st_size:
            return
        with path.open("rb+") as stream:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
