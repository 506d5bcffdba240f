"""The lock of a run directory on a disk; it ends with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from claimscore.atomic import os_errors
from claimscore.errors import ConfigError

#: How often, and at which distance, a locked folder is tried before it counts as in use.
_TRIES, _WAIT_S = 5, 0.02


class FolderLock:
    """Held from its making to `release`. `ConfigError` where another process holds it, which says
    so of `what`, or of the folder."""

    def __init__(self, folder: Path, name: str, what: str = "") -> None:
        path = folder / name
        with os_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock_patiently(descriptor)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except OSError as exc:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                os.close(descriptor)
                if exc.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                raise ConfigError(
                    f"{what or folder} is in use by process {holder or 'unknown'}; "
                    "wait for it, or stop it"
                ) from None
        self._path = path
        self._descriptor = descriptor

    def is_held(self) -> bool:
        """Whether the locked file is still the one in the folder: a lock on another file is
        none."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        """Let others in."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock now; False where that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _lock_patiently(descriptor: int) -> None:
    """Lock, or raise the system's error; who only looks (`is_locked`) is gone in a moment."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_WAIT_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
