"""Locks on requests in flight, one a key, so that two processes never buy the same answer.

A lock on one byte of a file stands for a key. The system takes it back when the process ends,
however it ends, so no lock has to expire.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

#: So many digits of a key, which is hexadecimal, say which byte: as many as a file may have.
_DIGITS = 15

_TAKEN = {errno.EAGAIN, errno.EACCES}


class InFlightLocks:
    """The keys that this process is asking for; another process cannot lock them meanwhile."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):  # then no other process can write there either
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_lock(self, key: str) -> bool:
        """Whether no other process holds the key. True where files cannot be locked."""
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
        if self._file is None:
            return
        byte = int(key[:_DIGITS], 16)
        # of the open file: locks of a process are lost when any of its descriptors is closed
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, byte, 1, 0))
