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
from pathlib import Path
from typing import NamedTuple

from claimscore.cache.database import DATABASE, FORMAT, Database, is_damage
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
    since 1970. `models` counts answers by the model that the server reported; `set_aside`
    are the files that damage was moved to.
    """

    entries: int = 0
    damaged: int = 0
    rejected: int = 0
    n_bytes: int = 0
    file_bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    models: Counter[str] = dataclasses.field(default_factory=Counter)
    set_aside: list[str] = dataclasses.field(default_factory=list)

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
            "set_aside": self.set_aside,
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
        lines += [f"damage was moved to {name}" for name in self.set_aside]
        return "\n".join(lines)


def details(cache: DiskCache) -> CacheDetails:
    """Numbers about all entries."""
    found = CacheDetails(set_aside=cache.set_aside)
    with cache.inspected() as database:
        found.add(database)
    found.file_bytes = sum(path.stat().st_size for path in cache.folder.glob("cache.db*"))
    return found


@dataclasses.dataclass(slots=True)
class Verification:
    """The findings of `verify`; `problems` concern the database as a whole.

    `set_aside` is the damaged database where this or the opening replaced it.
    """

    entries: int
    damaged: int
    problems: list[str]
    set_aside: Path | None

    @property
    def is_clean(self) -> bool:
        return not self.damaged and not self.problems

    @property
    def unrepaired(self) -> bool:
        """Whether anything is still as it was found."""
        return not self.is_clean and self.set_aside is None

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
            lines.append(f"moved away to {self.set_aside}; what is missing is asked again")
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

    With `repair`, a database with any damage is set aside as it is, and a new one takes over its
    sound entries; the others are bought again where they are needed.
    """
    found = CacheDetails()
    damage: list[str] = []
    with cache.inspected() as database:
        try:
            found.add(database, on_damage)
            answers = database.select("PRAGMA integrity_check(10)")
            lines = [line for (answer,) in answers for line in str(answer).splitlines()]
            damage += [line for line in lines if line != "ok" and not line.startswith("***")]
        except sqlite3.Error as exc:
            if not is_damage(exc, cache.folder / DATABASE):
                raise
            damage.append(str(exc))
    problems = [*cache.recoveries, *damage]
    if repair and (damage or found.damaged):
        cache.recover("; ".join(damage) or f"{found.damaged:,} damaged entries")
    set_aside = cache.folder / cache.set_aside[-1] if cache.recoveries else None
    return Verification(found.entries, found.damaged, problems, set_aside)


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
