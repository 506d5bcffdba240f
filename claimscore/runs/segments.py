"""A journal in an object store, where nothing can be appended to: numbered objects.

    00000042.jsonl             a segment: lines that were kept together
    snapshot-00000041.jsonl    what all segments up to this number say

Lines that come while a segment is being written go together into the next one. Each object ends
with a line that names its writer, and is written only if there is none of its number. A writer
begins with an empty segment: from then on a writer before it, whose lease is over and who does
not know it, cannot keep any line, since the number that it would write next is taken.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from claimscore.errors import StoppedEarly
from claimscore.runs.journal import LOST
from claimscore.storage import Storage

#: So many segments are merged when a run is opened.
MERGED_ON_OPENING = 64

#: While it goes on so many, or so many a hundred lines that there are: what merging costs stays
#: in proportion to what was written.
_MERGED_LATER, _MERGED_PER_CENT = 256, 3

_AT_ONCE = 16
_TRIES = 10

_SEGMENT = re.compile(r"(\d{8})\.jsonl")
_SNAPSHOT = re.compile(r"snapshot-(\d{8})\.jsonl")


@dataclasses.dataclass
class _Batch:
    """Lines that are kept together."""

    lines: list[bytes] = dataclasses.field(default_factory=list)
    then: list[Callable[[], None]] = dataclasses.field(default_factory=list)
    error: BaseException | None = None
    is_done: bool = False


class SegmentJournal:
    """Without `writer`, a name that no other process has, it can only be read."""

    def __init__(self, folder: Storage, writer: str = "") -> None:
        self._folder = folder
        self._writer = writer
        self._last = 0
        self._merged = 0
        self._merge_at = _MERGED_LATER
        self._batch = _Batch()
        self._busy = False
        self._turn = threading.Condition()

    # Reading

    def read(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """The lines now; for a writer, after its first segment has locked others out."""
        for _ in range(_TRIES):
            self._merged, self._last, names = self._listed()
            if self._writer and not self._create(self._last + 1, []):
                continue  # another writer's last segment came in between
            try:
                contents = self._contents(names)
            except FileNotFoundError:  # merged meanwhile
                continue
            if self._writer:
                self._last += 1
            for gap in self._gaps(names):
                yield self._address(gap), [LOST]
            yield from ((self._address(name), _lines(contents[name])) for name in names)
            return
        raise StoppedEarly(f"{self._folder.name} changes all the time; try again")

    def _listed(self) -> tuple[int, int, list[str]]:
        """The number of the latest snapshot, that of the last segment, and the names of both and
        all between."""
        names = [name.rpartition("/")[2] for name in self._folder.names()]
        snapshots = [int(found[1]) for name in names if (found := _SNAPSHOT.fullmatch(name))]
        merged = max(snapshots, default=0)
        segments = [int(found[1]) for name in names if (found := _SEGMENT.fullmatch(name))]
        later = sorted(number for number in segments if number > merged)
        snapshot = [_snapshot(merged)] if snapshots else []
        return merged, max([merged, *later]), [*snapshot, *map(_segment, later)]

    def _gaps(self, names: Sequence[str]) -> Iterator[str]:
        """The first of the segments that are missing before each of these."""
        expected = self._merged + 1
        for number in (int(found[1]) for name in names if (found := _SEGMENT.fullmatch(name))):
            if number > expected:
                yield _segment(expected)
            expected = number + 1

    def _contents(self, names: list[str]) -> dict[str, bytes]:
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(names, pool.map(self._folder.read, names), strict=True))

    # Writing

    def begin(self, lines: Callable[[], Iterable[bytes]]) -> None:
        self._tidy(lines, MERGED_ON_OPENING)

    def rewrite(self, lines: Callable[[], Iterable[bytes]]) -> None:
        self._tidy(lines, 0)

    def append(self, line: bytes, then: Callable[[], None]) -> None:
        with self._turn:
            batch = self._batch
            batch.lines.append(line)
            batch.then.append(then)
            self._turn.wait_for(lambda: batch.is_done or not self._busy)
            if batch.is_done:
                _raise(batch.error)
                return
            self._busy, self._batch = True, _Batch()
        try:
            self._keep(batch.lines)
        except BaseException as exc:
            batch.error = exc
        with self._turn:
            if batch.error is None:
                for call in batch.then:
                    call()
            self._busy, batch.is_done = False, True
            self._turn.notify_all()
        if batch.error is not None:
            raise batch.error

    def _keep(self, lines: list[bytes]) -> None:
        while not self._create(self._last + 1, lines):
            # The answer to an earlier try may have been lost: then that segment is ours.
            content = self._folder.read(_segment(self._last + 1))
            theirs = _writer(content.splitlines()[-1] if content else b"")
            if theirs != self._writer:
                raise StoppedEarly(
                    f"{self._folder.name}: another process has taken this run over; "
                    "run the same command again when that one ends"
                )
            self._last += 1
            if content == self._content(lines):
                return
        self._last += 1

    def _create(self, number: int, lines: list[bytes]) -> bool:
        return self._folder.create(_segment(number), self._content(lines))

    def _content(self, lines: Iterable[bytes]) -> bytes:
        return b"".join(lines) + json.dumps({"writer": self._writer}).encode() + b"\n"

    # Merging

    def tidy(self, lines: Callable[[], Iterable[bytes]]) -> None:
        self._tidy(lines, self._merge_at)

    def _tidy(self, lines: Callable[[], Iterable[bytes]], merge_at: int) -> None:
        with self._turn:
            if self._busy or self._last - self._merged < merge_at:
                return
            self._busy = True
        try:
            self._merge(list(lines()))
        finally:
            with self._turn:
                self._busy = False
                self._turn.notify_all()

    def _merge(self, lines: list[bytes]) -> None:
        """Write the snapshot, then remove what it stands for; a kill between leaves both."""
        self._folder.write(_snapshot(self._last), self._content(lines))
        names = [name.rpartition("/")[2] for name in self._folder.names()]
        self._folder.delete(*(name for name in names if self._is_old(name)))
        self._merged = self._last
        self._merge_at = max(_MERGED_LATER, len(lines) * _MERGED_PER_CENT // 100)

    def _is_old(self, name: str) -> bool:
        segment, snapshot = _SEGMENT.fullmatch(name), _SNAPSHOT.fullmatch(name)
        if segment is not None:
            return int(segment[1]) <= self._last
        return snapshot is not None and int(snapshot[1]) < self._last

    def _address(self, name: str) -> str:
        return str(self._folder.address(name))


def _lines(content: bytes) -> list[bytes]:
    """The lines without the writer's; where that is not there, something is lost."""
    *lines, last = content.splitlines(keepends=True) or [b""]
    return lines if _writer(last) else [*lines, last, LOST]


def _segment(number: int) -> str:
    return f"{number:08d}.jsonl"


def _snapshot(number: int) -> str:
    return f"snapshot-{number:08d}.jsonl"


def _writer(line: bytes) -> str:
    """The writer of an object, by its last line; empty where that is another line."""
    try:
        writer = json.loads(line)["writer"]
    except (ValueError, KeyError, TypeError):
        return ""
    return writer if isinstance(writer, str) else ""


def _raise(error: BaseException | None) -> None:
    """The error of the thread that wrote the lines, for the others that gave some."""
    if error is None:
        return
    if isinstance(error, Exception):
        raise error
    raise StoppedEarly("interrupted") from error
