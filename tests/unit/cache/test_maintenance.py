"""`verify` finds and names every damage; `prune` and `stats` tell the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.cache.database import NewRow
from claimscore.cache.entry import Entry, encode_entry
from claimscore.cache.maintenance import DamagedEntry, details, prune, verify
from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError
from claimscore.types import Completion
from tests.support.cache_samples import entries, entry, filled, key, opened, overwrite, sql

NOW = 1_750_000_000.0
DAY = 86400.0


# -- verify


DAMAGE = [
    ("value = CAST(replace(value, '4', '5') AS BLOB)", ""),
    ("value = 'text'", "form"),
    ("value = substr(value, 1, 100)", "checksum"),
    ("value = CAST('x' AS BLOB)", "form"),
    ("value = NULL", "form"),
    ("mode = 4", "form"),
    ("mode = 2, filename = '../../etc/passwd'", "form"),
    ("raw = 0", "form"),
    ("key = 'other'", "checksum"),
    ("key = CAST(X'ff00' AS TEXT)", "checksum"),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGE)
def test_a_damaged_entry_is_named_until_it_is_bought_again(
    tmp_path: Path, change: str, reason: str
):
    filled(tmp_path, 30)
    sql(tmp_path, f"UPDATE Cache SET {change} WHERE key = ?", key(4))
    with opened(tmp_path) as cache:
        named: list[DamagedEntry] = []
        assert verify(cache, on_damage=named.append) == (30, 1)
        assert [reason in damaged.reason for damaged in named] == [True]
        assert cache.get_many(list(entries(30))).items() <= entries(30).items()
        cache.put_many({key(4): entry(4)})
        assert cache.get_many(list(entries(30))) == entries(30)


def test_a_cache_in_use_is_checked(tmp_path: Path):
    filled(tmp_path, 600)
    sql(tmp_path, "UPDATE Cache SET value = X'00' WHERE key = ?", key(1))
    with opened(tmp_path) as cache, opened(tmp_path) as run:
        new = {key(1): entry(1), key(1000): entry(1000)}
        assert verify(cache, on_damage=lambda _: run.put_many(new)).damaged == 1
        assert cache.get_many([*entries(600), *new]) == entries(600) | new
        assert run.get_many(list(new)) == new


def index_page(database: Path) -> int:
    """A page of the index of keys: it has a key, but no answer."""
    content = database.read_bytes()
    for number in range(1, len(content) // 4096):
        page = content[4096 * number : 4096 * (number + 1)]
        if page[0] == 0x0A and key(1).encode()[:8] in page:
            return number
    raise AssertionError("no such page")


@pytest.mark.parametrize("whole", [True, False], ids=["page", "one key of it"])
def test_a_damaged_index_is_noticed(tmp_path: Path, whole: bool):
    database = filled(tmp_path, 20)
    at = index_page(database) * 4096
    if whole:
        overwrite(database, at, b"\xaa" * 4096)
    else:
        page = database.read_bytes()[at : at + 4096]
        overwrite(database, at + page.index(key(1).encode()[:8]), b"zzzz")
    with opened(tmp_path) as cache, pytest.raises(ConfigError, match=r"cache\.db is damaged"):
        verify(cache)


def test_a_damaged_row_number_does_not_make_walks_endless(tmp_path: Path):
    database = filled(tmp_path, 20)
    content = database.read_bytes()
    pages = range(4096, len(content), 4096)
    start = [at for at in pages if content[at] == 0x0D and b'{"v":1' in content[at : at + 4096]][-1]
    last_cell = int.from_bytes(content[start + 3 : start + 5], "big") - 1
    pointer = start + 8 + 2 * last_cell
    number = start + int.from_bytes(content[pointer : pointer + 2], "big")
    while content[number] & 0x80:  # the size of the row, a varint, is before its number
        number += 1
    overwrite(database, number + 1, b"\x01")
    with opened(tmp_path) as cache, pytest.raises(ConfigError, match="out of order"):
        prune(cache, -DAY, dry_run=True)


# -- prune


def aged(folder: Path, n: int) -> None:
    """Answer number k was bought k days ago."""
    with opened(folder) as cache:
        cache.put_rows(
            [NewRow(key(k), encode_entry(key(k), entry(k)), NOW - k * DAY) for k in range(n)]
        )


def days_left(cache: DiskCache, n: int) -> list[int]:
    found = cache.get_many([key(number) for number in range(n)])
    return [number for number in range(n) if key(number) in found]


def test_what_is_older_goes(tmp_path: Path):
    aged(tmp_path, 1200)
    n_bytes = sum(len(encode_entry(key(n), entry(n))) for n in range(31, 1200))
    with opened(tmp_path) as cache:
        dry = prune(cache, 30 * DAY, dry_run=True, now=NOW)
        assert "would be removed" in dry.text(dry_run=True)
        assert details(cache).entries == 1200
        assert prune(cache, 30 * DAY, now=NOW) == dry == (1169, n_bytes)
        assert days_left(cache, 1200) == list(range(31))
        assert details(cache).entries == 31
        assert prune(cache, 30 * DAY, now=NOW).entries == 0


def test_a_clock_that_was_wrong_removes_nothing(tmp_path: Path):
    filled(tmp_path, 3)
    sql(tmp_path, "UPDATE Cache SET tag = NULL, store_time = NULL WHERE key = ?", key(1))
    with opened(tmp_path) as cache:
        assert prune(cache, 0.0, now=NOW - 1e9).entries == 0
        assert prune(cache, 1.0, now=1e12).entries == 2
        assert days_left(cache, 3) == [1]


def test_the_file_shrinks(tmp_path: Path):
    aged(tmp_path, 600)
    before = (tmp_path / "cache.db").stat().st_size
    with opened(tmp_path) as cache:
        prune(cache, 30 * DAY, now=NOW)
    assert (tmp_path / "cache.db").stat().st_size < before / 5


# -- stats


def test_what_a_cache_holds(tmp_path: Path):
    aged(tmp_path, 50)
    sql(tmp_path, "UPDATE Settings SET value = 99 WHERE key = 'count'")
    with opened(tmp_path) as cache:
        found = details(cache)
        assert details(cache).entries == 50
    assert (found.entries, found.rejected) == (50, 8)
    assert found.n_bytes == sum(len(encode_entry(key(n), entry(n))) for n in range(50))
    assert found.file_bytes >= found.n_bytes
    assert (found.oldest, found.newest) == (NOW - 49 * DAY, NOW)
    assert found.models == {"m0": 25, "m1": 25}
    assert (found.to_json()["format"], found.to_json()["newest"]) == (1, "2025-06-15T15:06:40Z")


def test_strange_models_and_rows_are_counted(tmp_path: Path):
    models = ['a "b" \\ c', "é\ud800"]
    with opened(tmp_path) as cache:
        cache.put_many({key(n): Entry(Completion("t", model)) for n, model in enumerate(models)})
        sql(tmp_path, "INSERT INTO Cache (key, raw, mode, value) VALUES ('x', 1, 1, NULL)")
        sql(tmp_path, "INSERT INTO Cache (key, raw, mode, value) VALUES ('y', 1, 1, 'text')")
        sql(tmp_path, "UPDATE Cache SET tag = 1e300 WHERE key = ?", key(1))
        found = details(cache)
    assert found.models == dict.fromkeys(models, 1)
    assert (found.entries, found.damaged, found.to_json()["newest"]) == (4, 2, None)
    assert "2 damaged answers" in found.text()
