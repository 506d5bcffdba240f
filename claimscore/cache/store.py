"""Where paid answers lie: a folder with one diskcache database, which several processes may share.

diskcache is used by its documentation; ours are the form of an answer, the mark in the file, and
the words for what can go wrong.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import diskcache
import orjson

from claimscore.atomic import reason
from claimscore.cache.key import canonical_json
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import KeyLocks
from claimscore.types import Completion

#: The name that diskcache gives the file.
DATABASE = "cache.db"

#: The file of locks on keys beside it; it is made once the database has its tables.
_IN_FLIGHT = f"{DATABASE}.in-flight"

#: SQLite's `user_version` of our files: "cs", and the format. It is set before any table is made.
MARK = 0x6373_0002

_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "sqlite_cache_size": 1024,  # pages a connection, 4 MB: with more it is no faster
    "sqlite_mmap_size": 0,  # reading a mapped file that was cut off kills the process
    "sqlite_user_version": MARK,
}

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_FULL = {errno.ENOSPC, errno.EDQUOT}
#: SQLite's numbers of damage; Python's own errors of the content have none.
_DAMAGE = {0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

#: What to do with a damaged database. Unlike `.recover`, every build of sqlite3 has `.dump`; it
#: reads a table from both ends, says ROLLBACK where it met damage, and leaves the mark out.
_RESCUE = (
    "in its folder, `mkdir old && mv cache.db* old && sqlite3 old/cache.db .dump | sed "
    f"'s/^ROLLBACK.*/COMMIT;/; s/^BEGIN.*/&PRAGMA user_version={MARK};/' | sqlite3 cache.db` makes "
    "a new cache of what can be read; the rest is asked again"
)


class Cache(Protocol):
    """Paid answers by request key. Implementations may be used from several threads."""

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The answers that are there; missing and damaged ones are left out."""

    def put_many(self, answers: Mapping[str, Completion]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""

    def try_lock(self, key: str) -> bool:
        """Tell other processes that this one asks for the key; False where another one does."""

    def unlock(self, key: str) -> None:
        """End `try_lock`: the answer is there now, or never will be."""

    def close(self) -> None:
        """Release the files; nothing may be asked afterwards."""


class MemoryCache:
    """A cache that ends with the process."""

    def __init__(self) -> None:
        self.answers: dict[str, Completion] = {}

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        return {key: self.answers[key] for key in keys if key in self.answers}

    def put_many(self, answers: Mapping[str, Completion]) -> None:
        self.answers.update(answers)

    def try_lock(self, key: str) -> bool:
        return True

    def unlock(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass


class NewRow(NamedTuple):
    """An encoded answer (b"" where the row is none), bought at seconds since 1970 (0: unknown)."""

    key: str
    value: bytes
    bought_at: float


_BEGIN = b'{"v":1,"sum":"'
_MIDDLE = b'","entry":'
_HEAD_SIZE = len(_BEGIN) + 16 + len(_MIDDLE)


def encode_answer(key: str, answer: Completion) -> bytes:
    """`{"v":1,"sum":"<16 hex>","entry":{"completion":{...}}}`; the sum is over key and entry."""
    return framed(key, canonical_json({"completion": answer.to_json()}))


def decode_answer(key: str, value: bytes) -> Completion | None:
    """The answer, or None where a single bit is not as it was written."""
    body = value[_HEAD_SIZE:-1]
    if framed(key, body) != value:
        return None
    try:
        try:
            entry = orjson.loads(body)  # half of the time of `json.loads`
        except orjson.JSONDecodeError:  # it refuses lone surrogates
            entry = json.loads(body)
        answer = Completion.from_json(entry["completion"])
        return answer if isinstance(answer.text, str) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def framed(key: str, body: bytes) -> bytes:
    """The bytes that are stored for an entry's own bytes."""
    checksum = sha256(key.encode() + body).hexdigest()[:16].encode()
    return b"".join((_BEGIN, checksum, _MIDDLE, body, b"}"))


class _BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache publishes no types
    """JSON bytes under text keys, in the database itself.

    diskcache's own pickles what is neither, and unpickles any row that says so, which runs code out
    of a file (CVE-2025-69872). A row may also name a file: it is neither read nor removed.
    """

    def put(self, key: str) -> tuple[str, bool]:
        return key, True

    def get(self, key: object, raw: object) -> str:
        return str(key)

    def store(self, value: bytes, read: bool, key: object = None) -> tuple[Any, ...]:
        return 0, diskcache.core.MODE_RAW, None, value

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> bytes:
        return value if mode == diskcache.core.MODE_RAW and isinstance(value, bytes) else b""

    def remove(self, file_path: str) -> None:
        pass


class DiskCache:
    """A folder that several processes may share; nothing is ever evicted.

    A kill at any moment loses nothing that `put_many` returned for (SQLite's WAL); a power cut may
    lose the last commits, never earlier ones. A damaged answer counts as missing; `on_notice` hears
    of the first. `on_kept` gets the rows of each `put_many` after its commit, in its thread; not
    those of an import. Raises `ConfigError` at opening for a damaged database, which is left as it
    is, and for a folder that cannot be written; `StoppedEarly` for damage in use.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_notice: Callable[[str], None] = lambda _: None,
        on_kept: Callable[[Sequence[NewRow]], None] = lambda _: None,
        busy_timeout_s: float = 60.0,
    ) -> None:
        self.folder = folder
        self._on_notice, self._on_kept = on_notice, on_kept
        self._is_damage_told = False
        self._path = path = folder.absolute() / DATABASE
        try:
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            _check_maker(path)
            self._cache = diskcache.Cache(path.parent, busy_timeout_s, _BytesDisk, **_SETTINGS)
            self._identity = _identity(path)
        except (OSError, sqlite3.Error) as exc:
            raise _explained(exc, path, ConfigError) from exc
        self._in_flight = KeyLocks(path.with_name(_IN_FLIGHT))

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there is one in a folder that can be read; opening it would make one."""
        return os.path.exists(folder / DATABASE)  # noqa: PTH110 - False for a closed folder

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """Inline look-ups, some 10 us each; a thread hop would cost more than most calls."""
        answers, get = {}, self._cache.get
        with self._using(StoppedEarly):
            for key in keys:
                value = get(key)
                if value is None:
                    continue
                answer = decode_answer(key, value)
                if answer is not None:
                    answers[key] = answer
                elif not self._is_damage_told:
                    self._is_damage_told = True
                    self._on_notice(
                        f"{self.folder}: the stored answer {key} is damaged and is asked again; "
                        "`claimscore cache verify` looks for others"
                    )
        return answers

    def put_many(self, answers: Mapping[str, Completion]) -> None:
        """Keep all of these or none; when it returns, a killed process loses none of them."""
        now = time.time()
        rows = [NewRow(key, encode_answer(key, answer), now) for key, answer in answers.items()]
        self.put_rows(rows)
        self._on_kept(rows)

    def put_rows(self, rows: Sequence[NewRow]) -> None:
        """The same for encoded answers that were bought earlier."""
        with self._using(StoppedEarly), self._cache.transact():
            for row in rows:
                self._cache.set(row.key, row.value, tag=row.bought_at)

    def remove(self, rows: Sequence[NewRow]) -> int:
        """Remove those of these rows that are as they were read; their number."""
        with self._using(ConfigError), self._cache.transact():
            return sum(self._row(row.key) == row and self._cache.delete(row.key) for row in rows)

    def walk(self) -> Iterator[NewRow]:
        """Every row, a hundred in memory at a time; `ConfigError` for a damaged database.

        Nothing is held between the rows: other processes may write, and the walk may meet what
        they write or not. (diskcache's `iterkeys` takes time by the square of their number.)
        """
        with self._using(ConfigError):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                notes = self._cache.check()
            for note in notes:  # other kinds are of other files; `Settings` counts for diskcache
                if note.category is UserWarning and not str(note.message).startswith("Settings"):
                    raise sqlite3.DatabaseError(str(note.message).splitlines()[-1])
            for key in self._cache:
                yield self._row(key)

    def _row(self, key: str) -> NewRow:
        value, bought_at = self._cache.get(key, b"", tag=True)
        is_time = isinstance(bought_at, float) and bought_at > 0
        return NewRow(key, value, bought_at if is_time else 0.0)

    def try_lock(self, key: str) -> bool:
        return self._in_flight.try_lock(key)

    def unlock(self, key: str) -> None:
        self._in_flight.unlock(key)

    def close(self) -> None:
        """The last one to close a file puts its log into it, so that it can be copied."""
        self._in_flight.close()
        self._cache.close()

    @contextlib.contextmanager
    def _using(self, kind: type[ClaimscoreError]) -> Iterator[None]:
        """What goes wrong as an error of ours, also where the file is not there any more."""
        try:
            yield
        except (OSError, sqlite3.Error, diskcache.Timeout) as exc:
            with contextlib.suppress(sqlite3.Error):  # and with it a transaction that is left
                self._cache.close()
            raise _explained(exc, self._path, kind) from exc
        if _identity(self._path) != self._identity:
            raise StoppedEarly(
                f"{self.folder}: the cache was removed or replaced while this process used it; "
                "run the same command again"
            )


def _check_maker(path: Path) -> None:
    """Make a private file; `ConfigError` where one has tables that this version did not make, an
    error of SQLite where it has lost those that it had.

    diskcache would add its own to any file. Only a connection may look: closing another handle of
    the file would drop SQLite's locks in this process.
    """
    had_tables = path.exists() and path.with_name(_IN_FLIGHT).exists()
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    name = f"file:{quote(str(path))}?mode=rw"
    with contextlib.closing(sqlite3.connect(name, uri=True)) as connection:
        ((mark,),) = connection.execute("PRAGMA user_version")
        ((n_changes,),) = connection.execute("PRAGMA schema_version")
    if had_tables and not n_changes:
        raise sqlite3.DatabaseError("it was emptied; remove it to begin anew")
    if mark != MARK and n_changes:
        raise ConfigError(
            f"{path}: not a cache of this version of claimscore; carry the answers of another "
            "version over by its `cache export` and `cache import` here, or name another folder "
            "with --cache-dir"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """What stays the same until a file is replaced; None where there is none."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - twice as fast, and asked for every request
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _explained(error: BaseException, path: Path, kind: type[ClaimscoreError]) -> ClaimscoreError:
    """An error of files or SQLite as ours, with the folder and what to do; of this kind, where
    waiting or making room does not help.

    diskcache raises others over the first one, where a transaction cannot begin or roll back.
    """
    while isinstance(error.__context__, sqlite3.Error):
        error = error.__context__
    code, folder = getattr(error, "sqlite_errorcode", 0) & 0xFF, path.parent
    why = reason(error) if isinstance(error, OSError) else str(error)
    if code in _LOCKED:
        return StoppedEarly(f"{folder}: another process holds the cache locked; see what it does")
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in _FULL:
        return StoppedEarly(f"{folder}: answers cannot be kept ({why}); make room there")
    if code in _DAMAGE and not isinstance(error, OSError):
        return kind(f"{path} is damaged ({why}); {_RESCUE}")
    return kind(
        f"{folder}: the cache cannot be used ({why}); make folder and files readable and writable "
        "for you, or copy the folder and name the copy with --cache-dir"
    )
