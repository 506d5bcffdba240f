"""What is in a cache, whether it is sound, and what of it is old.

All of it walks over the table some rows at a time: a million answers take the memory of a
thousand, and other processes may use the cache meanwhile.
"""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from claimscore.cache.database import FORMAT, Database
from claimscore.cache.store import DiskCache, entry_of
from claimscore.types import JSON


class DamagedEntry(NamedTuple):
    """An entry that is not as it was written, and what is wrong with it."""

    key: str
    reason: str


@dataclasses.dataclass(slots=True)
class CacheDetails:
    """The content of a cache.

    `entries` counts all rows, the damaged among them; the other numbers are of sound ones.
    `n_bytes` is what the answers take, `file_bytes` what the files take. Times are seconds
    since 1970. `models` counts answers by the model that the server reported.
    """

    entries: int = 0
    damaged: int = 0
    rejected: int = 0
    n_bytes: int = 0
    file_bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    models: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(
        self, database: Database, on_damage: Callable[[DamagedEntry], None] = lambda _: None
    ) -> None:
        """Count the rows; each entry is hashed again."""
        for row in itertools.chain.from_iterable(database.walk()):
            self.entries += 1
            entry = entry_of(row)
            if isinstance(entry, str):
                self.damaged += 1
                on_damage(DamagedEntry(row.key, entry))
                continue
            self.rejected += entry.rejected is not None
            self.models[entry.completion.model] += 1
            self.n_bytes += len(row.value or b"")
            if row.bought_at:
                self.oldest = min(self.oldest or row.bought_at, row.bought_at)
                self.newest = max(self.newest or row.bought_at, row.bought_at)

    def to_json(self) -> JSON:
        return {
            "format": FORMAT,
            "entries": self.entries,
            "damaged": self.damaged,
            "rejected": self.rejected,
            "bytes": self.n_bytes,
            "file_bytes": self.file_bytes,
            "oldest": _iso(self.oldest),
            "newest": _iso(self.newest),
            "models": dict(self.models.most_common()),
        }

    def text(self) -> str:
        """The same in lines for people."""
        lines = [
            f"{self.entries:,} answers, {self.rejected:,} of them refused by their check",
            f"{megabytes(self.n_bytes)} of answers in {megabytes(self.file_bytes)} of files "
            f"(format {FORMAT})",
        ]
        if self.oldest is not None:
            lines.append(f"bought from {_iso(self.oldest)} to {_iso(self.newest)}")
        lines += [f"{n:,} by {model}" for model, n in self.models.most_common()]
        if self.damaged:
            lines.append(f"{self.damaged:,} damaged answers; `claimscore cache verify` names them")
        return "\n".join(lines)


def details(cache: DiskCache) -> CacheDetails:
    """Numbers about all entries."""
    numbers = CacheDetails()
    with cache.inspected() as database:
        numbers.add(database)
    numbers.file_bytes = sum(path.stat().st_size for path in cache.folder.glob("cache.db*"))
    return numbers


class Verification(NamedTuple):
    """All entries, and the damaged ones among them."""

    entries: int
    damaged: int

    def text(self) -> str:
        advice = "; these are asked again where they are needed" if self.damaged else ""
        return f"{self.entries:,} entries, {self.damaged:,} damaged{advice}"


def verify(
    cache: DiskCache, *, on_damage: Callable[[DamagedEntry], None] = lambda _: None
) -> Verification:
    """Hash every entry again, and check the database as SQLite does.

    `ConfigError` where the database as a whole is damaged.
    """
    numbers = CacheDetails()
    with cache.inspected() as database:
        numbers.add(database, on_damage)
        ((answer,),) = database.select("PRAGMA integrity_check(1)")
        if answer != "ok":
            raise sqlite3.DatabaseError(answer.splitlines()[-1])
    return Verification(numbers.entries, numbers.damaged)


class Pruned(NamedTuple):
    """Entries removed (or found, in a dry run) and the bytes of their values."""

    entries: int
    n_bytes: int

    def text(self, dry_run: bool) -> str:
        verb = "would be removed" if dry_run else "removed"
        return f"{self.entries:,} answers {verb} ({megabytes(self.n_bytes)})"


def prune(
    cache: DiskCache, older_than_s: float, *, dry_run: bool = False, now: float | None = None
) -> Pruned:
    """Remove the entries that were bought longer ago than this.

    An answer that was bought again meanwhile stays.
    """
    entries = n_bytes = 0
    before = (time.time() if now is None else now) - older_than_s
    with cache.inspected() as database:
        for rows in database.walk(before, remove=not dry_run):
            entries += len(rows)
            n_bytes += sum(len(row.value or b"") for row in rows)
    return Pruned(entries, n_bytes)


def megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


def _iso(time_s: float | None) -> str | None:
    """A time as `2026-11-20T03:00:00Z`; None where it is none that a calendar has."""
    if time_s is None:
        return None
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))
    except (ValueError, OverflowError, OSError):
        return None
