"""The paid answers of a cache as one file for a colleague, and back.

JSON lines, gzipped where the name ends in `.gz`: every language reads them, and a stream of any
length takes the memory of one line. (A SQLite file from elsewhere is a program that SQLite runs:
triggers, views.) The first line says what the file is; each further one is a key, the time of the
purchase and the entry with its checksum, byte for byte as it is stored; the last one says how many
there are. Requests are not stored, so neither is there any in the file: that an answer belongs to
its key is the word of the file's maker. No path and no secret is in it.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, NamedTuple, cast

from claimscore.atomic import atomic_path
from claimscore.cache.database import STEP, NewRow, StoredRow
from claimscore.cache.entry import checked_entry
from claimscore.cache.store import DiskCache, entry_of
from claimscore.errors import ConfigError
from claimscore.storage import LocalStorage, Storage, is_remote, open_file
from claimscore.types import JSON

#: Of the file's form, not of the program.
FILE_VERSION = 1

_KIND = "cache export"
_GZIP = b"\x1f\x8b"
#: Longer than any answer; a line that has no end must not fill the memory.
_LONGEST_LINE = 2**26
_LINE = re.compile(
    rb'\{"key":"([0-9a-f]{64})","stored":([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?),"value":(.*)\}\n',
    re.DOTALL,
)
_END = re.compile(rb'\{"entries": ([0-9]{1,18})\}\n')


class Exported(NamedTuple):
    """Entries written, and damaged ones that were left out."""

    entries: int
    damaged: int

    def text(self) -> str:
        left_out = f", {self.damaged:,} damaged ones left out" if self.damaged else ""
        return f"{self.entries:,} answers written{left_out}"


class Imported(NamedTuple):
    """Answers that are new here, and those that were here."""

    added: int
    already_there: int

    def text(self) -> str:
        return f"{self.added:,} answers added, {self.already_there:,} were there already"


# -- out


def export_answers(cache: DiskCache, target: Path | str) -> Exported:
    """Write every sound entry into one file that only its owner can read.

    The file appears whole, or not at all. The address of an object store is a `target` too: the
    file is made in the system's folder for temporary files and sent from there.
    """
    storage, name = _file(target)
    if not storage.writable:
        raise ConfigError(f"{target}: a web server's files can only be read")
    entries = damaged = 0

    def sound(rows: Iterable[StoredRow]) -> Iterator[NewRow]:
        nonlocal damaged
        for row in rows:
            if isinstance(entry_of(row), str):
                damaged += 1
            else:
                yield NewRow(row.key, row.value or b"", row.bought_at)

    with cache.inspected() as database, storage.writing(name) as path:
        rows = itertools.chain.from_iterable(database.walk())
        entries = _write(sound(rows), path, packed=name.endswith(".gz"))
    return Exported(entries, damaged)


def export_rows(rows: Iterable[NewRow], target: Path) -> int:
    """Write sound rows (as `DiskCache(on_kept=...)` hands them out) into one private file, as
    `export_answers` does, gzipped where its name ends in `.gz`; their number."""
    with atomic_path(target) as path:
        return _write(rows, path, packed=target.name.endswith(".gz"))


def _write(rows: Iterable[NewRow], path: Path, *, packed: bool) -> int:
    entries = 0
    with _packed(path, packed) as stream:
        stream.write(_json_line({"claimscore": _KIND, "version": FILE_VERSION}))
        for row in rows:
            stream.write(_exported_line(row))
            entries += 1
        stream.write(_json_line({"entries": entries}))
    return entries


def _file(where: Path | str) -> tuple[Storage, str]:
    """The storage of a file, and its name there."""
    path = Path(where)
    place: tuple[Storage, str] = (
        open_file(str(where)) if is_remote(where) else (LocalStorage(path.parent), path.name)
    )
    if place[1] in ("", ".."):
        raise ConfigError(f"{where}: this is not a file; name one in it")
    return place


@contextlib.contextmanager
def _packed(path: Path, packed: bool) -> Iterator[IO[bytes]]:
    """A private file, gzipped where the name says so; no name, no time in it."""
    path.touch(0o600, exist_ok=False)
    with path.open("wb") as file:
        if not packed:
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream:
            yield cast("IO[bytes]", stream)


def _exported_line(row: NewRow) -> bytes:
    stored = repr(row.bought_at).encode()
    return b'{"key":"%b","stored":%b,"value":%b}\n' % (row.key.encode(), stored, row.value)


def _json_line(value: JSON) -> bytes:
    return json.dumps(value).encode() + b"\n"


# -- in


def import_answers(cache: DiskCache, source: Path | str) -> Imported:
    """Add a file's answers; those that are there already stay as they are.

    `ConfigError` at a line that is not what was exported, or where lines are missing: the answers
    before it are added. Doing it twice adds nothing more.
    """
    added = there = 0
    rows: dict[str, NewRow] = {}

    def keep() -> None:
        nonlocal added, there
        known = cache.get_many(list(rows))
        cache.put_rows([row for key, row in rows.items() if key not in known])
        added += len(rows) - len(known)
        there += len(known)
        rows.clear()

    with _opened(source) as packed, _unpacked(packed) as stream:
        lines, now = _lines(stream), time.time()
        _check_header(next(lines, b""), source)
        number, end, why = 1, None, "what follows is missing"
        for number, line in enumerate(lines, start=2):  # noqa: B007 - it is used after the loop
            row = _row(line, now)
            if isinstance(row, str):
                end = _END.fullmatch(line)
                why = "lines before it are missing" if end else row
                break
            rows[row.key] = row
            if len(rows) == STEP:
                keep()
        keep()
    if end is None or int(end[1]) != number - 2:
        raise ConfigError(
            f"{source}, line {number}: {why}; the answers before it are here now ({added:,} new); "
            "export the file again, or take that line out for the rest"
        )
    return Imported(added, there)


def _opened(source: Path | str) -> BufferedReader:
    """A file, or an object of a store, read a few MiB at a time."""
    storage, name = _file(source)
    try:
        return cast("BufferedReader", storage.open(name))
    except FileNotFoundError:
        raise ConfigError(f"{source}: there is no such file{storage.suggestion(name)}") from None


@contextlib.contextmanager
def _unpacked(source: BufferedReader) -> Iterator[IO[bytes]]:
    if source.peek(2)[:2] == _GZIP:
        with gzip.GzipFile(fileobj=source) as stream:
            yield cast("IO[bytes]", stream)
    else:
        yield source


def _check_header(line: bytes, path: Path | str) -> None:
    try:
        header = json.loads(line)
        kind, version = header["claimscore"], header["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = version = None
    if kind != _KIND or type(version) is not int or version < 1:
        raise ConfigError(f"{path}: not a file that `claimscore cache export` wrote")
    if version > FILE_VERSION:
        raise ConfigError(
            f"{path}: made by a newer claimscore (version {version} of the file; this one knows "
            f"{FILE_VERSION}); update claimscore"
        )


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines up to the end, or to where the file is damaged so that nothing follows."""
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        while line := stream.readline(_LONGEST_LINE):
            yield line


def _row(line: bytes, now: float) -> NewRow | str:
    """The answer of a line as it was exported, or why it holds none."""
    match = _LINE.fullmatch(line)
    if match is None:
        return "it is not in the form that claimscore writes"
    key, value = match[1].decode(), match[3]
    entry = checked_entry(key, value)
    return entry if isinstance(entry, str) else NewRow(key, value, min(float(match[2]), now))
