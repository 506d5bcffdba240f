"""A damaged database: noticed, said, set aside at the next opening, and what can be read saved."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from claimscore.cache.database import Database
from claimscore.cache.maintenance import details
from claimscore.cache.store import DiskCache
from claimscore.errors import ClaimscoreError, StoppedEarly
from tests.support.cache_samples import entries, entry, filled, key, opened, overwrite, sql

N = 60


def set_format(database: Path, value: object) -> None:
    sql(database.parent, "UPDATE Settings SET value = ? WHERE key = 'claimscore'", value)


OPENING = [
    # SQLite reads nothing of a file whose first page is gone
    pytest.param(lambda db: overwrite(db, 0, b"garbage"), "not a database", False, id="magic"),
    pytest.param(lambda db: overwrite(db, 44, b"\0\0\0\x09"), "format", False, id="schema format"),
    pytest.param(lambda db: overwrite(db, 100, b"\x05" * 900), "malformed", False, id="schema"),
    pytest.param(lambda db: db.write_bytes(b""), "emptied", False, id="emptied"),
    pytest.param(lambda db: db.write_bytes(b"text" * 999), "not a database", False, id="text"),
    # the rows are not touched
    pytest.param(lambda db: set_format(db, "{}"), "format cannot be read", True, id="format"),
    pytest.param(lambda db: set_format(db, None), "format cannot be read", True, id="no format"),
]


@pytest.mark.parametrize(("damage", "why", "rows_are_there"), OPENING)
def test_a_damaged_file_is_set_aside_at_opening(
    tmp_path: Path, damage: Callable[[Path], None], why: str, rows_are_there: bool
):
    database = filled(tmp_path / "cache", N)
    damage(database)
    damaged = database.read_bytes()
    heard: list[str] = []
    cache = DiskCache(tmp_path / "cache", on_notice=heard.append)
    assert (tmp_path / "cache" / "cache.db.damaged-1").read_bytes() == damaged
    (notice,) = cache.notices
    assert heard == [notice] == cache.recoveries
    assert why in notice
    assert "cache.db.damaged-1" in notice
    expected = entries(N) if rows_are_there else {}
    losses = "none is known to be lost" if rows_are_there else "how many are lost is not known"
    assert f"{len(expected):,} answers were saved, {losses}" in notice
    assert cache.get_many(list(entries(N))) == expected
    cache.put_many(entries(N))
    assert details(cache).entries == N
    cache.close()
    with opened(tmp_path / "cache") as again:
        assert again.get_many(list(entries(N))) == entries(N)
        assert again.notices == []


def damage_pages(database: Path, pages: Iterable[int]) -> None:
    for page in pages:
        overwrite(database, page * 4096, b"\xaa" * 4096)


def leaf_pages(database: Path) -> list[int]:
    """The pages that hold rows of the cache, more than one."""
    pages = range(1, database.stat().st_size // 4096)
    content = database.read_bytes()
    return [
        number
        for number in pages
        if content[number * 4096] == 0x0D and b'{"v":1' in content[number * 4096 :][:4096]
    ]


@pytest.mark.parametrize("which", [[0], [1, 2], [-1], [0, 4, 5, -1]], ids=str)
def test_what_is_lost_is_counted(tmp_path: Path, which: list[int]):
    database = filled(tmp_path / "cache", N)
    leaves = leaf_pages(database)
    damage_pages(database, [leaves[n] for n in which])
    with opened(tmp_path / "cache") as cache:
        cache.recover("for a test")
        kept = cache.get_many(list(entries(N)))
        n_lost = N - len(kept)
        assert kept.items() <= entries(N).items()
        assert 0 < n_lost <= 5 * len(which)  # at most five of the samples fit on a page
        assert f"{len(kept)} answers were saved, about {n_lost} are lost" in cache.notices[0]


def test_the_write_ahead_log_goes_along(tmp_path: Path):
    filled(tmp_path, N)
    with opened(tmp_path) as cache, opened(tmp_path) as other:
        other.put_many(entries(N, start=N))
        cache.recover("for a test")
        assert cache.get_many(list(entries(2 * N))) == entries(2 * N)
    assert (tmp_path / "cache.db.damaged-1-wal").stat().st_size > 0


# -- what must not be taken for damage


def test_a_cache_removed_by_hand_stops_and_begins_anew(tmp_path: Path):
    with opened(tmp_path) as cache:
        cache.put_many(entries(3))
        (tmp_path / "cache.db").unlink()
        with pytest.raises(StoppedEarly, match="removed or replaced"):
            cache.put_many({key(9): entry(9)})
    with opened(tmp_path) as cache:
        cache.put_many({key(9): entry(9)})
        assert cache.get_many(list(entries(10))) == {key(9): entry(9)}
        assert cache.notices == []


# -- several at once


def test_another_process_at_work_stops_when_the_file_is_replaced(tmp_path: Path):
    filled(tmp_path, N)
    with opened(tmp_path) as one, opened(tmp_path) as other:
        other.put_many({key(100): entry(100)})
        one.recover("for a test")
        for use in (lambda: other.put_many({key(101): entry(101)}), lambda: other.get_many([])):
            with pytest.raises(StoppedEarly, match="removed or replaced"):
                use()
        assert len(one.get_many(list(entries(103)))) == N + 1


@pytest.mark.parametrize("step", range(6))
def test_a_recovery_survives_a_kill_between_its_steps(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
):
    filled(tmp_path, N)
    n_steps = 0

    class Killed(BaseException):
        pass

    def counting(function):
        def wrapped(*arguments, **options):
            nonlocal n_steps
            n_steps += 1
            if n_steps > step:
                raise Killed
            return function(*arguments, **options)

        return wrapped

    with opened(tmp_path) as killed, monkeypatch.context() as patched:
        killed.put_many(entries(N, start=N))  # in the log
        for name in ("rename", "replace", "unlink"):
            patched.setattr(Path, name, counting(getattr(Path, name)))
        with contextlib.suppress(Killed):
            killed.recover("for a test")
    with opened(tmp_path) as cache:
        assert cache.get_many(list(entries(2 * N))) == entries(2 * N)
        assert not (tmp_path / "cache.db.new").exists()
        cache.recover("what the killed one left is not in the way")
    assert n_steps == step + 1 or step > 3  # there are no more steps


# -- any bytes

SEEDS = range(24)


def scratch(path: Path, dice: random.Random, n_runs: int) -> None:
    """Overwrite random places with random bytes."""
    size = path.stat().st_size
    for _ in range(n_runs):
        overwrite(path, dice.randrange(size), dice.randbytes(dice.choice((1, 1, 8, 100, 5000))))


def use_and_check(folder: Path) -> None:
    """Calls after the damage: each may stop and leave the recovery to the next one."""
    for _ in range(4):
        with opened(folder) as cache, contextlib.suppress(StoppedEarly):
            found = cache.get_many(list(entries(N + 5)))
            assert found.items() <= entries(N + 5).items()
            cache.put_many({k: e for k, e in entries(N + 5).items() if k not in found})
    with opened(folder) as cache:
        assert cache.get_many(list(entries(N + 5))) == entries(N + 5)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "cache"
    filled(folder, N - 10)
    with opened(folder) as cache:
        cache.put_many(entries(10, start=N - 10))
        shutil.copytree(folder, folder.with_name("copy"))  # with its write-ahead log
    return folder.with_name("copy")


@pytest.mark.parametrize("seed", SEEDS)
def test_any_damage_before_opening(tmp_path: Path, sound: Path, seed: int):
    dice = random.Random(seed)
    folder = tmp_path / "cache"
    shutil.copytree(sound, folder)
    scratch(folder / dice.choice(("cache.db", "cache.db", "cache.db-wal")), dice, 1 + seed // 4)
    use_and_check(folder)


@pytest.mark.parametrize("seed", SEEDS)
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
            found = cache.get_many(list(entries(N)))
            assert found.items() <= entries(N).items()
            cache.put_many({key(100): entry(100)})
            assert cache.get_many([key(100)])
    use_and_check(folder)


def test_errors_are_ours_where_nothing_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    database = filled(tmp_path, 3)
    set_format(database, "{}")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Database, "put", full)
    with pytest.raises(StoppedEarly, match="full") as raised:
        DiskCache(tmp_path)
    assert isinstance(raised.value, ClaimscoreError)
    monkeypatch.undo()
    with opened(tmp_path) as cache:
        assert cache.get_many(list(entries(3))) == entries(3)
