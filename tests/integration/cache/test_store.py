"""A cache outlives the process that filled it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimscore.cache.base import Cache, MemoryCache
from claimscore.cache.entry import Entry
from claimscore.cache.store import DiskCache
from claimscore.types import Completion, Usage

ENTRY = Entry(Completion('{"claims": ["Größe"]}', "m", "stop", Usage(12, 7)))


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


def test_entries_outlive_the_process(tmp_path: Path):
    """What `put_many` returned for is there after the process has died without closing."""
    code = (
        "import os, pathlib, sys\n"
        "from tests.unit.cache.test_store import DiskCache, ENTRY\n"
        "DiskCache(pathlib.Path(sys.argv[1])).put_many({'a': ENTRY})\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "cache")], check=False)
    cache = DiskCache(tmp_path / "cache")
    assert cache.get_many(["a"]) == {"a": ENTRY}
    cache.close()
