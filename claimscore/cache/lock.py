"""The lock of a cache's files: many writers at a time, or one that replaces them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from claimscore.errors import StoppedEarly

_POLL_S = 0.01

#: What a file system answers that knows no locks; then there are none.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


class FolderLock:
    """A lock file; the lock ends with the process that holds it, however it ends.

    SQLite has its own locks for what happens inside a database. This one is for what it
    cannot see: that the file is set aside and another one takes its place.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """The files stay what they are; others may hold this too."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[bool]:
        """No other process holds anything. The value: whether `sign` was ever called here."""
        with self._held(fcntl.LOCK_EX) as descriptor:
            yield os.fstat(descriptor).st_size > 0

    def sign(self) -> None:
        """Leave word that there is a database here that must not be empty."""
        self._path.write_bytes(b"1\n")

    @contextlib.contextmanager
    def _held(self, kind: int) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait(descriptor, kind)
            yield descriptor
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, kind: int) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return
            except OSError as exc:
                if exc.errno in _NO_LOCKS:
                    return
                if exc.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if time.monotonic() > deadline:
                raise StoppedEarly(
                    f"{self._path.parent}: another process has been replacing the cache for "
                    f"{self._patience_s:g} s; see what it is doing"
                )
            time.sleep(_POLL_S)
