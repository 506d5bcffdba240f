"""The store of paid answers: one contract for both caches, and the dangers of the disk."""

import contextlib
import os
import pickle  # noqa: TID251 - only to plant what must never be loaded
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import diskcache
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.cache.maintenance import details, prune
from claimscore.cache.store import (
    Cache,
    DiskCache,
    MemoryCache,
    decode_answer,
    encode_answer,
    framed,
)
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.types import Completion, TokenLogprob, Usage
from tests.support.cache_samples import answer, answers, filled, key, opened, overwrite, sql

ANSWER = Completion('{"claims": ["Größe"]}', "m", "stop", Usage(12, 7))
OTHER = Completion("", "m", "length")
N = 60
STOPS = (ConfigError, StoppedEarly)


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


def test_what_was_put_is_got(cache: Cache):
    cache.put_many({"a": ANSWER, "b": OTHER})
    assert cache.get_many(["b", "c", "a"]) == {"a": ANSWER, "b": OTHER}
    cache.put_many({"b": ANSWER})
    assert cache.get_many(["b"]) == {"b": ANSWER}


# -- the form of an answer

any_text = st.text(st.characters(codec=None))
log_probabilities = st.floats(max_value=0, allow_infinity=False)
places = st.builds(
    TokenLogprob,
    any_text,
    log_probabilities,
    st.lists(st.tuples(any_text, log_probabilities), max_size=3).map(tuple),
)
any_answer = st.builds(
    Completion,
    any_text,
    any_text,
    any_text,
    st.builds(Usage, *5 * [st.none() | st.integers(0, 2**62)], service_tier=st.text()),
    logprobs=st.none() | st.lists(places, max_size=3).map(tuple),
)


@given(any_text, any_answer)
def test_what_was_encoded_is_decoded(name: str, any_completion: Completion):
    name = name.encode("utf-8", "replace").decode()
    assert decode_answer(name, encode_answer(name, any_completion)) == any_completion


def test_the_stored_form_is_fixed():
    body = (
        b'{"completion":{"finish_reason":"stop","model":"m","text":"{\\"claims\\": '
        b'[\\"Gr\xc3\xb6\xc3\x9fe\\"]}","usage":{"completion_tokens":7,"prompt_tokens":12}}'
    )
    assert encode_answer("key", ANSWER) == (
        b'{"v":1,"sum":"' + encode_answer("key", ANSWER)[14:30] + b'","entry":' + body + b"}}"
    )
    earlier = b'{"v":1,"sum":"faee3a8a25c6f691","entry":' + body + b',"rejected":null}}'
    assert decode_answer("key", earlier) == ANSWER  # exports of earlier versions


@pytest.mark.parametrize("change", [0x01, 0x20, 0x80, 0xFF])
def test_one_changed_byte_is_noticed(change: int):
    intact = encode_answer("key", ANSWER)
    for position in range(len(intact)):
        data = bytearray(intact)
        data[position] ^= change
        assert decode_answer("key", bytes(data)) is None, position


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[1]", b"{}", b"{broken", b'"\xff"', b'{"completion":{"text":"a"}}'),
        pytest.param(b"[" * 100_000, id="nested without end"),
    ],
)
def test_a_right_checksum_over_something_else_is_no_answer(body: bytes):
    assert decode_answer("key", framed("key", body)) is None


# -- rows that are not ours


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("mode", [1, 4, 2, 3], ids=["raw", "pickle", "binary file", "text file"])
@pytest.mark.parametrize("raw", [0, 1])
def test_a_planted_row_is_neither_unpickled_nor_a_file(tmp_path: Path, mode: int, raw: int):
    run, victim = tmp_path / "run", tmp_path / "victim"
    victim.touch()
    payload = pickle.dumps(Payload(run))
    filled(tmp_path / "cache", 1)
    sql(
        tmp_path / "cache",
        "INSERT INTO Cache (key, raw, store_time, tag, mode, value, filename) "
        "VALUES (?, ?, 1, 1.0, ?, ?, ?)",
        "a" if raw else payload, raw, mode, payload, "../victim",
    )  # fmt: skip
    with opened(tmp_path / "cache") as cache:
        assert cache.get_many(["a"]) == {}
        with contextlib.suppress(ConfigError):  # a row with a file is damage
            details(cache)
            prune(cache, 0.0, now=2.0)
        cache.put_many({"a": ANSWER})
        assert cache.get_many(["a"]) == {"a": ANSWER}
    assert victim.exists()
    assert not run.exists()


def test_nothing_is_ever_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something is pickled")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    filled(tmp_path, 2)
    sql(tmp_path, "UPDATE Cache SET mode = 4 WHERE key = ?", key(1))
    with opened(tmp_path) as cache:
        assert details(cache).damaged == 1
        assert cache.get_many([key(0)]) == answers(1)
        assert prune(cache, -1e12) == 2


def test_diskcache_reads_what_we_write(disk: DiskCache):
    disk.put_many({str(number): ANSWER for number in range(20)})
    disk.close()
    with diskcache.Cache(str(disk.folder)) as plain:
        assert plain.get("3") == encode_answer("3", ANSWER)
        assert len(plain) == 20
        assert plain.eviction_policy == "none"


DAMAGE = [
    "value = CAST(replace(value, '4', '5') AS BLOB)",
    "value = 'text'",
    "value = substr(value, 1, 100)",
    "value = NULL",
    "mode = 4",
    "raw = 0",
    "key = 'other'",
]


@pytest.mark.parametrize("change", DAMAGE)
def test_a_damaged_answer_is_named_and_bought_again(tmp_path: Path, change: str):
    filled(tmp_path, 30)
    sql(tmp_path, f"UPDATE Cache SET {change} WHERE key = ?", key(4))
    notices: list[str] = []
    with opened(tmp_path, notices.append) as cache:
        damaged: list[str] = []
        assert details(cache, damaged.append).entries == 30
        assert len(damaged) == 1
        for _ in range(2):
            stored = cache.get_many([*answers(30), "other"])
            assert stored == {name: one for name, one in answers(30).items() if name != key(4)}
        assert len(notices) == (change != "raw = 0")  # that row has no such key
        cache.put_many({key(4): answer(4)})
        assert cache.get_many(list(answers(30))) == answers(30)


# -- folders and files


def test_a_new_folder_is_private(tmp_path: Path):
    with opened(tmp_path / "parent" / "cache") as cache:
        cache.put_many({"a": ANSWER})
        assert cache.folder.stat().st_mode & 0o777 == 0o700
        for path in cache.folder.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_the_open_file_is_not_opened_again(disk: DiskCache, monkeypatch: pytest.MonkeyPatch):
    """Closing any other handle of it would drop SQLite's locks in this process."""
    names: list[str] = []
    plain = os.open

    def noting(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_EXCL == 0:
            names.append(Path(path).name)
        return plain(path, flags, mode)

    monkeypatch.setattr(os, "open", noting)
    DiskCache(disk.folder).close()
    assert names == ["cache.db.in-flight"]


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE bookmarks (url TEXT)"],
        [
            "CREATE TABLE Cache (key, value)",
            "CREATE TRIGGER t AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
        ],
        ["CREATE TABLE Settings (key, value)", "PRAGMA user_version = 1"],
    ],
)
def test_a_file_of_another_maker_is_left_alone(tmp_path: Path, statements: list[str]):
    for statement in statements:
        sql(tmp_path, statement)
    before = (tmp_path / "cache.db").read_bytes()
    with pytest.raises(ConfigError, match=r"not a cache of this version.*`cache export`"):
        DiskCache(tmp_path)
    assert (tmp_path / "cache.db").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/cache: .*--cache-dir"):
        DiskCache(tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        pytest.param(lambda db: overwrite(db, 0, bytes(4096)), "not a database", id="first page"),
        pytest.param(lambda db: overwrite(db, 44, b"\0\0\0\x09"), "format", id="schema format"),
        pytest.param(lambda db: overwrite(db, 100, b"\x05" * 900), "malformed", id="schema"),
        pytest.param(lambda db: db.write_bytes(b"text" * 999), "not a database", id="text"),
        pytest.param(lambda db: db.write_bytes(b""), "emptied", id="emptied"),
    ],
)
def test_a_damaged_file_is_refused_as_it_is(
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
    folder = tmp_path / "cache"
    filled(folder, 3)
    with opened(folder) as cache:
        cache.put_many({key(3): answer(3)})
        shutil.rmtree(folder)
        if replaced:
            filled(folder, 1)
        for use in (lambda: cache.put_many({key(9): answer(9)}), lambda: cache.get_many([])):
            with pytest.raises(StoppedEarly, match="removed or replaced"):
                use()
    with opened(folder) as cache:
        cache.put_many({key(9): answer(9)})
        assert set(cache.get_many(list(answers(10)))) == {key(9), *answers(int(replaced))}


# -- any bytes


def scratch(path: Path, dice: random.Random, n_runs: int) -> None:
    """Overwrite random places with random bytes."""
    size = path.stat().st_size
    for _ in range(n_runs):
        overwrite(path, dice.randrange(size), dice.randbytes(dice.choice((1, 1, 8, 100, 5000))))


def use(cache: DiskCache) -> None:
    """Only right answers, and what was put is there."""
    assert cache.get_many(list(answers(N))).items() <= answers(N).items()
    cache.put_many({key(N): answer(N)})
    assert cache.get_many([key(N)]) == {key(N): answer(N)}


@pytest.mark.parametrize("seed", range(48))
def test_any_damage(tmp_path: Path, seed: int):
    """Before the cache is opened, or while it is in use."""
    dice, folder = random.Random(seed), tmp_path / "cache"
    filled(folder, N - 10)
    with opened(folder) as cache:
        cache.put_many(answers(10, start=N - 10))
        shutil.copytree(folder, tmp_path / "copy")  # with its write-ahead log
    database = tmp_path / "copy" / "cache.db"
    if seed % 2:
        files = (database, database, database.with_suffix(".db-wal"))
        scratch(dice.choice(files), dice, 1 + seed // 8)
    with contextlib.suppress(*STOPS if seed % 2 else ()), opened(tmp_path / "copy") as cache:
        cache.get_many([key(1)])
        if seed % 8 == 0:
            os.truncate(database, dice.randrange(database.stat().st_size))
        elif seed % 2 == 0:
            scratch(database, dice, 1 + seed // 8)
        with contextlib.suppress(StoppedEarly):
            use(cache)
        with contextlib.suppress(*STOPS):
            details(cache)
            prune(cache, -1e12)
