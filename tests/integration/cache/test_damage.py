"""Damaged caches in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.cache_samples import filled, sql

N = 60




def test_a_file_cut_off_in_use_does_not_kill_the_process(tmp_path: Path):
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


