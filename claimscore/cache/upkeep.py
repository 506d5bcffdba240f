"""Looking after a cache: what is in it, and what of it is old.

Everything walks over the table some rows at a time: a million answers take the memory of a
thousand, and others may use the cache meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections import Counter
from typing import NamedTuple

from claimscore.cache import table
from claimscore.cache.layout import FORMAT, stored_format
from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError
from claimscore.types import JSON

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


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
    """Remove the entries that were stored longer ago than this."""
    before = (time.time() if now is None else now) - older_than_s
    entries = n_bytes = 0
    with cache.inspected() as connection:
        for rows in table.walk_old(connection, before):
            entries += len(rows)
            n_bytes += sum(row.n_bytes for row in rows)
            if not dry_run:
                with table.transaction(connection):
                    table.delete_old(connection, rows, before)
    return Pruned(entries, n_bytes)


def age_s(text: str) -> float:
    """`30d`, `12h`, `90m`, `2w` as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no age; write 30d, 12h, 90m or 2w")
    return float(found[1]) * _UNITS_S[found[2]]


#: An entry from its first byte to its model; both are short, and the text comes after them.
_UP_TO_THE_MODEL = re.compile(
    rb'\{"v":1,"sum":"[0-9a-f]{16}","entry":\{"completion":\{"finish_reason":'
    rb'"(?:[^"\\]|\\.)*","model":("(?:[^"\\]|\\.)*")'
)
_NOT_REJECTED = b'"rejected":null}}'

_NEXT_GISTS = f"""
    SELECT rowid, substr(value, 1, 400), substr(value, -{len(_NOT_REJECTED)}), length(value),
           store_time
    FROM Cache WHERE rowid > ? ORDER BY rowid LIMIT 1000
"""


@dataclasses.dataclass(slots=True)
class CacheDetails:
    """The content of a cache, as its rows say; whether they are sound is `verify`'s to find out.

    `n_bytes` is what the answers take, `file_bytes` what the files take. Times are seconds
    since 1970. `models` counts answers by the model that the server reported; `set_aside`
    are the files that damage was moved to.
    """

    format: int = FORMAT
    entries: int = 0
    rejected: int = 0
    n_bytes: int = 0
    file_bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    models: Counter[str] = dataclasses.field(default_factory=Counter)
    set_aside: list[str] = dataclasses.field(default_factory=list)

    def add(self, begin: object, end: object, n_bytes: int | None, stored: object) -> None:
        self.entries += 1
        self.rejected += end != _NOT_REJECTED
        self.n_bytes += n_bytes or 0
        self.models[_model(begin)] += 1
        if isinstance(stored, float):
            self.oldest = stored if self.oldest is None else min(self.oldest, stored)
            self.newest = stored if self.newest is None else max(self.newest, stored)

    def to_json(self) -> JSON:
        return {
            "format": self.format,
            "entries": self.entries,
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
            f"(format {self.format})",
        ]
        if self.oldest is not None:
            lines.append(f"bought from {_iso(self.oldest)} to {_iso(self.newest)}")
        lines += [f"{n:,} by {model}" for model, n in self.models.most_common()]
        lines += [f"damage was moved to {name}" for name in self.set_aside]
        return "\n".join(lines)


def details(cache: DiskCache) -> CacheDetails:
    """Numbers about all entries, from the first and last bytes of each."""
    found = CacheDetails(
        file_bytes=sum(path.stat().st_size for path in cache.folder.glob("cache.db*")),
        set_aside=sorted(path.name for path in cache.folder.glob("*damaged-*")),
    )
    last = -(2**63)
    with cache.inspected() as connection:
        found.format = stored_format(connection) or FORMAT
        while rows := connection.execute(_NEXT_GISTS, (last,)).fetchall():
            for _, *gist in rows:
                found.add(*gist)
            last = rows[-1][0]
    return found


def _model(begin: object) -> str:
    match = _UP_TO_THE_MODEL.match(begin) if isinstance(begin, bytes) else None
    return str(json.loads(match[1])) if match else "?"


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
