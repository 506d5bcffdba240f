"""Several processes on one cache, kills at any moment, and folders that refuse."""

import contextlib
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.maintenance import details
from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.file_lock import KeyLocks
from claimscore.types import Completion, Message, Request
from tests.support.cache_samples import answer, answers, filled, key, opened, overwrite
from tests.support.engine_doubles import FakeProvider, completion, make

WRITER = """
import pathlib, sys
from tests.support.cache_samples import *
cache = DiskCache(pathlib.Path(sys.argv[1]))
start, size = int(sys.argv[2]), int(sys.argv[3])
for number in range(start, start + 100_000, size):
    cache.put_many(answers(size, start=number))
    print(number, flush=True)
"""


def writer(folder: Path, start: int, size: int = 5) -> subprocess.Popen[str]:
    """A process that puts groups for ever and tells each one that was kept."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(start), str(size)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_was_acknowledged_survives_twenty_kills(tmp_path: Path):
    """Each process goes on with the cache that the one before left."""
    folder, n_kept = tmp_path / "cache", 0
    for turn in range(20):
        process = writer(folder, start=5 * n_kept)
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(1 + turn % 7)]
        process.kill()
        n_kept += len(acknowledged) + len(process.stdout.readlines())
        process.communicate()
    with opened(folder) as cache:
        kept = cache.get_many(list(answers(5 * n_kept + 50)))
        assert answers(5 * n_kept).items() <= kept.items()
        assert len(kept) % 5 == 0  # a group is there or not
        numbers = details(cache)
        assert (numbers.entries, numbers.damaged) == (len(kept), 0)


def test_processes_write_at_once(tmp_path: Path):
    folder = tmp_path / "cache"
    processes = [writer(folder, start=1_000_000 * number) for number in range(3)]
    starts = []
    for process in processes:
        assert process.stdout is not None
        starts += [int(process.stdout.readline()) for _ in range(12)]
    for process in processes:
        process.kill()
        process.communicate()
    with opened(folder) as cache:
        for start in starts:
            assert cache.get_many(list(answers(5, start))) == answers(5, start)


def test_a_file_that_others_hold_locked_stops_the_run(tmp_path: Path):
    cache = DiskCache(tmp_path, busy_timeout_s=0.05)
    cache.put_many(answers(3))
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert cache.get_many(list(answers(3))) == answers(3)
        with pytest.raises(StoppedEarly, match=r"holds the cache locked"):
            cache.put_many({key(5): answer(5)})
    cache.put_many({key(5): answer(5)})
    cache.close()


def leaf_page(database: Path) -> int:
    """The offset of a page that holds answers."""
    content = database.read_bytes()
    return next(
        at
        for at in range(4096 * 8, len(content), 4096)
        if content[at] == 0x0D and b'{"v":1' in content[at : at + 4096]
    )


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs the program sqlite3")
def test_the_advice_saves_what_can_be_read(tmp_path: Path):
    n = 60
    database = filled(tmp_path / "cache", n)
    overwrite(database, leaf_page(database), b"\xaa" * 4096)
    with opened(tmp_path / "cache") as cache, pytest.raises(ConfigError) as raised:
        details(cache)
    (command,) = re.findall("`(.*)`", str(raised.value))
    subprocess.run(command, shell=True, check=True, cwd=database.parent)
    with opened(tmp_path / "cache") as cache:
        kept = cache.get_many(list(answers(n)))
        assert n - 5 <= len(kept) < n  # at most five of the samples fit on a page
        cache.put_many(answers(n))
        assert cache.get_many(list(answers(n))) == answers(n)
        assert details(cache).damaged == 0


# -- folders that refuse


@contextlib.contextmanager
def files_up_to(n_bytes: int) -> Iterator[None]:
    """A file system that is full when a file has this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_answers_that_do_not_fit_on_the_disk_stop_the_run(tmp_path: Path):
    """The same folder is used again when there is room."""
    with files_up_to(1000), pytest.raises((StoppedEarly, ConfigError)):
        DiskCache(tmp_path)
    with opened(tmp_path) as cache:
        cache.put_many(answers(20))
        with (
            files_up_to((tmp_path / "cache.db-wal").stat().st_size + 20_000),
            pytest.raises(StoppedEarly, match="cannot be used"),
        ):
            cache.put_many(answers(200, start=20))
        assert cache.get_many(list(answers(220))) == answers(20)
        cache.put_many(answers(200, start=20))
        assert cache.get_many(list(answers(220))) == answers(220)


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    """Root may write everywhere, so root becomes another user meanwhile."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    folder = top / "cache"
    before = filled(folder, 3).read_bytes()
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    closed = top / "closed"
    closed.mkdir(0o000)
    try:
        if os.getuid() == 0:
            os.seteuid(65534)
        with pytest.raises(ConfigError, match="attempt to write a readonly database"):
            DiskCache(folder)
        assert (folder / "cache.db").read_bytes() == before
        with pytest.raises(ConfigError, match=r"closed: the cache cannot be used"):
            DiskCache(closed)
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o700)
        closed.chmod(0o700)
        shutil.rmtree(top)


# -- requests in flight

HOLD = """
import sys
from pathlib import Path
from claimscore.file_lock import KeyLocks
locks = KeyLocks(Path(sys.argv[1]))
print(locks.try_lock(sys.argv[2]), flush=True)
sys.stdin.read()
"""


def test_a_lock_on_a_key_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "in-flight"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), key(1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    locks = KeyLocks(path)
    assert not locks.try_lock(key(1))
    assert locks.try_lock(key(2))
    holder.kill()
    holder.communicate()
    assert locks.try_lock(key(1))
    locks.close()
    nowhere = KeyLocks(tmp_path / "none" / "in-flight")  # where nothing can be locked nothing is
    assert nowhere.try_lock(key(1))
    nowhere.unlock(key(1))


@pytest.mark.anyio
async def test_engines_that_ask_the_same_at_the_same_time(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    async def reply(request: Request) -> Completion:
        asked[request.messages[-1].content] += 1
        for _ in range(20):
            await lowlevel.checkpoint()
        return completion(request.messages[-1].content)

    replies: list[list[str]] = []

    async def ask() -> None:
        with opened(tmp_path / "cache") as cache:
            async with make(FakeProvider(reply), cache, max_concurrency=4) as engine:
                requests = [engine.request([Message("user", str(n))]) for n in range(100)]
                outcomes = await engine.answer_all(requests, lambda answer: answer.text)
        replies.append([outcome.value for outcome in outcomes])  # type: ignore[union-attr]

    async with anyio.create_task_group() as engines:
        for _ in range(3):
            engines.start_soon(ask)
    assert asked == {str(n): 1 for n in range(100)}
    assert replies == [[str(n) for n in range(100)]] * 3
