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

_NAME = re.compile(rf"{LOG_FOLDER}/(snapshot-)?(\d{{8}})\.log")


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
                    contents = list(pool.map(self._storage.read, names.values()))
            except FileNotFoundError:  # a snapshot replaced it meanwhile
                continue
            self._last += bool(self._writer)
            expected = self._snapshot + 1
            for (number, name), content in zip(names.items(), contents, strict=True):
                if number > expected:  # the first of those that are missing
                    yield self._storage.address(_segment(expected)), [b""]
                yield self._storage.address(name), _lines(content)
                expected = number + 1
            if self._writer:
                yield self._storage.address(_segment(self._last)), []
            return
        raise StoppedEarly(f"{self._storage.name} changes all the time; try again")

    def _listed(self) -> dict[int, str]:
        """By number the name of the latest snapshot and of all segments after it."""
        found = self._names()
        self._snapshot = max((number for number, is_snapshot in found if is_snapshot), default=0)
        later = {
            number: name
            for (number, is_snapshot), name in found.items()
            if number > self._snapshot or (number == self._snapshot and is_snapshot)
        }
        self._last = max(later, default=0)
        return dict(sorted(later.items()))

    def _names(self) -> dict[tuple[int, bool], str]:
        """The objects of the log by number, and whether each is a snapshot."""
        found = map(_NAME.fullmatch, self._storage.sizes(LOG_FOLDER))
        return {(int(name[2]), bool(name[1])): name[0] for name in found if name}

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
        new = f"{LOG_FOLDER}/snapshot-{self._last:08d}.log"
        self._storage.write(new, self._content(lines))
        self._snapshot = self._last
        covered = (name for (number, _), name in self._names().items() if number <= self._last)
        self._storage.delete(*(name for name in covered if name != new))

    def is_long(self, n_sets: int) -> bool:
        most = max(_SEGMENTS, n_sets * _SEGMENTS_PER_CENT // 100)
        return self._last - self._snapshot >= most


def _lines(content: bytes) -> list[bytes]:
    """The lines without the writer's; where that one is missing, lines are lost."""
    *lines, last = content.splitlines(keepends=True) or [b""]
    return lines if _writer(last) else [*lines, last, b""]


def _segment(number: int) -> str:
    return f"{LOG_FOLDER}/{number:08d}.log"


def _writer(content: bytes) -> str:
    """The writer of an object, by its last line; empty where that is another line."""
    try:
        writer = json.loads(content.splitlines()[-1])["writer"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return ""
    return writer if isinstance(writer, str) else ""
