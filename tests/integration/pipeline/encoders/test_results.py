"""Stored results of models, added by several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from claimscore.pipeline.encoders.results import ResultFolder

WRITER = """
import sys, pathlib
import numpy as np
from claimscore.pipeline.encoders.results import ResultFolder
folder = ResultFolder(pathlib.Path(sys.argv[1]), {"kind": "test"}, print)
rng = np.random.default_rng(int(sys.argv[2]))
for _ in range(60):
    keys = rng.integers(0, 2**63, (200, 2), dtype=np.uint64)
    folder.keep(keys, keys.view(np.float32), np.zeros(200, dtype=bool))
"""


def test_two_processes_add_at_once(tmp_path: Path) -> None:
    """Every row of both is there, and right."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "rows")]
    for process in [subprocess.Popen([*command, seed]) for seed in "12"]:
        assert process.wait(60) == 0
    notices: list[str] = []
    stored = ResultFolder(tmp_path / "rows", {"kind": "test"}, notices.append)
    for rng in map(np.random.default_rng, (1, 2)):
        for _ in range(60):
            keys = rng.integers(0, 2**63, (200, 2), dtype=np.uint64)
            which, rows = stored.look_up(keys)
            assert which.all()
            assert rows[:, 1:].tobytes() == keys.view(np.float32).tobytes()
    stored.close()
    assert notices == []
