"""The form of a cache's database: today's, one from before it was numbered, older, newer."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import diskcache
import pytest

from claimscore.cache import layout, table
from claimscore.cache.entry import encode_entry
from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError
from tests.cache.samples import entries, entry, filled, key, opened, sql


def stored_format(folder: Path) -> int | None:
    with contextlib.closing(sqlite3.connect(folder / "cache.db")) as connection:
        return layout.stored_format(connection)


def set_format(folder: Path, value: object) -> None:
    sql(folder, "UPDATE Settings SET value = ? WHERE key = 'claimscore'", value)


def test_a_new_cache_says_its_format(tmp_path: Path):
    """So that a later version knows what it has before it."""
    filled(tmp_path, 1)
    assert stored_format(tmp_path) == layout.FORMAT == 1


def test_a_cache_from_before_formats_were_numbered_is_read(tmp_path: Path):
    """As the first version wrote it, with diskcache's own calls; then it is marked."""
    with diskcache.Cache(
        str(tmp_path), eviction_policy="none", cull_limit=0, disk_min_file_size=2**31
    ) as old:
        for number in range(20):
            old.set(key(number), encode_entry(key(number), entry(number)))
    with opened(tmp_path) as cache:
        assert cache.get_many(list(entries(20))) == entries(20)
        assert cache.stats().entries == 20
        assert cache.notices == []
    assert stored_format(tmp_path) == 1


def test_diskcache_reads_what_we_write(tmp_path: Path):
    """The table stays diskcache's: its own calls find every row, and its check is content."""
    filled(tmp_path, 20)
    with opened(tmp_path) as cache:
        cache.put_many(entries(10))  # rows that are there already
        cache.put_many({key(50): entry(50)})
    with diskcache.Cache(str(tmp_path)) as plain:
        assert plain.get(key(3)) == encode_entry(key(3), entry(3))
        assert len(plain) == 21
        assert plain.check() == []
        assert plain.volume() > 0


def test_the_number_of_a_raw_value_is_diskcaches():
    """It stands in our statements as it does in diskcache's."""
    assert diskcache.core.MODE_RAW == table.MODE_RAW == 1


def test_a_newer_format_is_refused(tmp_path: Path):
    """What a later version wrote is neither misread nor set aside."""
    filled(tmp_path, 1)
    set_format(tmp_path, json.dumps({"format": 2}))
    with pytest.raises(ConfigError, match=r"newer claimscore \(format 2; this one knows 1\)"):
        DiskCache(tmp_path)
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize("value", ["", "{}", '{"format": "1"}', '{"format": 0}', None, 1, b"\xff"])
def test_a_format_that_cannot_be_read_is_damage(tmp_path: Path, value: object):
    """Its answers are saved into a database that says it."""
    filled(tmp_path, 5)
    set_format(tmp_path, value)
    with opened(tmp_path) as cache:
        assert "format" in cache.notices[0]
        assert cache.get_many(list(entries(5))) == entries(5)
    assert stored_format(tmp_path) == 1


@pytest.fixture
def format_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version of claimscore, whose keys once began with `1:`, then with `2:`."""

    def to_2(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE Cache SET key = '2:' || key")

    def to_3(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE Cache SET key = substr(key, 3)")

    monkeypatch.setattr(layout, "FORMAT", 3)
    monkeypatch.setattr(layout, "MIGRATIONS", {1: to_2, 2: to_3})


@pytest.mark.parametrize("marked", [True, False])
def test_an_older_format_is_migrated(tmp_path: Path, format_3: None, marked: bool):
    """Step by step, once, with every answer."""
    with pytest.MonkeyPatch.context() as before:
        before.setattr(layout, "FORMAT", 1)
        filled(tmp_path, 20)
    if not marked:
        sql(tmp_path, "DELETE FROM Settings WHERE key = 'claimscore'")
    for _ in range(2):
        with opened(tmp_path) as cache:
            assert cache.get_many(list(entries(20))) == entries(20)
        assert stored_format(tmp_path) == 3


def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, format_3: None, monkeypatch: pytest.MonkeyPatch
):
    """All steps are one transaction: a kill or a bug leaves the old database."""
    with pytest.MonkeyPatch.context() as before:
        before.setattr(layout, "FORMAT", 1)
        filled(tmp_path, 20)

    def broken(connection: sqlite3.Connection) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(layout.MIGRATIONS, 2, broken)
    with pytest.raises(RuntimeError, match="a bug"):
        DiskCache(tmp_path)
    assert stored_format(tmp_path) == 1
    monkeypatch.setattr(layout, "FORMAT", 1)
    with opened(tmp_path) as cache:
        assert cache.get_many(list(entries(20))) == entries(20)


def test_every_format_has_its_migration():
    """A number that goes up without a way to come along would lose what was paid for."""
    assert sorted(layout.MIGRATIONS) == list(range(1, layout.FORMAT))
