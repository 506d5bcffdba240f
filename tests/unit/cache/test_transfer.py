"""`export` and `import`: the paid answers as one file, whole and checked."""

import contextlib
import gzip
import json
import random
import tracemalloc
from pathlib import Path

import pytest

from claimscore.cache.maintenance import details, export_answers, export_rows, import_answers
from claimscore.cache.store import DiskCache, NewRow, encode_answer
from claimscore.errors import ConfigError
from tests.support.cache_samples import answer, answers, filled, key, opened, sql

N = 30


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A plain file with `N` answers."""
    filled(tmp_path / "mine", N)
    with opened(tmp_path / "mine") as cache:
        assert export_answers(cache, tmp_path / "answers.jsonl") == (N, 0)
    return tmp_path / "answers.jsonl"


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
def test_a_colleague_gets_every_answer(tmp_path: Path, name: str):
    filled(tmp_path / "mine", 1200)
    sql(tmp_path / "mine", "UPDATE Cache SET tag = 1700000000.25")
    with opened(tmp_path / "mine") as cache:
        assert export_answers(cache, tmp_path / name) == (1200, 0)
    with opened(tmp_path / "theirs") as cache:
        assert import_answers(cache, tmp_path / name) == (1200, 0)
        assert cache.get_many(list(answers(1200))) == answers(1200)
        export_answers(cache, tmp_path / f"again-{name}")
        assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()
        assert import_answers(cache, tmp_path / name) == (0, 1200)


def test_the_file_is_private_and_tells_nothing_else(exported: Path):
    assert exported.stat().st_mode & 0o777 == 0o600
    assert b"mine" not in exported.read_bytes()
    text = exported.read_bytes().decode("utf-8", "surrogatepass")
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0] == {"claimscore": "cache export", "version": 1}
    assert lines[-1] == {"entries": N}
    assert {line["key"] for line in lines[1:-1]} == set(answers(N))
    for name in ("one.gz", "other.gz"):
        with opened(exported.parent / "mine") as cache:
            export_answers(cache, exported.with_name(name))
    packed = exported.with_name("one.gz").read_bytes()
    assert packed == exported.with_name("other.gz").read_bytes()
    assert gzip.decompress(packed) == exported.read_bytes()
    assert b"one" not in packed
    assert packed[4:8] == bytes(4)  # the time that gzip would write


@pytest.mark.parametrize("name", ["new.jsonl", "new.jsonl.gz"])
def test_rows_that_were_kept_become_a_file(tmp_path: Path, name: str):
    rows: list[NewRow] = []
    cache = DiskCache(tmp_path / "mine", on_kept=rows.extend)
    cache.put_many(answers(5))
    cache.put_many(answers(2, start=5))
    assert [row.key for row in rows] == list(answers(7))
    assert export_rows(rows, tmp_path / name) == 7
    export_answers(cache, tmp_path / f"all-{name}")
    assert (tmp_path / f"all-{name}").read_bytes() == (tmp_path / name).read_bytes()
    cache.close()
    imported: list[NewRow] = []
    theirs = DiskCache(tmp_path / "theirs", on_kept=imported.extend)
    assert import_answers(theirs, tmp_path / name) == (7, 0)
    assert theirs.get_many(list(answers(7))) == answers(7)
    assert imported == []  # nothing of it is new to the maker of the file
    theirs.close()


def test_existing_entries_stay(tmp_path: Path, exported: Path):
    with opened(tmp_path / "theirs") as cache:
        cache.put_many({key(1): answer(77), key(2): answer(88)})
        sql(cache.folder, "UPDATE Cache SET value = X'00' WHERE key = ?", key(2))
        assert import_answers(cache, exported) == (N - 1, 1)
        assert cache.get_many([key(1), key(2)]) == {key(1): answer(77), key(2): answer(2)}


@pytest.mark.parametrize("seed", range(12))
def test_a_changed_byte_ends_the_import(tmp_path: Path, exported: Path, seed: int):
    dice = random.Random(seed)
    data = bytearray(exported.read_bytes())
    place = dice.randrange(data.index(b"\n") + 1, data.rindex(b"{") - 1)
    line = data[:place].count(b"\n") + 1
    data[place] ^= dice.randrange(1, 256)
    exported.write_bytes(data)
    with opened(tmp_path / "theirs") as cache:
        with contextlib.suppress(ConfigError):  # a digit of a time is no answer's
            import_answers(cache, exported)
            line = N + 2
        assert cache.get_many(list(answers(N))) == answers(line - 2)


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
def test_a_file_that_was_cut_off_gives_what_is_left(tmp_path: Path, exported: Path, name: str):
    data = exported.read_bytes()
    path = tmp_path / name
    path.write_bytes((gzip.compress(data) if name.endswith("gz") else data)[: -len(data) // 40])
    with opened(tmp_path / "theirs") as cache:
        with pytest.raises(ConfigError, match="the answers before it are here now"):
            import_answers(cache, path)
        assert 0 < details(cache).entries < N
    lines = data.splitlines(keepends=True)
    exported.write_bytes(b"".join(lines[:5] + lines[6:]))  # a line is missing
    with opened(tmp_path / "another") as cache:
        with pytest.raises(ConfigError, match=f"damaged or missing; .*{N - 1} new"):
            import_answers(cache, exported)
        assert details(cache).entries == N - 1


@pytest.mark.parametrize(
    "first_line",
    [
        *(b'{"claimscore": "cache export", "version": %d}' % version for version in (0, 2)),
        *(b'{"claimscore": "cache export"}', b'{"claimscore": "something", "version": 1}'),
        *(b"[]", b"", b"\x00\x01\x02", b"\x1f\x8b" + b"x" * 99),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, exported: Path, first_line: bytes):
    lines = exported.read_bytes().splitlines(keepends=True)
    with opened(tmp_path / "theirs") as cache:
        for rest in ([], [b"\n", *lines[1:]]):
            exported.write_bytes(b"".join((first_line, *rest)))
            with pytest.raises(ConfigError, match="not a file"):
                import_answers(cache, exported)
        assert details(cache).entries == 0


def sealed_line(name: str, value: bytes, stored: str = "1.0") -> bytes:
    return b'{"key":"%b","stored":%b,"value":%b}\n' % (name.encode(), stored.encode(), value)


@pytest.mark.parametrize(
    "line",
    [
        sealed_line("short", encode_answer("short", answer(1))),
        sealed_line(key(1), encode_answer(key(2), answer(1))),
        sealed_line(key(1), b"{}"),
        sealed_line(key(1), encode_answer(key(1), answer(1)), "NaN"),
        sealed_line(key(1), encode_answer(key(1), answer(1)), "-5"),
        b"\n",
        b'{"entries": x}\n',
        pytest.param(b"x" * 10_000, id="without an end"),
    ],
)
def test_a_crafted_line_is_refused(
    tmp_path: Path, exported: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
):
    """And one without an end does not fill the memory."""
    monkeypatch.setattr("claimscore.cache.maintenance._LONGEST_LINE", 1000)
    lines = exported.read_bytes().splitlines(keepends=True)
    exported.write_bytes(lines[0] + line + b'{"entries": 1}\n')
    with opened(tmp_path / "theirs") as cache, pytest.raises(ConfigError, match="line 2: "):
        import_answers(cache, exported)


def test_a_file_that_grows_when_unpacked_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("claimscore.cache.maintenance._LONGEST_LINE", 100_000)
    bomb = tmp_path / "bomb.gz"
    header = b'{"claimscore": "cache export", "version": 1}\n'
    bomb.write_bytes(gzip.compress(header + b"x" * 20_000_000, 1))
    with opened(tmp_path / "theirs") as cache:
        tracemalloc.start()
        with pytest.raises(ConfigError, match="line"):
            import_answers(cache, bomb)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()
