"""`verify`: every damage is found and named, and with `repair` it is gone."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest

from claimscore.cache.entry import encode_entry
from claimscore.cache.store import DiskCache
from claimscore.cache.verify import DamagedEntry, verify
from tests.cache.samples import entries, entry, filled, key, opened, overwrite, sql


def test_a_sound_cache_is_clean(tmp_path: Path):
    """Nothing is found, nothing is written."""
    filled(tmp_path, 30)
    before = sorted(path.name for path in tmp_path.iterdir())
    with opened(tmp_path) as cache:
        found = verify(cache, repair=True)
    assert found.is_clean
    assert (found.entries, found.damaged) == (30, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


DAMAGE = [
    pytest.param("value = CAST(replace(value, '4', '5') AS BLOB)", "", id="text"),
    pytest.param("value = 'text'", "form", id="no bytes"),
    pytest.param("value = substr(value, 1, 100)", "checksum", id="cut off"),
    pytest.param("value = CAST('x' AS BLOB)", "form", id="something else"),
    pytest.param("value = NULL", "form", id="nothing"),
    pytest.param("mode = 4", "form", id="mode of a pickle"),
    pytest.param("mode = 2, filename = '../../etc/passwd'", "form", id="mode of a file"),
    pytest.param("raw = 0", "form", id="key of a pickle"),
    pytest.param("key = 'other'", "checksum", id="other key"),
    pytest.param("key = CAST(X'ff00' AS TEXT)", "checksum", id="no text"),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGE)
def test_a_damaged_entry_is_named_and_moved_away(tmp_path: Path, change: str, reason: str):
    """With key and reason; every bit of it is in the file, and it can be bought again."""
    filled(tmp_path, 30)
    sql(tmp_path, f"UPDATE Cache SET {change} WHERE key = ?", key(4))
    with opened(tmp_path) as cache:
        looked: list[DamagedEntry] = []
        found = verify(cache, on_damage=looked.append)
        assert (found.entries, found.damaged, found.unrepaired) == (30, 1, True)
        assert "--repair" in found.text()
        assert len(looked) == 1
        assert reason in looked[0].reason
        repaired = verify(cache, repair=True)
        assert repaired.set_aside == tmp_path / "damaged-1.jsonl"
        assert not repaired.is_clean
        assert not repaired.unrepaired
        assert verify(cache).is_clean
        assert cache.stats().entries == 29
        cache.put_many({key(4): entry(4)})
        assert cache.get_many(list(entries(30))) == entries(30)
    assert (tmp_path / "damaged-1.jsonl").stat().st_mode & 0o777 == 0o600
    (line,) = (tmp_path / "damaged-1.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == looked[0].reason


def test_what_is_moved_away_has_every_bit(tmp_path: Path):
    """Whoever wants to rescue an answer by hand finds its bytes."""
    filled(tmp_path, 3)
    broken = encode_entry(key(1), entry(1)).replace(b"Claim", b"Cl\xff\x00m")
    sql(tmp_path, "UPDATE Cache SET value = ? WHERE key = ?", broken, key(1))
    with opened(tmp_path) as cache:
        verify(cache, repair=True)
    line = json.loads((tmp_path / "damaged-1.jsonl").read_text())
    assert line["key"] == key(1)
    assert base64.b64decode(line["base64"]) == broken
    assert "\ufffd" in line["value"]


@pytest.mark.parametrize("seed", range(40))
def test_any_changed_byte_of_a_value_is_found(tmp_path: Path, seed: int):
    """By `verify` and by `get_many`, wherever in the value it is."""
    dice = random.Random(seed)
    filled(tmp_path, 10)
    number = dice.randrange(10)
    value = bytearray(encode_entry(key(number), entry(number)))
    value[dice.randrange(len(value))] ^= dice.randrange(1, 256)
    sql(tmp_path, "UPDATE Cache SET value = ? WHERE key = ?", bytes(value), key(number))
    with opened(tmp_path) as cache:
        named: list[DamagedEntry] = []
        verify(cache, on_damage=named.append)
        assert [damaged.key for damaged in named] == [key(number)]
        assert cache.get_many(list(entries(10))).keys() == entries(10).keys() - {key(number)}


def test_many_damaged_entries_are_moved_in_groups(tmp_path: Path):
    """More than one group; the sound ones in between stay."""
    filled(tmp_path, 700)
    sql(tmp_path, "UPDATE Cache SET value = X'00' WHERE rowid % 2 = 0")
    with opened(tmp_path) as cache:
        found = verify(cache, repair=True)
        assert (found.entries, found.damaged) == (700, 350)
        assert cache.stats().entries == 350
        assert verify(cache).is_clean
    assert len((tmp_path / "damaged-1.jsonl").read_text().splitlines()) == 350


def test_a_second_repair_writes_a_second_file(tmp_path: Path):
    """What was set aside earlier is never overwritten."""
    filled(tmp_path, 5)
    for number in (1, 2):
        sql(tmp_path, "UPDATE Cache SET value = X'00' WHERE key = ?", key(number))
        with opened(tmp_path) as cache:
            assert verify(cache, repair=True).set_aside == tmp_path / f"damaged-{number}.jsonl"


def test_an_answer_bought_again_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A run that puts the answer between the look and the repair loses nothing."""
    filled(tmp_path, 3)
    sql(tmp_path, "UPDATE Cache SET value = X'00' WHERE key = ?", key(1))
    with opened(tmp_path) as cache, opened(tmp_path) as run:
        verify(cache, repair=True, on_damage=lambda _: run.put_many({key(1): entry(1)}))
        assert cache.get_many(list(entries(3))) == entries(3)


def test_a_wrong_counter_is_found_and_put_right(tmp_path: Path):
    """`stats` shows it, so it must be true."""
    filled(tmp_path, 5)
    sql(tmp_path, "UPDATE Settings SET value = 99 WHERE key = 'count'")
    with opened(tmp_path) as cache:
        assert verify(cache).problems == ["its counter says 99 entries where there are 5"]
        assert cache.stats().entries == 99
        verify(cache, repair=True)
        assert cache.stats().entries == 5
        assert verify(cache).is_clean


def index_page(database: Path) -> int:
    """A page of the index of keys: it has a key, but no answer."""
    content = database.read_bytes()
    for number in range(1, len(content) // 4096):
        page = content[4096 * number : 4096 * (number + 1)]
        if page[0] == 0x0A and key(1).encode()[:8] in page:
            return number
    raise AssertionError("no such page")


@pytest.mark.parametrize("whole", [True, False], ids=["page", "one key of it"])
def test_a_damaged_index_is_found_and_made_anew(tmp_path: Path, whole: bool):
    """Answers that are there but cannot be found are paid for twice: the check sees them."""
    database = filled(tmp_path, 20)
    at = index_page(database) * 4096
    if whole:
        overwrite(database, at, b"\xaa" * 4096)
    else:
        page = database.read_bytes()[at : at + 4096]
        overwrite(database, at + page.index(key(1).encode()[:8]), b"zzzz")
    with opened(tmp_path) as cache:
        found = verify(cache)
        assert found.problems
        assert found.unrepaired
        verify(cache, repair=True)
        assert "cache.db.damaged-1" in cache.notices[0]
        assert verify(cache).entries == 20
        assert cache.get_many(list(entries(20))) == entries(20)


def test_a_damaged_page_does_not_end_the_check(tmp_path: Path):
    """What SQLite cannot walk over is reported, and repaired from the pages that are left."""
    database = filled(tmp_path, 60)
    with opened(tmp_path) as cache:
        for page in range(8, 20):
            overwrite(database, page * 4096, b"\xaa" * 4096)
        found = verify(cache)
        assert any("malformed" in problem for problem in found.problems)
        assert cache.notices == []
        verify(cache, repair=True)
        assert 0 < verify(cache).entries < 60


def test_damage_found_at_opening_is_reported(tmp_path: Path):
    """`cache verify` must not say that all is well after it has just lost something."""
    database = filled(tmp_path, 5)
    overwrite(database, 0, b"garbage")
    with opened(tmp_path) as cache:
        found = verify(cache)
    assert not found.is_clean
    assert not found.unrepaired
    assert found.problems == cache.notices


def test_entries_are_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A walk has a few hundred rows at a time, whatever the cache holds."""
    filled(tmp_path, 50)
    monkeypatch.setattr("claimscore.cache.table._STEP", 7)
    steps: list[int] = []
    with opened(tmp_path) as cache:
        connection = cache._database.connection()
        connection.set_trace_callback(lambda text: steps.append("ORDER BY rowid" in text))
        assert verify(cache).entries == 50
        connection.set_trace_callback(None)
    assert sum(steps) == 50 // 7 + 2


def test_a_cache_in_use_is_checked(tmp_path: Path):
    """Entries that a run puts during the walk are met or not; neither is an error."""
    filled(tmp_path, 600)
    with opened(tmp_path) as cache, opened(tmp_path) as run:
        sql(tmp_path, "UPDATE Cache SET value = X'00' WHERE key = ?", key(0))
        numbers = iter(range(1000, 2000))
        verify(cache, on_damage=lambda _: run.put_many({key(n := next(numbers)): entry(n)}))
        assert isinstance(run, DiskCache)
