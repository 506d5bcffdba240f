"""A journal: lines in the order in which they were kept. On a disk it is one appended file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from claimscore.atomic import os_errors, sync_folder, write_bytes

#: In the place of lines that are gone.
LOST = b""


class Journal(Protocol):
    """Where the manifest keeps its lines. Threads may append at once."""

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """The files with their names for people and their whole lines, oldest first; `LOST` where
        some are missing.

        It is read once, to its end, before anything is appended.
        """

    def begin(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Get ready for appending, and `tidy`; only the one writer may, after reading."""

    def rewrite(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Put these lines, which say all that counts, in the place of what is there."""

    def append(self, line: bytes, then: Callable[[], None]) -> None:
        """Keep a line, or several; returns once it outlives this process, and `then` was called.

        `then` is called for one line after the other, in the order in which they are kept.
        """

    def tidy(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Where there are too many files, put these lines, which say the same, in their place."""


class FileJournal:
    """A file to which each line is appended and synced.

    A line without its end, which a kill or a full disk leaves, is ignored and written over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._mutex = threading.Lock()

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        if self._path.exists():
            yield str(self._path), self._whole_lines()

    def _whole_lines(self) -> Iterator[bytes]:
        with os_errors(self._path), self._path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._size += len(line)
                yield line

    def begin(self, lines: Callable[[], Iterable[bytes]]) -> None:
        with os_errors(self._path):
            if self._path.exists() and self._path.stat().st_size > self._size:
                os.truncate(self._path, self._size)

    def rewrite(self, lines: Callable[[], Iterable[bytes]]) -> None:
        content = b"".join(lines())
        write_bytes(self._path, content)
        self._size = len(content)

    def append(self, line: bytes, then: Callable[[], None]) -> None:
        with self._mutex:
            with os_errors(self._path):
                new = not self._path.exists()
                with self._path.open("ab") as stream:
                    stream.truncate(self._size)  # a full disk may have left half a line
                    stream.write(line)
                    stream.flush()
                    os.fsync(stream.fileno())
                if new:
                    sync_folder(self._path.parent)
            self._size += len(line)
            then()

    def tidy(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """One file stays one file."""
