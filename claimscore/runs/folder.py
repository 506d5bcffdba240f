"""The folder of a run directory: the names in it, and its lock."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import socket
import stat
from pathlib import Path

from claimscore.atomic import os_errors, remove_leftovers
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.file_lock import FileLock
from claimscore.runs.parts import PART_FILE, PART_TABLES, SCORES_CHECKSUM, SCORES_FILE
from claimscore.runs.settings_file import RUN_TOML, STATE

LOCK, EVENTS, SUMMARY = ".lock", "events.jsonl", "summary.json"
MANIFEST, SPEND = f"{STATE}/manifest.log", f"{STATE}/spend.jsonl"
PLAN, NOTE = f"{STATE}/plan.json", f"{STATE}/now.json"

#: The files of a run directory beside the manifest and the parts.
FILES = (
    *(RUN_TOML, SPEND, PLAN, SCORES_CHECKSUM, SCORES_FILE, "scores.csv"),
    *(SUMMARY, "report.html", EVENTS, NOTE),
)

#: The names in a run directory; a folder without run.toml that has others is not a run directory.
_OWN_NAMES = sorted({STATE, LOCK, *PART_TABLES, *(name for name in FILES if "/" not in name)})

#: A process that only looks whether the folder is locked is gone in less than these seconds.
_PATIENCE_S = 0.1


class RunFolder:
    """The folder at a path, for one writer. Threads may share it.

    The lock is one on the file `.lock` and ends with its process. NFSv4 and SMB pass it on to their
    server, so it holds off other machines too.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.state = path, path / STATE
        self._lock: FileLock | None = None

    def open(self) -> None:
        """Take the lock. `ConfigError` where another process has it, where other files are in this
        place, or where the file system knows no locks."""
        with os_errors(self.path):
            self._refuse_other_files()
            self.refuse_links()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.state.mkdir(mode=0o700, exist_ok=True)
        path = self.path / LOCK
        with os_errors(path):
            self._lock = FileLock.take(path, patience_s=_PATIENCE_S)
            if self._lock is None:
                holder = path.read_text("ascii", "replace").strip() or "another process"
                raise ConfigError(f"{self.path} is in use by {holder}; wait for it, or stop it")
            os.ftruncate(self._lock.descriptor, 0)
            holder = f"process {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(self._lock.descriptor, holder.encode(), 0)

    def _refuse_other_files(self) -> None:
        """`--out ~` by mistake must not fill a user's home with tables."""
        if (self.path / RUN_TOML).exists() or not self.path.exists():
            return
        names = {path.name for path in self.path.iterdir()}.difference(_OWN_NAMES)
        if others := sorted(name for name in names if not name.startswith(".")):
            raise ConfigError(
                f"{self.path}: a folder with other files ({others[0]}) and no run.toml; "
                "name a new or an empty folder"
            )

    def refuse_links(self) -> None:
        """`ConfigError` where one of the run's own files is no plain file: what is written through
        a symbolic link, or read from a pipe, is not in the run directory."""
        for place in (self.path / name for name in _OWN_NAMES):
            for path in itertools.chain((place,), place.rglob("*")):  # which follows no link
                with os_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    mode = path.lstat().st_mode
                    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                        raise ConfigError(
                            f"{path}: a link, a pipe or a device; a run directory has plain files "
                            "alone: put the file itself there"
                        )

    def check(self) -> None:
        """`StoppedEarly` where the folder was removed or moved: a lock on a file that is gone keeps
        no process out."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            there = (self.path / LOCK).stat()
            if self._lock and os.path.samestat(there, os.fstat(self._lock.descriptor)):
                return
        raise StoppedEarly(
            f"{self.path} was removed or moved while this process worked in it; "
            "run the same command again"
        )

    def clean(self) -> None:
        """Remove the temporary files of a killed process; the lock is held."""
        names = "|".join((*map(re.escape, _OWN_NAMES), PART_FILE))
        for folder in (self.path, *(self.path / table for table in PART_TABLES)):
            if folder.is_dir():
                remove_leftovers(folder, names)
        remove_leftovers(self.state, ".+")

    def release(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            os.ftruncate(self._lock.descriptor, 0)
            self._lock.release()
            self._lock = None

    def remove_traces(self) -> None:
        """Remove what `open` made, for a run that was refused before it made anything."""
        shutil.rmtree(self.state, ignore_errors=True)
        (self.path / LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it was there before
            self.path.rmdir()

    def remove(self) -> None:
        """Remove the run directory. The manifest goes first, so after a kill no step counts."""
        for name in (MANIFEST, RUN_TOML, *_OWN_NAMES):
            shutil.rmtree(self.path / name, ignore_errors=True)
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        with contextlib.suppress(OSError):  # files of others stay
            self.path.rmdir()
