"""A damaged database: noticed, said, set aside, and what can be read of it saved."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.cache import table
from claimscore.cache.rescue import damage_in, finish_rescue
from claimscore.cache.store import DiskCache
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from tests.cache.samples import entries, entry, filled, key, opened, overwrite, sql

N = 60


def cut(database: Path, share: float) -> None:
    with database.open("r+b") as stream:
        stream.truncate(int(database.stat().st_size * share))


def schema_page(database: Path, old: bytes, new: bytes) -> None:
    """A change in the page that names the tables."""
    page = database.read_bytes()[:4096]
    assert old in page
    overwrite(database, 0, page.replace(old, new))


HEADER = [
    pytest.param(lambda db: overwrite(db, 0, b"\x00" * 100), "not a database", id="header zeroed"),
    pytest.param(lambda db: overwrite(db, 0, b"garbage"), "not a database", id="magic"),
    pytest.param(lambda db: overwrite(db, 18, b"\x09"), "cannot be written", id="write version"),
    pytest.param(lambda db: overwrite(db, 44, b"\x00\x00\x00\x09"), "format", id="schema format"),
    pytest.param(lambda db: overwrite(db, 100, b"\x05" * 900), "malformed", id="schema page"),
    pytest.param(lambda db: schema_page(db, b" mode I", b" mude I"), "tables", id="column"),
    pytest.param(lambda db: schema_page(db, b"TABLE Cache", b"TABLE Cachy"), "", id="table"),
    pytest.param(lambda db: db.write_bytes(b""), "emptied", id="emptied"),
    pytest.param(lambda db: db.write_bytes(b"not a database" * 999), "not a database", id="text"),
]  # fmt: skip


def test_what_the_file_has_forgotten_is_counted_as_lost(tmp_path: Path):
    """The log cut off while it is in use: the process knows how many answers it has kept."""
    heard: list[str] = []
    cache = DiskCache(tmp_path / "cache", on_notice=heard.append)
    cache.put_many(entries(N))
    database = tmp_path / "cache" / "cache.db"
    os.truncate(database.with_name("cache.db-wal"), 0)
    cache.mend("a page is missing")
    cache.close()
    n_saved = int(heard[0].partition(" answers were saved")[0].split()[-1])
    assert f"about {N - n_saved:,} are lost" in heard[0]


@pytest.mark.parametrize(("damage", "why"), HEADER)
def test_a_damaged_file_is_set_aside_at_opening(
    tmp_path: Path, damage: Callable[[Path], None], why: str
):
    """The run goes on with what could be saved; the damaged file is kept, and it is said."""
    database = filled(tmp_path / "cache", N)
    damage(database)
    damaged = database.read_bytes()
    heard: list[str] = []
    cache = DiskCache(tmp_path / "cache", on_notice=heard.append)
    assert (tmp_path / "cache" / "cache.db.damaged-1").read_bytes() == damaged
    (notice,) = cache.notices
    assert heard == [notice]
    assert why in notice
    assert "cache.db.damaged-1" in notice
    expected = {} if why == "emptied" or len(damaged) == 14 * 999 else entries(N)
    assert f"{len(expected):,} answers were saved" in notice
    assert cache.was_mended
    assert cache.get_many(list(entries(N))) == expected
    cache.put_many(entries(N))
    assert cache.stats().entries == N
    cache.close()
    with opened(tmp_path / "cache") as again:
        assert again.get_many(list(entries(N))) == entries(N)
        assert again.notices == []


def test_what_is_lost_is_counted(tmp_path: Path):
    """Half of the file is gone: how many answers went with it is said."""
    database = filled(tmp_path / "cache", N)
    cut(database, 0.5)
    overwrite(database, 0, b"x" * 16)
    with opened(tmp_path / "cache") as cache:
        n_saved = cache.stats().entries
        assert 0 < n_saved < N
        assert f"{n_saved} answers were saved, about {N - n_saved} are lost" in cache.notices[0]


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda cache: cache.get_many(list(entries(N))), id="get"),
        pytest.param(lambda cache: cache.put_many(entries(N)), id="put"),
    ],
)
def test_damage_in_use_is_mended_in_use(tmp_path: Path, use: Callable[[DiskCache], object]):
    """A page that is found broken in the middle of a run does not end the run."""
    database = filled(tmp_path / "cache", N)
    with opened(tmp_path / "cache") as cache:
        for page in range(3, database.stat().st_size // 4096, 2):  # behind SQLite's back
            overwrite(database, page * 4096, b"\xaa" * 4096)
        use(cache)
        assert "cache.db.damaged-1" in cache.notices[0]
        left = cache.get_many(list(entries(N)))
        assert left.items() <= entries(N).items()
        cache.put_many(entries(N))
        assert cache.get_many(list(entries(N))) == entries(N)
        assert len(cache.notices) == 1


def test_damage_is_set_aside_once_a_time(tmp_path: Path):
    """A second damaged file does not overwrite the first."""
    database = filled(tmp_path / "cache", 3)
    for number in (1, 2):
        overwrite(database, 0, b"garbage")
        opened(tmp_path / "cache").__enter__().close()
        assert (tmp_path / "cache" / f"cache.db.damaged-{number}").exists()


def test_the_write_ahead_log_goes_along(tmp_path: Path):
    """What was committed and only lies in the log is saved, and the log kept with its file."""
    filled(tmp_path, N)
    with opened(tmp_path) as cache:
        cache.put_many(entries(N, start=N))
        cache.mend("for a test")
        assert cache.get_many(list(entries(2 * N))) == entries(2 * N)
    assert (tmp_path / "cache.db.damaged-1-wal").stat().st_size > 0


def test_the_newest_version_of_an_answer_is_saved(tmp_path: Path):
    """Where a page and its older copy are both readable, the later purchase counts."""
    filled(tmp_path, 5)
    with opened(tmp_path) as cache:
        cache.put_many({key(2): entry(77)})
        cache.mend("for a test")
        assert cache.get_many([key(2)]) == {key(2): entry(77)}


# -- what must not be taken for damage


def test_a_foreign_database_is_left_alone(tmp_path: Path):
    """`--cache-dir` of somebody else's program: nothing is renamed, nothing written into it."""
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = (tmp_path / "cache.db").read_bytes()
    with pytest.raises(ConfigError, match="not a cache of claimscore"):
        DiskCache(tmp_path)
    assert (tmp_path / "cache.db").read_bytes() == before
    assert not list(tmp_path.glob("*damaged*"))


def test_a_bug_in_a_statement_is_no_damage(tmp_path: Path):
    """An error of ours that SQLite words like damage must not cost a sound file."""
    filled(tmp_path, 3)
    with opened(tmp_path) as cache:
        with pytest.raises(ConfigError, match="no such table"):
            cache.read(lambda connection: connection.execute("SELECT * FROM nonsense"))
        assert cache.notices == []
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize(
    ("error", "is_damage"),
    [
        (sqlite3.ProgrammingError("Cannot operate on a closed database."), False),
        (sqlite3.OperationalError("Could not decode to UTF-8 column 'key'"), True),
        (OSError(5, "Input/output error"), False),
        (ValueError("x"), False),
    ],
)
def test_errors_without_a_code(error: Exception, is_damage: bool):
    """Only what speaks of the file's content is damage."""
    assert (damage_in(error) is not None) == is_damage


def test_settings_that_diskcache_never_writes_are_damage(tmp_path: Path):
    """diskcache would set SQLite's switches to whatever stands there."""
    filled(tmp_path, 3)
    sql(tmp_path, "INSERT INTO Settings VALUES ('sqlite_writable_schema', 1)")
    with opened(tmp_path) as cache:
        assert "settings" in cache.notices[0]
        assert cache.get_many(list(entries(3))) == entries(3)


def test_a_cache_removed_by_hand_begins_anew(tmp_path: Path):
    """`rm cache.db` while a run uses it: later answers are kept in a new file."""
    with opened(tmp_path) as cache:
        cache.put_many(entries(3))
        (tmp_path / "cache.db").unlink()
        cache.put_many({key(9): entry(9)})
        assert cache.get_many(list(entries(10))) == {key(9): entry(9)}
    with opened(tmp_path) as cache:
        assert list(cache.get_many(list(entries(10)))) == [key(9)]


# -- several at once


def test_who_had_the_damaged_file_open_goes_on_with_the_new_one(tmp_path: Path):
    """What another user of the folder puts after the rescue is in the new file, and stays
    there when they close the old one."""
    database = filled(tmp_path, N)
    with opened(tmp_path) as one:
        with opened(tmp_path) as other:
            other.put_many({key(100): entry(100)})
            one.mend("for a test")
            other.put_many({key(101): entry(101)})
            one.put_many({key(102): entry(102)})
            assert len(other.get_many(list(entries(103)))) == N + 3
        assert len(one.get_many(list(entries(103)))) == N + 3
        assert database.with_name("cache.db-wal").exists()
    with opened(tmp_path) as cache:
        assert len(cache.get_many(list(entries(103)))) == N + 3


def test_damage_that_another_has_mended_is_not_mended_again(tmp_path: Path):
    """Both had met it in the same file; the second finds a new one in its place."""
    filled(tmp_path, N)
    with opened(tmp_path) as one, opened(tmp_path) as other:
        one.mend("for a test")
        other.mend("the same damage")
        assert other.notices == []
        assert other.get_many(list(entries(N))) == entries(N)
    assert [path.name for path in tmp_path.glob("*damaged-?")] == ["cache.db.damaged-1"]


def test_a_file_cut_off_in_use_does_not_kill_the_process(tmp_path: Path):
    """As `cp old.db cache.db` does. A file that is mapped into memory would (SIGBUS)."""
    code = (
        "import os, pathlib, sys\n"
        "from tests.cache.samples import *\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "filled(folder, 300)\n"
        "with opened(folder) as cache:\n"
        "    cache.put_many(entries(1, start=999))\n"
        "    cache.get_many(list(entries(300)))\n"
        "    os.truncate(folder / 'cache.db', 20 * 4096)\n"
        "    cache.read(lambda connection: connection.execute('PRAGMA shrink_memory'))\n"
        "    print(len(cache.get_many(list(entries(300)))), len(cache.notices))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "26 1\n")


def test_a_database_is_set_aside_once_by_many(tmp_path: Path):
    """Threads and processes that meet the damage at the same time: one of them mends it."""
    database = filled(tmp_path / "cache", N)
    overwrite(database, 0, b"garbage")
    code = (
        "import pathlib, sys\n"
        "from tests.cache.samples import *\n"
        "with opened(pathlib.Path(sys.argv[1])) as cache:\n"
        "    sys.stdin.readline()\n"
        "    assert cache.get_many(list(entries(60))) == entries(60), 'lost'\n"
        "    print(len(cache.notices))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "cache")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    notices = [int(process.communicate("go\n")[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum(notices) == 1
    assert [path.name for path in (tmp_path / "cache").glob("*damaged*")] == ["cache.db.damaged-1"]


def test_threads_share_a_rescue(tmp_path: Path):
    """Readers and writers of one cache, as the engine has them, while its file is replaced."""
    database = filled(tmp_path, N)
    with opened(tmp_path) as cache:
        overwrite(database, 3 * 4096, b"\xaa" * (database.stat().st_size - 3 * 4096))
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(20):
                    cache.get_many(list(entries(N)))
                    cache.put_many({key(1000 + 20 * number + turn): entry(number)})
            except BaseException as exc:
                errors.append(exc)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(cache.notices) == 1
        assert len(cache.get_many([key(number) for number in range(1000, 1080)])) == 80


@pytest.mark.parametrize("step", range(6))
def test_a_rescue_survives_a_kill_between_its_steps(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
):
    """Whoever opens the cache next finishes what the killed one began; nothing is lost."""
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
            killed.mend("for a test")
    with opened(tmp_path) as cache:
        assert cache.get_many(list(entries(2 * N))) == entries(2 * N)
        assert not (tmp_path / "rescued").exists()
        cache.mend("what the killed one left is not in the way")
    assert n_steps == min(step + 1, 5)


def test_nothing_to_finish_is_nothing_done(tmp_path: Path):
    """An empty folder of a rescue that was over is taken away."""
    (tmp_path / "rescued").mkdir()
    assert finish_rescue(tmp_path / "cache.db") is None
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_is_always_damaged_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A disk that breaks everything written to it: an error, not an endless rescue."""
    filled(tmp_path, 3)

    def broken(*_: object) -> object:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with opened(tmp_path) as cache:
        monkeypatch.setattr(table, "look_up", broken)
        with pytest.raises(ConfigError, match="damaged"):
            cache.get_many([key(1)])
        assert len(list(tmp_path.glob("cache.db.damaged-?"))) == 2


# -- any bytes

SEEDS = range(24)


def scratch(path: Path, dice: random.Random, n_runs: int) -> None:
    """Overwrite random places with random bytes."""
    size = path.stat().st_size
    for _ in range(n_runs):
        overwrite(path, dice.randrange(size), dice.randbytes(dice.choice((1, 1, 8, 100, 5000))))


def use_and_check(cache: DiskCache) -> None:
    found = cache.get_many(list(entries(N)))
    assert found.items() <= entries(N).items()
    cache.put_many(entries(5, start=N))
    assert cache.get_many(list(entries(5, start=N))) == entries(5, start=N)
    cache.put_many({k: e for k, e in entries(N).items() if k not in found})
    assert cache.get_many(list(entries(N))) == entries(N)


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
    """Never a crash, never a wrong answer; what is missing can be bought and kept."""
    dice = random.Random(seed)
    folder = tmp_path / "cache"
    shutil.copytree(sound, folder)
    scratch(folder / dice.choice(("cache.db", "cache.db", "cache.db-wal")), dice, 1 + seed // 4)
    with opened(folder) as cache:
        use_and_check(cache)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_damage_in_use(tmp_path: Path, sound: Path, seed: int):
    """The same while the file is open; cut off as well."""
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
        use_and_check(cache)


def test_errors_are_ours_where_nothing_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No room for the new file: said as such, and everything stays for the next time."""
    database = filled(tmp_path, 3)
    overwrite(database, 0, b"garbage")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskCache, "_make_database", full)
    with pytest.raises(StoppedEarly, match="full") as raised:
        DiskCache(tmp_path)
    assert isinstance(raised.value, ClaimscoreError)
    monkeypatch.undo()
    with opened(tmp_path) as cache:
        assert cache.get_many(list(entries(3))) == entries(3)
