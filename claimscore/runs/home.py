"""Where a run directory lives: what a disk and an object store do each in their own way."""

from __future__ import annotations

import contextlib
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from claimscore.atomic import atomic_path, os_errors, remove_leftovers
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.file_lock import is_locked
from claimscore.runs.journal import FileJournal, Journal
from claimscore.runs.lock import FolderLock
from claimscore.runs.mirror import Content
from claimscore.storage import LocalStorage, Storage
from claimscore.tables import TABLES

#: What a run directory holds; a folder without run.toml that holds something else is none.
OWN_NAMES = frozenset(
    (
        *TABLES,
        *("records", "columns"),
        "embeddings",  # a table of older runs
        *("run.toml", "events.jsonl", "scores.parquet", "summary.json", "report.html"),
        "state.json",
    )
)
LOCK, STATE, NOTE = ".lock", ".state", "now.json"


class Home(Protocol):
    """The place of a run directory. Threads may share it."""

    @property
    def storage(self) -> Storage:
        """Its files."""

    @property
    def state(self) -> Path:
        """A folder on this machine for what is appended to, and for scratch."""

    def journal(self) -> Journal:
        """The manifest's, to be read anew."""

    def open(self) -> None:
        """Take the lock, for writing. `ConfigError` where it is held, or this is no place for a
        run."""

    def check(self) -> None:
        """`StoppedEarly` where the lock is no longer held: it was taken over in an object store, or
        the folder was removed."""

    def clean(self) -> None:
        """Remove what a kill left; the lock is held."""

    def release(self) -> None:
        """Let others in."""

    def remove_traces(self) -> None:
        """Take away what `open` made, for a run that was refused before anything was made."""

    def remove(self) -> None:
        """Take everything away. The manifest goes first, so after a kill no step counts, and in an
        object store the settings last, so what is left is found again."""

    def is_locked(self) -> bool:
        """Whether a process works here now."""

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A path on this machine; what is written there takes the file's place when the block
        ends, and nothing does when it raises."""

    def mirror(self, name: str, content: Content) -> None:
        """Put what `content` gives into the state folder of the store, every few seconds and at
        the end; nothing where the state folder is in the run directory itself."""

    def write_through(self) -> None:
        """Put it there now."""

    def mirrored(self, name: str) -> bytes | None:
        """The bytes that `mirror` put there last, on whatever machine; None without any."""

    @property
    def machine(self) -> str:
        """A name of this machine that no other has; empty where the state folder is in the run
        directory itself."""

    def add_event(self, line: bytes) -> None:
        """Append a line to events.jsonl."""

    def write_note(self, note: bytes) -> None:
        """Replace now.json; not synced, and what goes wrong is no error."""


class LocalHome:
    """A folder on a disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / STATE
        self.storage = LocalStorage(path)
        self._lock: FolderLock | None = None

    def journal(self) -> FileJournal:
        return FileJournal(self.state / "manifest.jsonl")

    def open(self) -> None:
        with os_errors(self.path):
            self._refuse_other_folder()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.state.mkdir(mode=0o700, exist_ok=True)
        self._lock = FolderLock(self.path, LOCK)

    def _refuse_other_folder(self) -> None:
        """`--out ~` by mistake must not fill a user's home with tables."""
        if not self.path.exists() or (self.path / "run.toml").exists():
            return
        names = sorted(entry.name for entry in self.path.iterdir())
        refuse_foreign([name for name in names if name[0] != "."], str(self.path))

    def check(self) -> None:
        """The system keeps the lock as long as the process lives and its file stays there."""
        if not self._is_ours():
            raise StoppedEarly(
                f"{self.path} was removed or moved while this process worked in it; "
                "run the same command again"
            )

    def _is_ours(self) -> bool:
        return self._lock is None or self._lock.is_held()

    def clean(self) -> None:
        for folder in (self.path, self.state, *(self.path / name for name in OWN_NAMES)):
            if folder.is_dir():
                remove_leftovers(folder)
        end_last_line(self.path / "events.jsonl")

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def remove_traces(self) -> None:
        shutil.rmtree(self.state, ignore_errors=True)
        (self.path / LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it was there before, or is not ours
            self.path.rmdir()

    def remove(self) -> None:
        with os_errors(self.path):
            (self.state / "manifest.jsonl").unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def is_locked(self) -> bool:
        return is_locked(self.path / LOCK)

    def writing(self, name: str) -> AbstractContextManager[Path]:
        return atomic_path(self.path / name)

    def mirror(self, name: str, content: Content) -> None:
        """It is where it belongs."""

    def write_through(self) -> None:
        """It is there."""

    def mirrored(self, name: str) -> bytes | None:
        return None

    @property
    def machine(self) -> str:
        return ""

    def add_event(self, line: bytes) -> None:
        if self._is_ours():
            append_line(self.path / "events.jsonl", line)

    def write_note(self, note: bytes) -> None:
        path = self.state / NOTE
        scratch = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            scratch.write_bytes(note)
            scratch.replace(path)


def refuse_foreign(names: list[str], where: str) -> None:
    """`ConfigError` where one of the names is not of a run directory."""
    foreign = [name for name in names if name not in OWN_NAMES]
    if foreign:
        raise ConfigError(
            f"{where}: a folder with other files ({foreign[0]}) and no run.toml; "
            "name a new or an empty folder"
        )


def append_line(path: Path, line: bytes) -> None:
    """Append to a file that people read; a kill may leave half of the line."""
    with os_errors(path), path.open("ab") as stream:
        stream.write(line)


def end_last_line(path: Path) -> None:
    """Give the half line that a kill left its end."""
    with os_errors(path):
        if not path.is_file() or not path.stat().st_size:
            return
        with path.open("rb+") as stream:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
