"""What is done with a whole cache: numbers, removal of what is old, export and import.

All of it takes the memory of some hundred rows, and other processes may use the cache meanwhile.

An export is JSON lines, gzipped where the name ends in `.gz`: every language reads them. (A SQLite
file from elsewhere is a program that SQLite runs: triggers, views.) The first line says what the
file is; each further one is a key, the time of the purchase and the answer with its checksum, byte
for byte as it is stored; the last one says how many there are. That an answer belongs to its key is
the word of the file's maker. No request, no path and no secret is in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import itertools
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from claimscore.atomic import atomic_file, os_errors
from claimscore.cache.store import DATABASE, DiskCache, NewRow, decode_answer
from claimscore.errors import ConfigError

#: The number is of the file's form, not of the program.
_HEADER = b'{"claimscore": "cache export", "version": 1}\n'
_LINE = re.compile(
    rb'\{"key":"([0-9a-f]{64})","stored":([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?),"value":(.*)\}\n',
    re.DOTALL,
)
#: Longer than any answer; a line that has no end must not fill the memory.
_LONGEST_LINE = 2**26
#: Rows of one transaction.
_GROUP = 500


@dataclasses.dataclass(slots=True)
class CacheDetails:
    """The content of a cache.

    `entries` counts all rows, the damaged among them; the other numbers are of sound ones, but
    `n_bytes`, which is what the database takes. Times are seconds since 1970. `models` counts
    answers by the model that the server reported.
    """

    entries: int = 0
    damaged: int = 0
    n_bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    models: Counter[str] = dataclasses.field(default_factory=Counter)


def details(cache: DiskCache, on_damage: Callable[[str], None] = lambda _: None) -> CacheDetails:
    """Numbers about all answers; each of them is hashed again, `on_damage` gets damaged keys.

    `ConfigError` where the database as a whole is damaged, by SQLite's own check.
    """
    numbers = CacheDetails()
    for row in cache.walk():
        numbers.entries += 1
        answer = decode_answer(row.key, row.value)
        if answer is None:
            numbers.damaged += 1
            on_damage(row.key)
            continue
        numbers.models[answer.model] += 1
        if row.bought_at:
            numbers.oldest = min(numbers.oldest or row.bought_at, row.bought_at)
            numbers.newest = max(numbers.newest or row.bought_at, row.bought_at)
    numbers.n_bytes = sum(path.stat().st_size for path in cache.folder.glob(f"{DATABASE}*"))
    return numbers


def prune(
    cache: DiskCache, older_than_s: float, *, dry_run: bool = False, now: float | None = None
) -> int:
    """Remove the answers that were bought longer ago than this; their number.

    One that was bought again meanwhile stays, as does one without a time.
    """
    n_removed = 0
    before = (time.time() if now is None else now) - older_than_s
    old = (row for row in cache.walk() if 0 < row.bought_at < before)
    while rows := list(itertools.islice(old, _GROUP)):
        n_removed += len(rows) if dry_run else cache.remove(rows)
    return n_removed


def export_answers(cache: DiskCache, target: Path) -> tuple[int, int]:
    """Write every sound answer into one file; numbers of these and of damaged ones, left out."""
    damaged: list[str] = []

    def sound() -> Iterator[NewRow]:
        for row in cache.walk():
            if decode_answer(row.key, row.value) is not None:
                yield row
            else:
                damaged.append(row.key)

    return export_rows(sound(), target), len(damaged)


def export_rows(rows: Iterable[NewRow], target: Path) -> int:
    """Write sound rows, such as `DiskCache(on_kept=...)` hands out, into one file that only its
    owner can read; their number. The file appears whole, or not at all."""
    entries = 0
    with atomic_file(target) as file, contextlib.ExitStack() as stack:
        os.fchmod(file.fileno(), 0o600)
        stream: Any = file
        if target.name.endswith(".gz"):  # no name, no time in it
            stream = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        stream.write(_HEADER)
        for key, value, bought_at in rows:
            stored = repr(bought_at).encode()
            stream.write(b'{"key":"%b","stored":%b,"value":%b}\n' % (key.encode(), stored, value))
            entries += 1
        stream.write(b'{"entries": %d}\n' % entries)
    return entries


def import_answers(cache: DiskCache, source: Path) -> tuple[int, int]:
    """Add a file's answers; numbers of new ones, and of those that were there, which stay.

    `ConfigError` at a line that is not what was exported, or where lines are missing: the answers
    before it are added. Doing it twice adds nothing more.
    """
    added, there, number = 0, 0, 1
    opened: Any = gzip.open if source.name.endswith(".gz") else open
    with os_errors(source), opened(source, "rb") as stream:
        lines, is_whole, is_read = _lines(stream), False, False
        if next(lines, b"") != _HEADER:
            raise ConfigError(f"{source}: not a file that `claimscore cache export` wrote")
        while not is_read:
            rows, n_bytes, is_read = {}, 0, True
            for line in lines:
                number, n_bytes, row = number + 1, n_bytes + len(line), _row(line)
                if row is None:
                    is_whole = line == b'{"entries": %d}\n' % (number - 2)
                    break
                rows[row.key] = row
                if len(rows) == _GROUP or n_bytes > _LONGEST_LINE:
                    is_read = False
                    break
            known = cache.get_many(list(rows))
            cache.put_rows([row for key, row in rows.items() if key not in known])
            added, there = added + len(rows) - len(known), there + len(known)
    if not is_whole:
        raise ConfigError(
            f"{source}, line {number}: it, or one before or after it, is damaged or missing; the "
            f"answers before it are here now ({added:,} new); export the file again"
        )
    return added, there


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines up to the end, or to where the file is damaged so that nothing follows."""
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        while line := stream.readline(_LONGEST_LINE):
            yield line


def _row(line: bytes) -> NewRow | None:
    """The answer of a line as it was exported, if it holds one."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    key, value, bought_at = match[1].decode(), match[3], float(match[2])
    is_sound = decode_answer(key, value) is not None
    return NewRow(key, value, min(bought_at, time.time())) if is_sound else None
