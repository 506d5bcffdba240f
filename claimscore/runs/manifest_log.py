"""Where a manifest keeps its lines: an appended file on a disk, numbered objects in a store.

Only the process with the lock of the run directory writes; any process may read meanwhile.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from claimscore.atomic import os_errors, sync_folder, write_bytes
from claimscore.errors import StoppedEarly
from claimscore.runs.settings_file import STATE

if TYPE_CHECKING:
    from claimscore.storage.objects import ObjectStorage

#: The file on a disk, and the folder of the objects in a store.
LOG_FILE, LOG_FOLDER = f"{STATE}/manifest.log", f"{STATE}/manifest"

#: A file may have so many lines, and so many for each part set that counts.
_LINES, _LINES_A_SET = 4096, 4

#: A store may have so many segments, and so many a hundred part sets: the cost of snapshots stays
#: in proportion to what is written.
_SEGMENTS, _SEGMENTS_PER_CENT = 128, 3

_AT_ONCE = 16
_TRIES = 10

_SEGMENT = re.compile(rf"{LOG_FOLDER}/(\d{{8}})\.log")
_SNAPSHOT = re.compile(rf"{LOG_FOLDER}/snapshot-(\d{{8}})\.log")


class ManifestLog(Protocol):
    """Lines in the order in which they were appended. Calls come one at a time."""

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """The files, oldest first: the name for people, and the lines, each whole. An empty line
        stands for lines that are lost.

        Read to the end before the first `append`.
        """

    def append(self, lines: bytes) -> None:
        """Return once the lines outlive the process and the machine."""

    def rewrite(self, lines: bytes) -> None:
        """Put a snapshot in the place of all lines; after a kill both or one of them count."""

    def is_long(self, n_sets: int) -> bool:
        """Whether a snapshot of so many part sets is worth writing."""


class FileLog:
    """A file to which lines are appended and synced.

    A line without its end, which a kill or a full disk leaves, is ignored and written over.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_FILE
        self._size = 0
        self._n_lines = 0

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
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
        write_bytes(self._path, lines)
        self._size, self._n_lines = len(lines), lines.count(b"\n")

    def is_long(self, n_sets: int) -> bool:
        return self._n_lines > _LINES + _LINES_A_SET * n_sets


class ObjectLog:
    """Numbered objects, each written only if there is none of its number.

        00000042.log             a segment: lines that were appended together
        snapshot-00000041.log    a snapshot of all segments up to this number

    Each object ends with a line that names its writer. A writer begins with an empty segment.
    That is the fence: an earlier writer that lost its lease in its sleep finds the next number
    taken, and can append nothing more. A log without `writer`, a name that no other process has,
    is read-only.
    """

    def __init__(self, storage: ObjectStorage, writer: str = "") -> None:
        self._storage = storage
        self._writer = writer
        self._last = 0
        self._snapshot = 0

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        for _ in range(_TRIES):
            names = self._listed()
            if self._writer and not self._create(self._last + 1, b""):
                continue  # another writer's last segment came in between
            try:
                with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
                    contents = list(pool.map(self._storage.read, names))
            except FileNotFoundError:  # a snapshot replaced it meanwhile
                continue
            self._last += bool(self._writer)
            for gap in self._gaps(names):
                yield self._storage.address(gap), [b""]
            for name, content in zip(names, contents, strict=True):
                yield self._storage.address(name), _lines(content)
            if self._writer:
                yield self._storage.address(_segment(self._last)), []
            return
        raise StoppedEarly(f"{self._storage.name} changes all the time; try again")

    def _listed(self) -> list[str]:
        """The names of the latest snapshot and of all segments after it; notes their numbers."""
        names = self._names()
        self._snapshot = max((_number(_SNAPSHOT, name) for name in names), default=0)
        later = sorted(n for name in names if (n := _number(_SEGMENT, name)) > self._snapshot)
        self._last = max(self._snapshot, *later, 0)
        snapshot = [_snapshot(self._snapshot)] if self._snapshot else []
        return [*snapshot, *map(_segment, later)]

    def _names(self) -> list[str]:
        return list(self._storage.sizes(LOG_FOLDER))

    def _gaps(self, names: list[str]) -> Iterator[str]:
        """The first of the segments that are missing before each of these."""
        expected = self._snapshot + 1
        for number in filter(None, (_number(_SEGMENT, name) for name in names)):
            if number > expected:
                yield _segment(expected)
            expected = number + 1

    def append(self, lines: bytes) -> None:
        while not self._create(self._last + 1, lines):
            # The answer to an earlier try may have been lost: then that segment is ours.
            content = self._storage.read(_segment(self._last + 1))
            if _writer(content) != self._writer:
                raise StoppedEarly(
                    f"{self._storage.name}: another process has taken this run over; run the same "
                    "command again when that one ends"
                )
            self._last += 1
            if content == self._content(lines):
                return
        self._last += 1

    def _create(self, number: int, lines: bytes) -> bool:
        return self._storage.create(_segment(number), self._content(lines))

    def _content(self, lines: bytes) -> bytes:
        return lines + json.dumps({"writer": self._writer}).encode() + b"\n"

    def rewrite(self, lines: bytes) -> None:
        self._storage.write(_snapshot(self._last), self._content(lines))
        self._snapshot = self._last
        self._storage.delete(*filter(self._is_covered, self._names()))

    def _is_covered(self, name: str) -> bool:
        """Whether the latest snapshot stands for an object too."""
        return (
            0 < _number(_SEGMENT, name) <= self._snapshot
            or 0 < _number(_SNAPSHOT, name) < self._snapshot
        )

    def is_long(self, n_sets: int) -> bool:
        most = max(_SEGMENTS, n_sets * _SEGMENTS_PER_CENT // 100)
        return self._last - self._snapshot >= most


def _lines(content: bytes) -> list[bytes]:
    """The lines without the writer's; where that one is missing, lines are lost."""
    *lines, last = content.splitlines(keepends=True) or [b""]
    return lines if _writer(last) else [*lines, last, b""]


def _segment(number: int) -> str:
    return f"{LOG_FOLDER}/{number:08d}.log"


def _snapshot(number: int) -> str:
    return f"{LOG_FOLDER}/snapshot-{number:08d}.log"


def _number(pattern: re.Pattern[str], name: str) -> int:
    found = pattern.fullmatch(name)
    return int(found[1]) if found else 0


def _writer(content: bytes) -> str:
    """The writer of an object, by its last line; empty where that is another line."""
    try:
        writer = json.loads(content.splitlines()[-1])["writer"]
    except (ValueError, KeyError, TypeError, IndexError):
        return ""
    return writer if isinstance(writer, str) else ""
