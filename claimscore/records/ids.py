"""Duplicate ids among any number of records, with the memory of a few thousand."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from claimscore.errors import ConfigError

_BATCH = 10_000


class Duplicate(NamedTuple):
    """An id and its first two places (file number, line)."""

    id: str
    first: tuple[int, int]
    second: tuple[int, int]


class IdIndex:
    """Ids written to a scratch database as they come and grouped once at the end.

    Sorting once is several times faster than keeping an index up to date, and all that
    is in memory is one batch. The file is removed when the block ends; after a kill
    `remove_leftovers` finds it by its ending.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f".ids.{secrets.token_hex(4)}.tmp"
        self._batch: list[tuple[str, int, int]] = []

    def __enter__(self) -> Self:
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None)
            for statement in (
                "PRAGMA journal_mode = OFF",
                "PRAGMA synchronous = OFF",
                "PRAGMA cache_size = -16384",
                "CREATE TABLE ids (id TEXT NOT NULL, file INTEGER NOT NULL, line INTEGER NOT NULL)",
                "BEGIN",
            ):
                self._database.execute(statement)
        except sqlite3.Error as exc:
            raise self._failed(exc) from exc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()
        self._path.unlink(missing_ok=True)

    def add(self, identifier: str, file: int, line: int) -> None:
        self._batch.append((identifier, file, line))
        if len(self._batch) >= _BATCH:
            self._flush()

    def duplicate(self) -> Duplicate | None:
        """The first id that stands twice, or None."""
        self._flush()
        try:
            found = self._database.execute(
                "SELECT id FROM ids GROUP BY id HAVING COUNT(*) > 1 ORDER BY MIN(rowid) LIMIT 1"
            ).fetchone()
            if found is None:
                return None
            first, second = self._database.execute(
                "SELECT file, line FROM ids WHERE id = ? ORDER BY rowid LIMIT 2", found
            ).fetchall()
        except sqlite3.Error as exc:
            raise self._failed(exc) from exc
        return Duplicate(found[0], first, second)

    def _flush(self) -> None:
        try:
            self._database.executemany("INSERT INTO ids VALUES (?, ?, ?)", self._batch)
        except sqlite3.Error as exc:
            raise self._failed(exc) from exc
        self._batch.clear()

    def _failed(self, exc: sqlite3.Error) -> ConfigError:
        return ConfigError(f"{self._path.parent}: the list of ids could not be kept: {exc}")
