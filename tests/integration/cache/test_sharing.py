"""Several processes on one cache, kills at any moment, and folders that refuse."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimscore.cache.maintenance import details
from claimscore.cache.store import DiskCache
from claimscore.errors import ConfigError, StoppedEarly
from tests.support.cache_samples import entries, entry, filled, key, opened

WRITER = """
import pathlib, sys
from tests.support.cache_samples import *
cache = DiskCache(pathlib.Path(sys.argv[1]))
start, size = int(sys.argv[2]), int(sys.argv[3])
for number in range(start, start + 100_000, size):
    cache.put_many(entries(size, start=number))
    print(number, flush=True)
"""


def writer(folder: Path, start: int, size: int = 5) -> subprocess.Popen[str]:
    """A process that puts groups for ever and tells each one that was kept."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(start), str(size)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("n_groups", [1, 7, 30])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, n_groups: int):
    process = writer(tmp_path / "cache", 0)
    assert process.stdout is not None
    for _ in range(n_groups):
        process.stdout.readline()
    process.kill()
    told = n_groups + len(process.stdout.readlines())
    process.communicate()
    with opened(tmp_path / "cache") as cache:
        kept = cache.get_many(list(entries(5 * told + 50)))
        assert entries(5 * told).items() <= kept.items()
        assert len(kept) % 5 == 0  # a group is there or not
        assert details(cache).entries == len(kept)
        assert cache.notices == []


def test_processes_write_at_once(tmp_path: Path):
    folder = tmp_path / "cache"
    processes = [writer(folder, start=1_000_000 * number) for number in range(3)]
    told = []
    for process in processes:
        assert process.stdout is not None
        told += [int(process.stdout.readline()) for _ in range(12)]
    for process in processes:
        process.kill()
        process.communicate()
    with opened(folder) as cache:
        for start in told:
            assert cache.get_many(list(entries(5, start))) == entries(5, start)
        assert cache.notices == []


def test_a_file_that_others_hold_locked_stops_the_run(tmp_path: Path):
    cache = DiskCache(tmp_path, busy_timeout_s=0.05)
    cache.put_many(entries(3))
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert cache.get_many(list(entries(3))) == entries(3)
        with pytest.raises(StoppedEarly, match=r"held the cache locked for 0\.05 s"):
            cache.put_many({key(5): entry(5)})
    cache.put_many({key(5): entry(5)})
    cache.close()


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
    with opened(tmp_path) as cache:
        cache.put_many(entries(20))
        with (
            files_up_to((tmp_path / "cache.db-wal").stat().st_size + 20_000),
            pytest.raises(StoppedEarly, match="cannot be used"),
        ):
            cache.put_many(entries(200, start=20))
        assert cache.get_many(list(entries(220))) == entries(20)
        cache.put_many(entries(200, start=20))
        assert cache.get_many(list(entries(220))) == entries(220)
        assert cache.notices == []


def test_a_full_disk_at_opening_can_be_taken_up_again(tmp_path: Path):
    with files_up_to(1000), pytest.raises((StoppedEarly, ConfigError)):
        DiskCache(tmp_path / "cache")
    with opened(tmp_path / "cache") as cache:
        cache.put_many(entries(3))
        assert cache.notices == []


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
        with pytest.raises(ConfigError, match=r"cannot be written.*copy with --cache-dir"):
            DiskCache(folder)
        assert (folder / "cache.db").read_bytes() == before
        for use in (DiskCache.is_in, DiskCache):
            with pytest.raises(ConfigError, match=r"closed: the cache cannot be used"):
                use(closed)
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o700)
        closed.chmod(0o700)
        shutil.rmtree(top)
