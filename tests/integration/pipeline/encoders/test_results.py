"""Stored results of models, added by several processes, and killed ones."""

from __future__ import annotations

import signal
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
for n in range(int(sys.argv[3])):
    keys = rng.integers(0, 2**63, (200, 2), dtype=np.uint64)
    folder.keep(keys, keys.view(np.float32), np.zeros(200, dtype=bool))
    print(n, flush=True)
"""


def writer(folder: Path, seed: int, groups: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(seed), str(groups)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def found(folder: Path, seed: int, groups: int, notices: list[str]) -> int:
    """How many of a writer's rows are there; each must be right."""
    rng, n = np.random.default_rng(seed), 0
    files = ResultFolder(folder, {"kind": "test"}, notices.append)
    for _ in range(groups):
        keys = rng.integers(0, 2**63, (200, 2), dtype=np.uint64)
        which, rows = files.look_up(keys)
        assert rows[:, 1:].tobytes() == keys[which].view(np.float32).tobytes()
        n += int(which.sum())
    files.close()
    return n


def test_two_processes_add_at_once(tmp_path: Path) -> None:
    writers = [writer(tmp_path / "rows", seed, 60) for seed in (1, 2)]
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    notices: list[str] = []
    assert [found(tmp_path / "rows", seed, 60, notices) for seed in (1, 2)] == [12_000, 12_000]
    assert notices == []


def test_a_kill_loses_the_last_group_only(tmp_path: Path) -> None:
    process = writer(tmp_path / "rows", 1, 10**6)
    assert process.stdout is not None
    done = 0
    while done < 30:
        done = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    notices: list[str] = []
    assert found(tmp_path / "rows", 1, done + 1, notices) == 200 * (done + 1)
    writer(tmp_path / "rows", 2, 2).communicate(timeout=60)
    assert found(tmp_path / "rows", 2, 2, notices) == 400
    assert notices == []
