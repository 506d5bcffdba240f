"""The paid answers of a cache as one file for a colleague, and back.

JSON lines, gzipped where the name ends in `.gz`: every language reads them, and a stream of any
length takes the memory of one line. (A SQLite file from elsewhere is a program that SQLite runs:
triggers, views.) The first line says what the file is; each further one is a key, the time of the
purchase and the answer with its checksum, byte for byte as it is stored; the last one says how many
there are. Requests are not stored, so neither is there any in the file: that an answer belongs to
its key is the word of the file's maker. No path and no secret is in it.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from claimscore.atomic import atomic_file, os_errors
from claimscore.cache.store import DiskCache, NewRow, decode_answer
from claimscore.errors import ConfigError
from claimscore.types import Completion

#: The number is of the file's form, not of the program.
_HEADER = b'{"claimscore": "cache export", "version": 1}\n'
#: Rows of one transaction.
_GROUP = 500
#: Longer than any answer; a line that has no end must not fill the memory.
_LONGEST_LINE = 2**26
_LINE = re.compile(
    rb'\{"key":"([0-9a-f]{64})","stored":([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?),"value":(.*)\}\n',
    re.DOTALL,
)
_END = re.compile(rb'\{"entries": ([0-9]{1,18})\}\n')


class Exported(NamedTuple):
    """Answers written, and damaged ones that were left out."""

    entries: int
    damaged: int


class Imported(NamedTuple):
    """Answers that are new here, and those that were here."""

    added: int
    already_there: int


def export_answers(cache: DiskCache, target: Path) -> Exported:
    """Write every sound answer into one file that only its owner can read.

    The file appears whole, or not at all.
    """
    damaged = 0

    def sound() -> Iterator[NewRow]:
        nonlocal damaged
        for row in cache.walk():
            if _is_sound(decode_answer(row.key, row.value)):
                yield row
            else:
                damaged += 1

    return Exported(export_rows(sound(), target), damaged)


def export_rows(rows: Iterable[NewRow], target: Path) -> int:
    """Write sound rows, such as `DiskCache(on_kept=...)` hands out, as `export_answers` does; their
    number."""
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


def import_answers(cache: DiskCache, source: Path) -> Imported:
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

    opened: Any = gzip.open if source.name.endswith(".gz") else open
    with os_errors(source), opened(source, "rb") as stream:
        lines, now = _lines(stream), time.time()
        if next(lines, b"") != _HEADER:
            raise ConfigError(
                f"{source}: not a file that `claimscore cache export` of this version wrote"
            )
        number, why = 1, "what follows is missing"
        for number, line in enumerate(lines, start=2):
            row = _row(line, now)
            if row is None:
                end = _END.fullmatch(line)
                is_last = end is not None and int(end[1]) == number - 2
                why = "" if is_last else "lines before it are missing" if end else _DAMAGED
                break
            rows[row.key] = row
            if len(rows) == _GROUP:
                keep()
        keep()
    if why:
        raise ConfigError(
            f"{source}, line {number}: {why}; the answers before it are here now ({added:,} new); "
            "export the file again, or take that line out for the rest"
        )
    return Imported(added, there)


_DAMAGED = "it is not as claimscore wrote it (its form, or its checksum)"


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines up to the end, or to where the file is damaged so that nothing follows."""
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        while line := stream.readline(_LONGEST_LINE):
            yield line


def _row(line: bytes, now: float) -> NewRow | None:
    """The answer of a line as it was exported, if it holds one."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    key, value = match[1].decode(), match[3]
    is_sound = _is_sound(decode_answer(key, value))
    return NewRow(key, value, min(float(match[2]), now)) if is_sound else None


def _is_sound(answer: Completion | None) -> bool:
    """Whether each field has its type: the checksum of a file from elsewhere does not say so."""
    if answer is None:
        return False
    *counts, tier = answer.usage
    texts = [answer.text, answer.model, answer.finish_reason, answer.reasoning, tier]
    numbers: list[float] = [count for count in counts if count is not None]
    for token, logprob, top in answer.logprobs or ():
        texts += [token, *(other for other, _ in top)]
        numbers += [logprob, *(p for _, p in top)]
    return all(type(text) is str for text in texts) and all(
        type(number) in (int, float) for number in numbers
    )
