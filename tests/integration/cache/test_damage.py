"""Damaged caches in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.cache_samples import filled, sql

N = 60


def set_format(database: Path, value: object) -> None:
    sql(database.parent, "UPDATE Settings SET value = ? WHERE key = 'claimscore'", value)


def test_a_file_cut_off_in_use_does_not_kill_the_process(tmp_path: Path):
    """As `cp old.db cache.db` does. A file that is mapped into memory would (SIGBUS)."""
    code = (
        "import os, pathlib, sys\n"
        "from tests.support.cache_samples import *\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "filled(folder, 300)\n"
        "with opened(folder) as cache:\n"
        "    cache.put_many(entries(1, start=999))\n"
        "    cache.get_many(list(entries(300)))\n"
        "    os.truncate(folder / 'cache.db', 20 * 4096)\n"
        "    cache._use(lambda database: database.select('PRAGMA shrink_memory'))\n"
        "    print(len(cache.get_many(list(entries(300)))), len(cache.notices))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    n_left, n_notices = done.stdout.split()
    assert (done.returncode, int(n_left) > 20, n_notices) == (0, True, "1")


def test_a_database_is_set_aside_once_by_many(tmp_path: Path):
    """Threads and processes that meet the damage at the same time: one of them mends it."""
    set_format(filled(tmp_path / "cache", N), "{}")
    code = (
        "import pathlib, sys\n"
        "from tests.support.cache_samples import *\n"
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
