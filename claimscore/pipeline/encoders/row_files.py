"""Rows of numbers by key in two flat files: millions of small ones, found again by the thousand.

`keys` is a header and 16 bytes a row, `values` the rows in the same order, each with a check
over key and numbers. Both only grow, values first, so that a kill leaves a tail that the next
writer cuts off. All keys are in memory, sorted (24 bytes a row); values are read when asked
for, by plain reads: a mapped file that somebody cuts off would kill the process. When they are
very many no more are added, so that memory stays bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from claimscore.atomic import reason, write_text

#: Keys ``[n, 2]``: 16 bytes of a digest each.
Keys = NDArray[np.uint64]
#: Rows ``[n, width]``.
Rows = NDArray[np.float32]

KEYS, VALUES, FACTS = "keys", "values", "facts.json"

_MAGIC = b"csrows-1"
_HEADER = struct.Struct("<8sII")  # magic, words a row, CRC-32 of both
_KEY_BYTES = 16
#: Rows with at most so many bytes between them are read at once: cheaper than another call.
_GAP_BYTES = 16_384
_BLOCK_ROWS = 4096

#: Rows of a model that are kept: their keys take 480 MB of memory, and that is enough for what is
#: scored again and again. A run over a million records has more pairs, which nobody asks twice.
MOST_ROWS = 20_000_000
_POLL_S, _PATIENCE_S = 0.005, 20.0


class DamagedError(Exception):
    """The files are not what was written."""


class KeyIndex:
    """Where keys are: a few sorted runs, each at least twice as long as the next.

    Of three keys with the same first 8 bytes, which is next to impossible, the third may be
    looked for in vain: it is computed each time.
    """

    def __init__(self) -> None:
        self.size = 0
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]] = []

    def add(self, keys: Keys) -> None:
        """Keys whose places follow those that are there."""
        order = np.argsort(keys[:, 0], kind="stable")
        self._runs.append((keys[order, 0], keys[order, 1], order + self.size))
        self.size += len(keys)
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) > len(self._runs[-2][0]):
            last, before = self._runs.pop(), self._runs.pop()
            order = np.argsort(np.concatenate([before[0], last[0]]), kind="stable")
            first, second, places = (
                np.concatenate(columns)[order] for columns in zip(before, last, strict=True)
            )
            self._runs.append((first, second, places))

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The place of each key, -1 where there is none."""
        found = np.full(len(keys), -1, dtype=np.int64)
        order = np.argsort(keys[:, 0])
        first, second = keys[order, 0], keys[order, 1]
        for run_first, run_second, places in self._runs:
            if len(places):
                start = np.searchsorted(run_first, first)
                for step in (0, 1):
                    at = np.minimum(start + step, len(places) - 1)
                    same = (run_first[at] == first) & (run_second[at] == second)
                    found[order[same]] = places[at[same]]
        return found


class RowFiles:
    """A folder of rows that several processes may read and add to.

    Guarantees: a row is what was added, bit for bit, or is not there; the first of two rows of
    one key is the one that everybody gets. A kill loses at most what is being added. Files that
    do not check are set aside, whole rows saved (`on_notice` hears of it); where a folder cannot
    be read or written, nothing is found or kept, and one notice says why. ``facts`` are for
    people who look into the folder.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, str], on_notice: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._facts = dict(facts)
        self._on_notice = on_notice
        self._may_read = self._may_write = True
        self._files: _OpenFiles | None = None
        self._using = threading.Lock()

    def look_up(self, keys: Keys) -> tuple[NDArray[np.bool_], Rows]:
        """Which keys are there, and their rows in the order of the keys."""
        with self._using:
            places = np.full(len(keys), -1, dtype=np.int64)
            rows = np.zeros((0, 0), dtype=np.float32)
            for _ in range(2):
                if not self._may_read:
                    break
                try:
                    files = self._current()
                    if files is not None:
                        places = files.index.find(keys)
                        rows = files.read(places[places >= 0], keys[places >= 0])
                    return places >= 0, rows
                except DamagedError as exc:
                    self._set_aside(str(exc))
                except OSError as exc:
                    self._give_up(exc, reading=True)
            return np.zeros(len(keys), dtype=bool), np.zeros((0, 0), dtype=np.float32)

    def keep(self, keys: Keys, rows: Rows) -> Rows:
        """Add rows of distinct keys; return what is there of them now: another's may be first."""
        with self._using:
            for _ in range(2):
                if not (self._may_read and self._may_write and len(keys)):
                    break
                try:
                    with self._locked():
                        return self._add(keys, rows)
                except DamagedError as exc:
                    self._set_aside(str(exc))
                except OSError as exc:
                    self._give_up(exc, reading=False)
            return rows

    def close(self) -> None:
        with self._using:
            self._forget()

    def _add(self, keys: Keys, rows: Rows) -> Rows:
        files = self._current() or self._create(rows.shape[1])
        if files.width != rows.shape[1]:
            raise DamagedError("its header says another width")
        places = files.index.find(keys)
        new, known = places < 0, places >= 0
        if files.index.size + int(new.sum()) > MOST_ROWS:
            self._stop_keeping(f"{files.index.size:,} are there, of at most {MOST_ROWS:,}")
        else:
            files.append(keys[new], rows[new])
        if not known.any():
            return rows
        kept = rows.copy()
        kept[known] = files.read(places[known], keys[known])
        return kept

    # -- the files in place

    def _current(self) -> _OpenFiles | None:
        """The files with all that anybody has added; None where there are none."""
        files = self._files
        if files is not None and not files.are_in(self.folder):
            self._forget()
            files = None
        if files is None:
            if not _has_header(self.folder / KEYS):
                return None
            files = self._files = _OpenFiles(self.folder)
        files.refresh()
        return files

    def _create(self, width: int) -> _OpenFiles:
        _write_header(self.folder, self._facts, width)
        self._files = _OpenFiles(self.folder)
        return self._files

    def _forget(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process adds or replaces at a time; the lock ends with the process."""
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder.with_name(f"{self.folder.name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError("another process does not let go of it") from None
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    # -- when it goes wrong

    def _give_up(self, error: OSError, *, reading: bool) -> None:
        self._may_read = self._may_read and not reading
        self._stop_keeping(str(error) if isinstance(error, TimeoutError) else reason(error))

    def _stop_keeping(self, why: str) -> None:
        self._may_write = False
        self._on_notice(f"{self.folder}: results of models are not kept from here on ({why})")

    def _set_aside(self, why: str) -> None:
        """Put the whole rows of damaged files in their place; of several processes one does it."""
        try:
            with self._locked():
                damaged = self._files
                if damaged is None or damaged.are_in(self.folder):
                    saved = self._save_rows(self.folder)
                    aside = _free_name(self.folder)
                    self.folder.rename(aside)
                    if saved is not None:
                        saved.rename(self.folder)
                    self._on_notice(
                        f"{self.folder}: stored results of models were damaged ({why}); the rows "
                        f"that are whole were saved, the files are now {aside.name}"
                    )
            self._forget()
        except OSError as exc:
            self._give_up(exc, reading=True)

    def _save_rows(self, damaged: Path) -> Path | None:
        """A folder beside it with the rows that check; None where nothing can be read."""
        saved = damaged.with_name(f"{damaged.name}.new")
        shutil.rmtree(saved, ignore_errors=True)
        try:
            with contextlib.closing(_OpenFiles(damaged)) as old:
                _write_header(saved, self._facts, old.width)
                with contextlib.closing(_OpenFiles(saved)) as new:
                    for keys, rows in old.whole_rows():
                        new.append(keys, rows)
        except DamagedError:
            shutil.rmtree(saved, ignore_errors=True)
            return None
        return saved


class _OpenFiles:
    """The two files as they are; `refresh` reads the keys that were added since."""

    def __init__(self, folder: Path) -> None:
        self.index = KeyIndex()
        writable = os.access(folder / KEYS, os.W_OK) and os.access(folder / VALUES, os.W_OK)
        flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        with contextlib.ExitStack() as stack:
            self._keys = os.open(folder / KEYS, flags)
            stack.callback(os.close, self._keys)
            try:
                self._values = os.open(folder / VALUES, flags)
            except FileNotFoundError:
                raise DamagedError("its values are gone") from None
            stack.callback(os.close, self._values)
            header = os.pread(self._keys, _HEADER.size, 0)
            _, words, _ = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
            if header != _header(words):
                raise DamagedError("its header is not one")
            self.width = words - 1
            self._row_bytes = 4 * words
            self._close = stack.pop_all()

    def are_in(self, folder: Path) -> bool:
        """Whether these are still the files of the folder."""
        try:
            there = (folder / KEYS).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._keys))

    def close(self) -> None:
        self._close.close()

    def refresh(self) -> None:
        n = (os.fstat(self._keys).st_size - _HEADER.size) // _KEY_BYTES
        if n == self.index.size:
            return
        if n < self.index.size:
            raise DamagedError("its keys were cut off")
        if os.fstat(self._values).st_size < n * self._row_bytes:
            raise DamagedError("its values were cut off")
        self.index.add(self._read_keys(self.index.size, n))

    def read(self, places: NDArray[np.int64], keys: Keys) -> Rows:
        """The rows at these places, which must be those of the keys."""
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        raw = np.empty((len(places), self.width + 1), dtype=np.uint32)
        ends = np.flatnonzero(np.diff(ordered) * self._row_bytes > _GAP_BYTES) + 1
        bounds = [0, *ends.tolist(), len(ordered)]
        for start, stop in itertools.pairwise(bounds):
            if start == stop:
                continue
            first, last = int(ordered[start]), int(ordered[stop - 1])
            block = self._read_rows(first, last + 1)
            raw[order[start:stop]] = block[ordered[start:stop] - first]
        if not np.array_equal(raw[:, 0], _checks(keys, raw[:, 1:])):
            raise DamagedError("rows do not check")
        rows: Rows = raw[:, 1:].view(np.float32)
        return rows

    def append(self, keys: Keys, rows: Rows) -> None:
        """Add rows at the end; whoever calls has the lock and has refreshed."""
        n = self.index.size
        sizes = _HEADER.size + n * _KEY_BYTES, n * self._row_bytes
        try:
            for file, size in zip((self._keys, self._values), sizes, strict=True):
                if os.fstat(file).st_size != size:
                    os.ftruncate(file, size)  # what a kill left
            raw = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32)
            checked = np.concatenate([_checks(keys, raw)[:, None], raw], axis=1)
            _write_at(self._values, checked.tobytes(), sizes[1])
            _write_at(self._keys, np.ascontiguousarray(keys).tobytes(), sizes[0])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._keys, sizes[0])
                os.ftruncate(self._values, sizes[1])
            raise
        self.index.add(keys)

    def whole_rows(self) -> Iterator[tuple[Keys, Rows]]:
        """The rows that check, some at a time."""
        n_keys = (os.fstat(self._keys).st_size - _HEADER.size) // _KEY_BYTES
        n = min(n_keys, os.fstat(self._values).st_size // self._row_bytes)
        for start in range(0, n, _BLOCK_ROWS):
            stop = min(n, start + _BLOCK_ROWS)
            keys, raw = self._read_keys(start, stop), self._read_rows(start, stop)
            whole = raw[:, 0] == _checks(keys, raw[:, 1:])
            yield keys[whole], raw[whole, 1:].view(np.float32)

    def _read_keys(self, start: int, stop: int) -> Keys:
        data = _read_at(self._keys, (stop - start) * _KEY_BYTES, _HEADER.size + start * _KEY_BYTES)
        return np.frombuffer(data, dtype=np.uint64).reshape(-1, 2)

    def _read_rows(self, start: int, stop: int) -> NDArray[np.uint32]:
        data = _read_at(self._values, (stop - start) * self._row_bytes, start * self._row_bytes)
        return np.frombuffer(data, dtype=np.uint32).reshape(-1, self.width + 1)


def _checks(keys: Keys, raw: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A CRC-32 of each row that begins with its key's."""
    size = 4 * raw.shape[1]
    data = memoryview(np.ascontiguousarray(raw).tobytes())
    seeds = keys[:, 1].astype(np.uint32).tolist()
    crc32, starts = zlib.crc32, range(0, len(seeds) * size, size)
    sums = (crc32(data[at : at + size], seed) for at, seed in zip(starts, seeds, strict=True))
    return np.fromiter(sums, dtype=np.uint32, count=len(seeds))


def _has_header(path: Path) -> bool:
    """Whether there is a file; one that a kill left before its header was whole is none."""
    try:
        return path.stat().st_size >= _HEADER.size
    except FileNotFoundError:
        return False


def _header(words: int) -> bytes:
    return _HEADER.pack(_MAGIC, words, zlib.crc32(words.to_bytes(4, "little"), zlib.crc32(_MAGIC)))


def _write_header(folder: Path, facts: Mapping[str, str], width: int) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(folder / FACTS, json.dumps({**facts}, indent=1, ensure_ascii=False) + "\n")
    for name, content in ((VALUES, b""), (KEYS, _header(width + 1))):
        path = folder / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_at(descriptor, content, 0)
        finally:
            os.close(descriptor)


def row_count(keys: Path) -> int:
    """How many rows a file of keys has, as its size says."""
    return max(0, keys.stat().st_size - _HEADER.size) // _KEY_BYTES


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """So many bytes; a large read may come in pieces."""
    pieces = []
    while size:
        piece = os.pread(descriptor, size, offset)
        if not piece:
            raise DamagedError("its files were cut off")
        pieces.append(piece)
        size, offset = size - len(piece), offset + len(piece)
    return b"".join(pieces)


def _free_name(folder: Path) -> Path:
    numbers = iter(range(1, 10**6))
    return next(
        path
        for n in numbers
        if not (path := folder.with_name(f"{folder.name}.damaged-{n}")).exists()
    )
