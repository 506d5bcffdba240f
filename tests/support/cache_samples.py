"""Answers to keep, and caches that hold them."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from claimscore.cache.store import DiskCache
from claimscore.types import Completion, Usage


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def answer(number: int) -> Completion:
    """Short ones, and every tenth longer than a page of the database."""
    claims = [f"Claim {number} is né \ud83d or \U0001f600."] * (400 if number % 10 == 9 else 20)
    text = json.dumps({"claims": claims}, ensure_ascii=False)
    return Completion(text, f"m{number % 2}", "stop", Usage(number, 7))


def answers(n: int, start: int = 0) -> dict[str, Completion]:
    return {key(number): answer(number) for number in range(start, start + n)}


@contextlib.contextmanager
def opened(folder: Path, on_notice: Callable[[str], None] = lambda _: None) -> Iterator[DiskCache]:
    cache = DiskCache(folder, on_notice=on_notice)
    try:
        yield cache
    finally:
        cache.close()


def filled(folder: Path, n: int) -> Path:
    """A closed cache with `n` answers; the path of its database."""
    with opened(folder) as cache:
        cache.put_many(answers(n))
    return folder / "cache.db"


def sql(folder: Path, statement: str, *values: object) -> None:
    """A change that is not made by claimscore."""
    with contextlib.closing(sqlite3.connect(folder / "cache.db")) as connection, connection:
        connection.execute(statement, values)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(data)
