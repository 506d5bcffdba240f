"""The lock of a run directory on a disk; it ends with the process, however that ends."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from claimscore.atomic import os_errors
from claimscore.errors import ConfigError
from claimscore.file_lock import FileLock

#: A process that only looks whether the folder is locked is gone in less than these seconds.
_PATIENCE_S = 0.1


class FolderLock:
    """Held from its making to `release`. `ConfigError` where another process holds it, which says
    so of `what`, or of the folder."""

    def __init__(self, folder: Path, name: str, what: str = "") -> None:
        self._path = folder / name
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
        """Whether the locked file is still the one in the folder: a lock on another file is
        none."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._lock.descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        """Let others in."""
        os.ftruncate(self._lock.descriptor, 0)
        self._lock.release()
