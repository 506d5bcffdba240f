"""The line that refuses a damaged database has the commands that rescue its answers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from claimscore.cache.maintenance import verify
from claimscore.errors import ConfigError
from tests.support.cache_samples import entries, filled, opened, overwrite

N = 60


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
    database = filled(tmp_path / "cache", N)
    overwrite(database, leaf_page(database), b"\xaa" * 4096)
    with opened(tmp_path / "cache") as cache, pytest.raises(ConfigError) as raised:
        verify(cache)
    (command,) = re.findall("`(.*)`", str(raised.value))
    subprocess.run(command, shell=True, check=True, cwd=database.parent)
    with opened(tmp_path / "cache") as cache:
        kept = cache.get_many(list(entries(N)))
        assert N - 5 <= len(kept) < N  # at most five of the samples fit on a page
        cache.put_many(entries(N))
        assert cache.get_many(list(entries(N))) == entries(N)
        assert verify(cache) == (N, 0)
        assert cache.notices == []
