"""Where a manifest keeps its lines: an appended file.

Only the process with the lock of the run directory writes; any process may read meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from claimscore.atomic import os_errors, sync_folder, write_bytes
from claimscore.runs.settings_file import STATE

LOG_FILE = f"{STATE}/manifest.log"

#: A file may have so many lines, and so many for each part set that counts.
_LINES, _LINES_A_SET = 4096, 4


class FileLog:
    """A file to which lines are appended and synced.

    A line without its end, which a kill or a full disk leaves, is ignored and written over.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_FILE
        self._size = 0
        self._n_lines = 0

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """The name of the file and its whole lines; read to the end before the first `append`."""
        if self._path.exists():
            yield str(self._path), self._whole_lines()

    def _whole_lines(self) -> Iterator[bytes]:
        with os_errors(self._path), self._path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._size += len(line)
                self._n_lines += 1
                yield line

    def append(self, lines: bytes) -> None:
        """Return once the lines outlive the process and the machine."""
        with os_errors(self._path):
            is_new = not self._path.exists()
            with self._path.open("ab") as stream:
                stream.truncate(self._size)
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
            if is_new:
                sync_folder(self._path.parent)
        self._size += len(lines)
        self._n_lines += lines.count(b"\n")

    def rewrite(self, lines: bytes) -> None:
        """Put a snapshot in the place of all lines."""
        write_bytes(self._path, lines)
        self._size, self._n_lines = len(lines), lines.count(b"\n")

    def is_long(self, n_sets: int) -> bool:
        """Whether a snapshot of so many part sets is worth writing."""
        return self._n_lines > _LINES + _LINES_A_SET * n_sets
