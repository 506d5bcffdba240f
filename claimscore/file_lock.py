"""Locks on files, between processes: the one place that asks the system for them.

A lock ends with the process that holds it, however that ends, so none has to expire. It is
advisory: it keeps out only processes that ask for it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from pathlib import Path

_POLL_S = 0.01
_TAKEN = {errno.EAGAIN, errno.EACCES}


class FileLock:
    """A lock on a whole file, until `release`, the end of a `with`, or the end of the process.

    `descriptor` is open for reading and writing as long as the lock is held.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path, *, patience_s: float = 0.0) -> FileLock | None:
        """The lock, or None where another one is held for longer than `patience_s` seconds.

        The file is made, for its owner alone, where there is none. Raises `OSError` where it
        cannot be opened, and where the file system knows no locks.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _lock(descriptor, fcntl.LOCK_EX, patience_s):
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Let others have it; may be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds an exclusive lock now; False where that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH, patience_s=0.0)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except OSError as exc:
            if exc.errno not in _TAKEN:
                raise
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


#: So many digits of a key, which is hexadecimal, say which byte: as many as a file may have.
_DIGITS = 15


class KeyLocks:
    """Locks of a process on keys, each of which is a byte of one file.

    They are granted to all where the file cannot be opened or the file system knows no locks.
    """

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_lock(self, key: str) -> bool:
        """Whether no other process holds the key."""
        try:
            self._set(key, fcntl.F_WRLCK)
        except OSError as exc:
            return exc.errno not in _TAKEN
        return True

    def unlock(self, key: str) -> None:
        """Let other processes lock the key."""
        with contextlib.suppress(OSError):
            self._set(key, fcntl.F_UNLCK)

    def close(self) -> None:
        """Unlock all keys."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _set(self, key: str, kind: int) -> None:
        if self._file is not None:
            # of the open file: locks of a process end when any of its descriptors is closed
            byte = struct.pack("hhqqi4x", kind, 0, int(key[:_DIGITS], 16), 1, 0)
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, byte)
