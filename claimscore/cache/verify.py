"""Whether a cache is sound: every entry hashed again, and the database checked.

The walk takes a few hundred rows at a time: a million answers take the memory of a thousand,
and others may use the cache meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from claimscore.cache import table
from claimscore.cache.entry import damage_of
from claimscore.cache.rescue import damage_in
from claimscore.cache.store import DiskCache
from claimscore.cache.table import StoredRow
from claimscore.types import JSON

#: Damaged entries taken out in one transaction.
_GROUP = 100


class DamagedEntry(NamedTuple):
    """An entry that is not as it was written, and what is wrong with it."""

    key: str
    reason: str


@dataclasses.dataclass(slots=True)
class Verification:
    """The findings of `verify`; `problems` concern the database as a whole.

    `set_aside` is the file that damaged entries were moved to; `unrepaired` is whether
    anything is still as it was found.
    """

    entries: int = 0
    damaged: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    set_aside: Path | None = None
    unrepaired: bool = False

    @property
    def is_clean(self) -> bool:
        return not self.damaged and not self.problems

    def to_json(self) -> JSON:
        return {
            "clean": self.is_clean,
            "entries": self.entries,
            "damaged": self.damaged,
            "problems": self.problems,
            "set_aside": self.set_aside and str(self.set_aside),
        }

    def text(self) -> str:
        """The findings and what was done, in lines for people."""
        lines = [f"{self.entries:,} entries, {self.damaged:,} damaged"]
        lines += [f"the database: {problem}" for problem in self.problems]
        if self.set_aside is not None:
            lines.append(f"moved away to {self.set_aside}; they are asked again where needed")
        if self.unrepaired:
            lines.append("--repair moves away what is damaged and saves the rest")
        return "\n".join(lines)


def verify(
    cache: DiskCache,
    *,
    repair: bool = False,
    on_damage: Callable[[DamagedEntry], None] = lambda _: None,
) -> Verification:
    """Hash every entry again, and check the database as SQLite does.

    With `repair`, damaged entries are moved into a file `damaged-<n>.jsonl` beside the
    database, so that they are bought again; a damaged database is set aside and what can be
    read of it is saved.
    """
    found = Verification(problems=list(cache.notices) if cache.was_mended else [])
    with cache.inspected() as connection, _Aside(cache.folder) as aside:
        try:
            for rows in _grouped(_damaged_rows(connection, found)):
                for row, reason in rows:
                    on_damage(DamagedEntry(row.key, reason))
                if repair:
                    aside.write(rows)
                    with table.transaction(connection):
                        table.delete(connection, [row for row, _ in rows])
            problems = _file_problems(connection)
            counter = _counter_problems(connection, repair)
        except sqlite3.Error as exc:
            damage = damage_in(exc)
            if damage is None:
                raise
            problems, counter = [damage.reason], []
        found.set_aside = aside.path
    if repair and problems:
        cache.mend("; ".join(problems))
    found.unrepaired = not repair and bool(found.damaged or problems or counter)
    found.problems += problems + counter
    return found


def _damaged_rows(
    connection: sqlite3.Connection, found: Verification
) -> Iterator[tuple[StoredRow, str]]:
    for row in table.walk(connection):
        found.entries += 1
        reason = _damage_of_row(row)
        if reason is not None:
            found.damaged += 1
            yield row, reason


def _damage_of_row(row: StoredRow) -> str | None:
    if not (row.ours and type(row.value) is bytes):
        return "it is not in the form that claimscore writes"
    return damage_of(row.key, row.value)


def _grouped(rows: Iterable[tuple[StoredRow, str]]) -> Iterator[list[tuple[StoredRow, str]]]:
    iterator = iter(rows)
    while group := list(itertools.islice(iterator, _GROUP)):
        yield group


class _Aside:
    """A file for damaged rows, made when the first one comes.

    What `write` returned for is on the disk, so a kill before the rows are deleted from the
    database loses nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stream: BinaryIO | None = None
        self.path: Path | None = None

    def __enter__(self) -> _Aside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def write(self, rows: Iterable[tuple[StoredRow, str]]) -> None:
        stream = self._stream or self._made()
        stream.writelines(_aside_line(row, reason) for row, reason in rows)
        stream.flush()
        os.fsync(stream.fileno())

    def _made(self) -> BinaryIO:
        for number in itertools.count(1):
            path = self._folder / f"damaged-{number}.jsonl"
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                self._stream = os.fdopen(descriptor, "wb")
                self.path = path
                return self._stream
        raise AssertionError  # pragma: no cover


def _aside_line(row: StoredRow, reason: str) -> bytes:
    """The row as JSON; `value` as text for people, `base64` for every bit."""
    value = row.value if type(row.value) is bytes else repr(row.value).encode()
    line = {
        "key": row.key,
        "reason": reason,
        "stored": repr(row.store_time),
        "value": value.decode("utf-8", "replace"),
        "base64": base64.b64encode(value).decode(),
    }
    return json.dumps(line).encode() + b"\n"


def _file_problems(connection: sqlite3.Connection) -> list[str]:
    """The findings of SQLite's own check."""
    answers = connection.execute("PRAGMA integrity_check(10)").fetchall()
    lines = [line for (answer,) in answers for line in str(answer).splitlines()]
    return [line for line in lines if line != "ok" and not line.startswith("***")]


def _counter_problems(connection: sqlite3.Connection, repair: bool) -> list[str]:
    """Whether diskcache's counter is right, which `stats` shows."""
    counted, there = connection.execute(
        "SELECT (SELECT value FROM Settings WHERE key = 'count'), (SELECT COUNT(*) FROM Cache)"
    ).fetchone()
    if counted == there:
        return []
    if repair:
        with table.transaction(connection):
            table.count_again(connection)
    return [f"its counter says {counted} entries where there are {there}"]
