"""What is in a cache, whether it is sound, and what of it is old.

All of it walks over the rows: a million answers take the memory of a thousand, and other processes
may use the cache meanwhile.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable

from claimscore.cache.store import DATABASE, DiskCache, decode_answer

#: Rows that are removed in one transaction.
_GROUP = 500


@dataclasses.dataclass(slots=True)
class CacheDetails:
    """The content of a cache.

    `entries` counts all rows, the damaged among them; the other numbers are of sound ones.
    `n_bytes` is what the answers take, `file_bytes` what the files take. Times are seconds since
    1970. `models` counts answers by the model that the server reported.
    """

    entries: int = 0
    damaged: int = 0
    n_bytes: int = 0
    file_bytes: int = 0
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
        numbers.n_bytes += len(row.value)
        if row.bought_at:
            numbers.oldest = min(numbers.oldest or row.bought_at, row.bought_at)
            numbers.newest = max(numbers.newest or row.bought_at, row.bought_at)
    numbers.file_bytes = sum(path.stat().st_size for path in cache.folder.glob(f"{DATABASE}*"))
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
