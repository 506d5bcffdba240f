"""Reads the rows that are left of a damaged SQLite file: its pages, without SQLite.

SQLite gives up on a file whose header, schema or inner pages are broken. The answers lie in
leaf pages that can be found one by one, and each carries a checksum over its key and itself,
so whatever this finds is exactly what was stored. Only what diskcache writes is understood:
its table of twelve columns. See https://sqlite.org/fileformat2.html for the numbers below.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from claimscore.cache.entry import damage_of
from claimscore.cache.table import NewRow

_MAGIC = b"SQLite format 3\x00"
_PAGE_SIZE = 4096  # SQLite's default since 2016; diskcache never sets another
_LEAF_TABLE_PAGE = 0x0D
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_WAL_HEADER, _FRAME_HEADER = 32, 24
_COLUMNS = 12  # rowid, key, raw, store_time, ..., value
_KEY, _STORE_TIME, _VALUE = 1, 3, 11
#: Longer than any answer; a damaged length must not fill the memory.
_LONGEST = 2**26


class Salvage(NamedTuple):
    """One thing found: an answer, or (`row` None) the number of answers there once were."""

    row: NewRow | None
    n_answers: int | None


def salvage(database: Path) -> Iterator[Salvage]:
    """Every answer in a damaged database and its write-ahead log, whole ones only.

    An answer may come more than once, older versions and deleted ones included.
    """
    with contextlib.ExitStack() as stack:
        main = _opened(database, stack)
        log = _opened(database.with_name(f"{database.name}-wal"), stack)
        for page_size in _page_sizes(main):
            pages = _Pages(main, log, page_size)
            for number in pages.numbers():
                yield from _leaf(pages, pages.read(number), number)
                if number in pages.logged:
                    yield from _leaf(pages, pages.read_main(number), number)


def _opened(path: Path, stack: contextlib.ExitStack) -> BinaryIO | None:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None


def _page_sizes(main: BinaryIO | None) -> list[int]:
    """The size that the header tells where it tells one, and the usual one."""
    header = _read_at(main, 0, 18)
    told = int.from_bytes(header[16:18], "big") if header.startswith(_MAGIC) else 0
    told = 65536 if told == 1 else told
    possible = 512 <= told <= 65536 and told & (told - 1) == 0
    return [told, _PAGE_SIZE] if possible and told != _PAGE_SIZE else [_PAGE_SIZE]


def _read_at(stream: BinaryIO | None, offset: int, size: int) -> bytes:
    if stream is None:
        return b""
    stream.seek(offset)
    return stream.read(size)


class _Pages:
    """The pages of a database, the newest version of each: from the log where it is there."""

    def __init__(self, main: BinaryIO | None, log: BinaryIO | None, size: int) -> None:
        self._main, self._log, self.size = main, log, size
        self.logged = self._index_log()
        self._n_main = (main.seek(0, 2) + size - 1) // size if main is not None else 0

    def numbers(self) -> Iterator[int]:
        """Of every page that is in the file or only in the log."""
        yield from range(1, self._n_main + 1)
        yield from (number for number in self.logged if number > self._n_main)

    def _index_log(self) -> dict[int, int]:
        """Page number -> offset in the log. Uncommitted pages count too: paid is paid."""
        header = _read_at(self._log, 0, _WAL_HEADER)
        if len(header) < _WAL_HEADER or self._log is None:
            return {}
        salt = header[16:24]
        if int.from_bytes(header[:4], "big") not in _WAL_MAGIC:
            salt = _read_at(self._log, _WAL_HEADER + 8, 8)
        found, offset = {}, _WAL_HEADER
        while len(frame := _read_at(self._log, offset, _FRAME_HEADER)) == _FRAME_HEADER:
            number = int.from_bytes(frame[:4], "big")
            if frame[8:16] == salt and 0 < number < 2**31:
                found[number] = offset + _FRAME_HEADER
            offset += _FRAME_HEADER + self.size
        return found

    def read(self, number: int) -> bytes:
        if number in self.logged:
            return _read_at(self._log, self.logged[number], self.size)
        return self.read_main(number)

    def read_main(self, number: int) -> bytes:
        return _read_at(self._main, (number - 1) * self.size, self.size)


def _leaf(pages: _Pages, page: bytes, number: int) -> Iterator[Salvage]:
    """The rows of a leaf page of a table; none where the page is something else."""
    start = 100 if number == 1 else 0
    if len(page) < start + 8 or page[start] != _LEAF_TABLE_PAGE:
        return
    n_cells = int.from_bytes(page[start + 3 : start + 5], "big")
    for index in range(min(n_cells, len(page) // 4)):
        at = start + 8 + 2 * index
        try:
            payload = _payload(pages, page, int.from_bytes(page[at : at + 2], "big"))
            found = _understood(_record(payload))
        except (IndexError, struct.error):  # a length or an offset that is not true
            continue
        if found is not None:
            yield found


def _payload(pages: _Pages, page: bytes, at: int) -> bytes:
    """A cell's bytes, those on overflow pages included."""
    size, at = _varint(page, at)
    _rowid, at = _varint(page, at)
    usable = pages.size
    most = usable - 35
    if size <= most:
        return page[at : at + size]
    if size > _LONGEST:
        return b""
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    parts = [page[at : at + local]]
    (following,) = struct.unpack_from(">I", page, at + local)
    missing = size - local
    while missing > 0 and following > 0:
        overflow = pages.read(following)
        (following,) = struct.unpack_from(">I", overflow)
        parts.append(overflow[4 : 4 + missing])
        missing -= usable - 4
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for n in range(9):
        byte = data[at + n]
        if n == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    raise AssertionError  # pragma: no cover


def _record(payload: bytes) -> list[bytes | int | float | None]:
    """The columns of a record; texts as their bytes."""
    end, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < end and len(kinds) <= _COLUMNS:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    at, columns = end, []
    for kind in kinds:
        size = _size(kind)
        columns.append(_column(kind, payload[at : at + size]))
        at += size
    return columns


def _size(kind: int) -> int:
    return (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[kind]


def _column(kind: int, data: bytes) -> bytes | int | float | None:
    if kind >= 12:
        return data
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    if kind in (8, 9):
        return kind - 8
    return int.from_bytes(data, "big", signed=True) if data else None


def _understood(columns: list[bytes | int | float | None]) -> Salvage | None:
    """A row of the cache that is whole, or diskcache's counter."""
    if len(columns) == 2 and columns[0] == b"count" and type(columns[1]) is int:
        return Salvage(None, columns[1])
    if len(columns) != _COLUMNS:
        return None
    raw_key, time, value = columns[_KEY], columns[_STORE_TIME], columns[_VALUE]
    if type(raw_key) is not bytes or type(value) is not bytes:
        return None
    key = raw_key.decode("utf-8", "replace")
    if damage_of(key, value) is not None:
        return None
    return Salvage(NewRow(key, float(time) if isinstance(time, int | float) else 0.0, value), None)
