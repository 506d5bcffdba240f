"""The two flat files of rows as they lie: `keys` and `values`, each row with a check.

`keys` is a header and 16 bytes a row, `values` the rows in the same order, each with a check
over key and numbers. Both only grow, values first, so that a kill leaves a tail that the next
writer cuts off. Values are read when asked for, by plain reads: a mapped file that somebody cuts
off would kill the process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from claimscore.atomic import write_text
from claimscore.pipeline.encoders.key_index import KeyIndex, Keys

#: Rows ``[n, width]``.
Rows = NDArray[np.float32]

KEYS, VALUES, FACTS = "keys", "values", "facts.json"

_MAGIC = b"csrows-1"
_HEADER = struct.Struct("<8sII")  # magic, words a row, CRC-32 of both
_KEY_BYTES = 16
#: Rows with at most so many bytes between them are read at once: cheaper than another call.
_GAP_BYTES = 16_384
_BLOCK_ROWS = 4096


class DamagedError(Exception):
    """The files are not what was written."""


class OpenFiles:
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


def has_header(path: Path) -> bool:
    """Whether there is a file; one that a kill left before its header was whole is none."""
    try:
        return path.stat().st_size >= _HEADER.size
    except FileNotFoundError:
        return False


def _header(words: int) -> bytes:
    return _HEADER.pack(_MAGIC, words, zlib.crc32(words.to_bytes(4, "little"), zlib.crc32(_MAGIC)))


def write_header(folder: Path, facts: Mapping[str, str], width: int) -> None:
    """New files without rows; ``facts`` are for people."""
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
