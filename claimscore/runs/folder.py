"""The folder of a run directory: its lock, what may stand in it, and the files that grow."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path

from claimscore.atomic import os_errors, remove_files, remove_leftovers
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.file_lock import FileLock, is_locked
from claimscore.runs.parts import PART_FILE, PART_TABLES
from claimscore.runs.settings_file import RUN_TOML, STATE

LOCK, NOTE, _EVENTS = ".lock", f"{STATE}/now.json", "events.jsonl"

#: The names in a run directory; a folder without run.toml that has others is not a run directory.
_OWN_NAMES = frozenset(
    (
        *PART_TABLES,
        *(RUN_TOML, _EVENTS, "scores.parquet", "scores.csv", "summary.json", "report.html"),
    )
)

#: A process that only looks whether the folder is locked is gone in less than these seconds.
_PATIENCE_S = 0.1


class RunFolder:
    """The folder at a path. Threads may share it.

    The lock is a lock on the file `.lock`. It ends with its process, also on another machine that
    has the folder by NFSv4 or SMB: these pass it on to the server.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.state = path, path / STATE
        self._lock: FileLock | None = None
        self._had_state = False

    # Opening and closing

    def open(self) -> None:
        """Take the lock, for writing. `ConfigError` where another process has it, where other
        files are in this place, or where the file system knows no locks."""
        with os_errors(self.path):
            self._refuse_other_files()
            self.refuse_links()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._had_state = self.state.exists()
            self.state.mkdir(mode=0o700, exist_ok=True)
        self._take_lock()

    def _take_lock(self) -> None:
        path = self.path / LOCK
        with os_errors(path):
            lock = FileLock.take(path, patience_s=_PATIENCE_S)
            if lock is None:
                holder = ""
                with contextlib.suppress(OSError):
                    holder = path.read_text("ascii", "replace").strip()
                raise ConfigError(
                    f"{self.path} is in use by process {holder or 'unknown'}; "
                    "wait for it, or stop it"
                )
            os.ftruncate(lock.descriptor, 0)
            os.pwrite(lock.descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _refuse_other_files(self) -> None:
        """`--out ~` by mistake must not fill a user's home with tables."""
        if (self.path / RUN_TOML).exists() or not self.path.exists():
            return
        names = {path.name for path in self.path.iterdir()}
        others = sorted(name for name in names - _OWN_NAMES if not name.startswith("."))
        if others:
            raise ConfigError(
                f"{self.path}: a folder with other files ({others[0]}) and no run.toml; "
                "name a new or an empty folder"
            )

    def refuse_links(self) -> None:
        """`ConfigError` where one of the run's own files is no plain file: what is written through
        a symbolic link, or read from a pipe, is not in the run directory."""
        for name in (*sorted(_OWN_NAMES), STATE, LOCK):
            if (odd := _no_plain_file(self.path / name)) is not None:
                raise ConfigError(
                    f"{odd}: a link, a pipe or a device; a run directory has plain files alone: "
                    "put the file itself there"
                )

    def holds_lock(self) -> bool:
        """Whether the locked file is still in the folder: a lock on a removed file holds no one
        off."""
        if self._lock is None:
            return False
        try:
            ours = os.fstat(self._lock.descriptor)
            return os.path.samestat((self.path / LOCK).stat(), ours)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def check(self) -> None:
        """`StoppedEarly` where the folder was removed or moved."""
        if not self.holds_lock():
            raise StoppedEarly(
                f"{self.path} was removed or moved while this process worked in it; "
                "run the same command again"
            )

    def clean(self) -> None:
        """Remove the temporary files of a killed process; the lock is held."""
        remove_leftovers(self.path, "|".join(map(re.escape, _OWN_NAMES - PART_TABLES)))
        remove_leftovers(self.state, ".+")
        for folder in (self.path / table for table in PART_TABLES):
            if folder.is_dir():
                remove_leftovers(folder, PART_FILE)
        _end_last_line(self.path / _EVENTS)

    def release(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            os.ftruncate(self._lock.descriptor, 0)
            self._lock.release()
            self._lock = None

    def remove_traces(self) -> None:
        """Remove what `open` made, for a run that was refused before it made anything."""
        if not self._had_state:
            shutil.rmtree(self.state, ignore_errors=True)
        (self.path / LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it was there before
            self.path.rmdir()

    def remove(self) -> None:
        """Remove the run directory. The manifest goes first, so after a kill no step counts."""
        remove_files([self.state / "manifest.log"])
        for name in (*_OWN_NAMES, STATE, LOCK):
            shutil.rmtree(self.path / name, ignore_errors=True)
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        with contextlib.suppress(OSError):  # files of others stay
            self.path.rmdir()

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the run directory now."""
        return is_locked(self.path / LOCK)

    # Files that grow

    def add_event(self, line: bytes) -> None:
        """Append a line to events.jsonl; a kill may leave half of it."""
        path = self.path / _EVENTS
        if self.holds_lock():
            with os_errors(path), path.open("ab") as stream:
                stream.write(line)

    def write_note(self, note: bytes) -> None:
        """Replace now.json; it is not synced, and errors are passed over."""
        path = self.path / NOTE
        with contextlib.suppress(OSError):
            new = path.with_suffix(".tmp")
            new.write_bytes(note)
            new.replace(path)


def _no_plain_file(path: Path) -> Path | None:
    """The path, or one below it, where neither a file nor a folder is; None where there is none."""
    with os_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            return None if stat.S_ISREG(mode) else path
        with os.scandir(path) as entries:
            return next(filter(None, (_no_plain_file(Path(entry)) for entry in entries)), None)
    return None


def _end_last_line(path: Path) -> None:
    """Give the half line that a kill left its end."""
    with os_errors(path):
        if not path.is_file() or not path.stat().st_size:
            return
        with path.open("rb+") as stream:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
