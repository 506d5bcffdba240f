"""A damaged database: refused as it is, in a line that says how to rescue its answers."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError, StoppedEarly
from tests.support.cache_samples import entries, entry, filled, key, opened, overwrite, sql

N = 60


def set_format(database: Path, value: object) -> None:
    sql(database.parent, "UPDATE Settings SET value = ? WHERE key = 'claimscore'", value)


OPENING = [
    pytest.param(lambda db: overwrite(db, 0, b"garbage"), "not a database", id="magic"),
    pytest.param(lambda db: overwrite(db, 0, bytes(4096)), "not a database", id="first page"),
    pytest.param(lambda db: overwrite(db, 44, b"\0\0\0\x09"), "format", id="schema format"),
    pytest.param(lambda db: overwrite(db, 100, b"\x05" * 900), "malformed", id="schema"),
    pytest.param(lambda db: db.write_bytes(b""), "emptied", id="emptied"),
    pytest.param(lambda db: db.write_bytes(b"text" * 999), "not a database", id="text"),
    pytest.param(lambda db: set_format(db, "{}"), "format cannot be read", id="format"),
    pytest.param(lambda db: set_format(db, None), "format cannot be read", id="no format"),
]


@pytest.mark.parametrize(("damage", "why"), OPENING)
def test_a_damaged_file_is_refused_at_opening(
    tmp_path: Path, damage: Callable[[Path], None], why: str
):
    database = filled(tmp_path, N)
    damage(database)
    damaged = database.read_bytes()
    with pytest.raises(ConfigError, match=rf"cache\.db is damaged \(.*{why}") as raised:
        DiskCache(tmp_path)
    assert "\n" not in str(raised.value)
    assert database.read_bytes() == damaged


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_cache_that_is_moved_away_in_use_stops_and_begins_anew(tmp_path: Path, replaced: bool):
    filled(tmp_path, 3)
    with opened(tmp_path) as cache:
        cache.put_many({key(3): entry(3)})
        (tmp_path / "cache.db").unlink()
        if replaced:
            filled(tmp_path, 1)
        for use in (lambda: cache.put_many({key(9): entry(9)}), lambda: cache.get_many([])):
            with pytest.raises(StoppedEarly, match="removed or replaced"):
                use()
    with opened(tmp_path) as cache:
        cache.put_many({key(9): entry(9)})
        assert set(cache.get_many(list(entries(10)))) == {key(9), *entries(int(replaced))}


# -- any bytes


def scratch(path: Path, dice: random.Random, n_runs: int) -> None:
    """Overwrite random places with random bytes."""
    size = path.stat().st_size
    for _ in range(n_runs):
        overwrite(path, dice.randrange(size), dice.randbytes(dice.choice((1, 1, 8, 100, 5000))))


def use(cache: DiskCache) -> None:
    """Only right answers, and what was put is there."""
    assert cache.get_many(list(entries(N))).items() <= entries(N).items()
    cache.put_many({key(N): entry(N)})
    assert cache.get_many([key(N)]) == {key(N): entry(N)}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "cache"
    filled(folder, N - 10)
    with opened(folder) as cache:
        cache.put_many(entries(10, start=N - 10))
        shutil.copytree(folder, folder.with_name("copy"))  # with its write-ahead log
    return folder.with_name("copy")


@pytest.mark.parametrize("seed", range(24))
def test_any_damage_before_opening(tmp_path: Path, sound: Path, seed: int):
    dice = random.Random(seed)
    folder = tmp_path / "cache"
    shutil.copytree(sound, folder)
    scratch(folder / dice.choice(("cache.db", "cache.db", "cache.db-wal")), dice, 1 + seed // 4)
    with contextlib.suppress(ConfigError, StoppedEarly), opened(folder) as cache:
        use(cache)


@pytest.mark.parametrize("seed", range(24))
def test_any_damage_in_use(tmp_path: Path, sound: Path, seed: int):
    dice = random.Random(1000 + seed)
    folder = tmp_path / "cache"
    shutil.copytree(sound, folder)
    with opened(folder) as cache:
        cache.get_many([key(1)])
        database = folder / "cache.db"
        if seed % 4 == 0:
            os.truncate(database, dice.randrange(database.stat().st_size))
        else:
            scratch(database, dice, 1 + seed // 4)
        with contextlib.suppress(StoppedEarly):
            use(cache)
