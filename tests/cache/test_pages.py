"""Answers found in a database's pages, without SQLite's help."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from claimscore.cache.entry import Entry, decode_entry
from claimscore.cache.pages import salvage
from tests.cache.samples import entries, entry, filled, key, opened, overwrite, sql


def saved(database: Path) -> dict[str, Entry | None]:
    rows = [found.row for found in salvage(database) if found.row is not None]
    return {row.key: decode_entry(row.key, row.value) for row in rows}


def test_every_answer_of_a_sound_database_is_found(tmp_path: Path):
    """Short ones and those that go over many pages, and how many there should be."""
    database = filled(tmp_path / "cache", 60)
    assert saved(database) == entries(60)
    assert {found.n_answers for found in salvage(database)} - {None} == {60}


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        pytest.param(0, b"\x00" * 100, id="header"),
        pytest.param(0, b"\xff" * 4096, id="first page"),
        pytest.param(16, b"\x02\x00", id="another page size"),
        pytest.param(16, b"\x00\x01", id="the largest page size"),
        pytest.param(16, b"\x03\x03", id="an impossible page size"),
    ],
)
def test_a_broken_beginning_costs_no_answer(tmp_path: Path, offset: int, data: bytes):
    """Answers do not lie in the first page; what SQLite needs to open a file is not needed."""
    database = filled(tmp_path / "cache", 60)
    overwrite(database, offset, data)
    assert saved(database) == entries(60)


def test_a_broken_page_costs_what_is_on_it(tmp_path: Path):
    """Wherever it is; the answers on other pages are found, and none is wrong."""
    database = filled(tmp_path / "cache", 30)
    intact = database.read_bytes()
    all_there = entries(30)
    for page in range(len(intact) // 4096):
        database.write_bytes(intact)
        overwrite(database, page * 4096, random.Random(page).randbytes(4096))
        found = saved(database)
        assert found.items() <= all_there.items()
        assert len(found) >= 30 - 4  # what fits on a page


def test_a_cut_off_file_gives_what_is_left(tmp_path: Path):
    """Half of the file holds about half of the answers."""
    database = filled(tmp_path / "cache", 60)
    with database.open("r+b") as stream:
        stream.truncate(database.stat().st_size // 2)
    found = saved(database)
    assert found.items() <= entries(60).items()
    assert len(found) > 15


def in_the_log(folder: Path, target: Path) -> Path:
    """A copy of a cache whose last ten answers are only in the write-ahead log."""
    filled(folder, 20)
    with opened(folder) as cache:
        cache.put_many(entries(10, start=20))
        shutil.copytree(folder, target)
    return target / "cache.db"


def test_answers_in_the_write_ahead_log_are_found(tmp_path: Path):
    """What was committed last lies there until SQLite moves it."""
    database = in_the_log(tmp_path / "cache", tmp_path / "copy")
    with contextlib.closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as without:
        assert without.execute("SELECT COUNT(*) FROM Cache").fetchone() == (20,)
    assert saved(database) == entries(30)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda database, log: database.write_bytes(b""), id="database emptied"),
        pytest.param(lambda database, log: database.unlink(), id="database gone"),
        pytest.param(lambda database, log: overwrite(log, 0, b"\xff" * 16), id="header of the log"),
        pytest.param(lambda database, log: overwrite(log, 24, b"\xff" * 8), id="sums of the log"),
    ],
)
def test_the_log_alone_gives_its_answers(tmp_path: Path, damage):
    """Each file is read as far as it goes, whatever became of the other."""
    database = in_the_log(tmp_path / "cache", tmp_path / "copy")
    damage(database, database.with_name("cache.db-wal"))
    assert entries(10, start=20).items() <= saved(database).items()


def test_a_broken_log_hides_no_older_answer(tmp_path: Path):
    """A page that the log gives a wrong version of is read from the database too."""
    database = in_the_log(tmp_path / "cache", tmp_path / "copy")
    log = database.with_name("cache.db-wal")
    for offset in range(32, log.stat().st_size, 24 + 4096):
        overwrite(log, offset + 24, b"\xff" * 4096)
    assert saved(database) == entries(20)


def test_what_an_older_log_left_hides_nothing(tmp_path: Path):
    """SQLite writes a log from its beginning again; behind the new pages lie old ones."""
    folder = tmp_path / "cache"
    filled(folder, 20)
    with opened(folder) as cache:
        cache.put_many(entries(200, start=20))
        cache.read(lambda c: c.execute("PRAGMA wal_checkpoint(FULL)").fetchall())
        cache.put_many(entries(5, start=220))
        shutil.copytree(folder, tmp_path / "copy")
    assert saved(tmp_path / "copy" / "cache.db") == entries(225)


def test_a_length_without_end_is_not_followed(tmp_path: Path):
    """An answer of 2^49 bytes on an overflow page that names itself as the next one."""
    size = b"\x81" + b"\x80" * 6 + b"\x00"  # as SQLite writes 2^49
    least = (4096 - 12) * 32 // 255 - 23
    there = least + (2**49 - least) % 4092
    there = there if there <= 4061 else least
    leaf, overflow = bytearray(4096), bytearray(4096)
    leaf[0], leaf[4], leaf[9] = 0x0D, 1, 10  # a leaf page with one cell, at byte 10
    leaf[10:19] = size + b"\x01"
    leaf[19 + there : 23 + there] = overflow[:4] = (3).to_bytes(4, "big")
    (tmp_path / "cache.db").write_bytes(bytes(4096) + leaf + overflow)
    assert saved(tmp_path / "cache.db") == {}


def test_a_damaged_answer_is_not_found(tmp_path: Path):
    """What does not have its checksum is nobody's answer."""
    database = filled(tmp_path / "cache", 5)
    sql(database.parent, "UPDATE Cache SET value = replace(value, 'Claim', 'claim') WHERE key = ?",
        key(2))  # fmt: skip
    assert saved(database) == {key(n): entry(n) for n in (0, 1, 3, 4)}


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes_are_read_without_an_error(tmp_path: Path, seed: int):
    """Lengths and offsets that are not true lead nowhere, and to an end."""
    dice = random.Random(seed)
    database = in_the_log(tmp_path / "cache", tmp_path / "copy")
    for path in (database, database.with_name("cache.db-wal")):
        size = path.stat().st_size
        for _ in range(200):
            overwrite(path, dice.randrange(size), dice.randbytes(dice.choice((1, 2, 9))))
    assert saved(database).items() <= entries(30).items()
