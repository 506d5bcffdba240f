"""The lock of a cache's files: many writers at a time, or one that replaces them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from claimscore.errors import StoppedEarly
from claimscore.file_lock import FileLock


class CacheLock:
    """A lock file beside the database, with up to `patience_s` seconds for others to let go.

    SQLite has its own locks for what happens inside a database. This one is for what it
    cannot see: that the file is set aside and another one takes its place.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """The files stay what they are; others may hold this too."""
        with self._take(shared=True):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[bool]:
        """No other process holds anything. The value: whether `sign` was ever called here."""
        with self._take(shared=False) as lock:
            yield os.fstat(lock.descriptor).st_size > 0

    def sign(self) -> None:
        """Leave word that there is a database here that must not be empty."""
        self._path.write_bytes(b"1\n")

    def _take(self, *, shared: bool) -> FileLock:
        """Raises `StoppedEarly` after the patience; a file system without locks grants all."""
        lock = FileLock.take(self._path, shared=shared, patience_s=self._patience_s, required=False)
        if lock is None:
            raise StoppedEarly(
                f"{self._path.parent}: another process has been replacing the cache for "
                f"{self._patience_s:g} s; see what it is doing"
            )
        return lock
