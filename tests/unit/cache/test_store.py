"""The store of paid answers: one contract for both caches, and the dangers of the disk."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - only to plant what must never be loaded
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import diskcache
import pytest

from claimscore.cache.base import Cache, MemoryCache
from claimscore.cache.entry import Entry, encode_entry
from claimscore.cache.maintenance import prune, verify
from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError
from claimscore.types import Completion, Usage

ENTRY = Entry(Completion('{"claims": ["Größe"]}', "m", "stop", Usage(12, 7)))
REFUSED = Entry(Completion("", "m", "length"), "the answer was cut off")


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    made: Cache = MemoryCache() if request.param == "memory" else DiskCache(tmp_path / "cache")
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskCache]:
    made = DiskCache(tmp_path / "cache")
    yield made
    made.close()


def sql(cache: DiskCache, statement: str, *values: object) -> None:
    with sqlite3.connect(cache.folder / "cache.db") as connection:
        connection.execute(statement, values)
    connection.close()


def test_what_was_put_is_got(cache: Cache):
    cache.put_many({"a": ENTRY, "b": REFUSED})
    assert cache.get_many(["b", "c", "a"]) == {"a": ENTRY, "b": REFUSED}


def test_the_open_file_is_not_opened_again(disk: DiskCache, monkeypatch: pytest.MonkeyPatch):
    """Closing any other handle of it would drop SQLite's locks in this process."""
    opened: list[str] = []
    plain = os.open

    def noting(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_EXCL == 0:
            opened.append(os.fspath(path))
        return plain(path, flags, mode)

    monkeypatch.setattr(os, "open", noting)
    DiskCache(disk.folder).close()
    assert {Path(path).name for path in opened} == {"cache.db.lock", "cache.db.in-flight"}


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("mode", [1, 4, 2, 3], ids=["raw", "pickle", "binary file", "text file"])
def test_a_planted_pickle_as_value_is_not_run(disk: DiskCache, tmp_path: Path, mode: int):
    target = tmp_path / "run"
    payload = pickle.dumps(Payload(target))
    sql(
        disk,
        "INSERT INTO Cache (key, raw, store_time, mode, value, filename) VALUES (?, 1, 0, ?, ?, ?)",
        "a", mode, payload, "../../etc/passwd",
    )  # fmt: skip
    assert disk.get_many(["a"]) == {}
    assert len(disk.notices) == 1
    assert not target.exists()


def test_a_planted_pickle_as_key_is_not_run(disk: DiskCache, tmp_path: Path):
    target = tmp_path / "run"
    sql(
        disk,
        "INSERT INTO Cache (key, raw, store_time, mode, value) VALUES (?, 0, 0, 1, ?)",
        pickle.dumps(Payload(target)), b"x",
    )  # fmt: skip
    verify(disk)
    prune(disk, -1e12)
    assert not target.exists()


def test_nothing_is_ever_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither here nor in diskcache, which makes the file."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something is pickled")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    cache = DiskCache(tmp_path / "new")
    cache.put_many({"a": ENTRY, "b": REFUSED})
    sql(cache, "UPDATE Cache SET mode = 4 WHERE key = 'b'")
    assert verify(cache).damaged == 1
    assert cache.get_many(["a"]) == {"a": ENTRY}
    assert prune(cache, -1e12).entries == 2
    cache.close()


def test_a_planted_file_name_removes_no_file(disk: DiskCache, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.touch()
    for key in ("a", "b"):
        sql(
            disk,
            "INSERT INTO Cache (key, raw, store_time, mode, filename) VALUES (?, 1, 1, 2, ?)",
            key, "../victim",
        )  # fmt: skip
    disk.put_many({"a": ENTRY})
    assert prune(disk, 0.0, now=2.0).entries == 1
    assert disk.get_many(["a", "b"]) == {"a": ENTRY}
    assert victim.exists()


def test_a_damaged_entry_is_bought_again(disk: DiskCache):
    disk.put_many({"a": ENTRY})
    sql(disk, "UPDATE Cache SET value = ?", b'{"v":1,"sum":"0000000000000000","entry":{}}')
    assert disk.get_many(["a"]) == {}
    disk.put_many({"a": ENTRY})
    assert disk.get_many(["a"]) == {"a": ENTRY}
    assert len(disk.notices) == 1


def test_new_folders_are_private(tmp_path: Path):
    cache = DiskCache(tmp_path / "parent" / "cache")
    cache.put_many({"a": ENTRY})
    for path in (tmp_path / "parent", cache.folder):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in cache.folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    cache.close()


def test_a_folder_of_other_things_keeps_its_mode(tmp_path: Path):
    tmp_path.chmod(0o755)
    (tmp_path / "data.csv").touch()
    DiskCache(tmp_path).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "cache.db").stat().st_mode & 0o777 == 0o600


def test_an_unusable_folder_is_a_config_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/cache: .*--cache-dir"):
        DiskCache(tmp_path / "file" / "cache")


def test_diskcache_reads_what_we_write(disk: DiskCache):
    disk.put_many({str(number): ENTRY for number in range(20)})
    disk.put_many({str(number): REFUSED for number in range(10)})  # rows that are there already
    disk.close()
    with diskcache.Cache(str(disk.folder)) as plain:
        assert plain.get("3") == encode_entry("3", REFUSED)
        assert len(plain) == 20
        assert plain.eviction_policy == "none"
        assert plain.volume() > 0


@pytest.mark.parametrize(("number", "maker"), [(2, "a newer"), (0, "an older")])
def test_another_format_is_refused(disk: DiskCache, number: int, maker: str):
    disk.put_many({"a": ENTRY})
    disk.close()
    value = f'{{"format": {number}}}'
    sql(disk, "UPDATE Settings SET value = ? WHERE key = 'claimscore'", value)
    words = rf"made by {maker} claimscore \(format {number}; this one knows 1\).*`cache export`"
    with pytest.raises(ConfigError, match=words):
        DiskCache(disk.folder)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE bookmarks (url TEXT)", "other tables"),
        ("ALTER TABLE Cache RENAME COLUMN mode TO mude", "other tables"),
        # diskcache would set SQLite's switches to whatever stands there
        ("INSERT INTO Settings VALUES ('sqlite_writable_schema', 1)", "settings"),
    ],
)
def test_a_foreign_database_is_left_alone(disk: DiskCache, statement: str, words: str):
    disk.close()
    sql(disk, statement)
    before = (disk.folder / "cache.db").read_bytes()
    with pytest.raises(ConfigError, match=f"not a cache of claimscore .*{words}"):
        DiskCache(disk.folder)
    assert (disk.folder / "cache.db").read_bytes() == before
