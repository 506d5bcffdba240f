"""A run directory on a disk and real processes: a second writer, and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from claimscore.runs import RunDirectory

OPEN = """
import sys, time
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIMS, FAILURES
run = RunDirectory(sys.argv[1]).__enter__()
print("open", flush=True)
"""
WRITE = """
for n in range(10**6):
    frames = {"claims": CLAIMS.frame([{"id": str(n)}] * (n % 3)),
              "failures": FAILURES.frame([{"id": str(n)}] * (n % 2))}
    run.write_parts(n % 7, "decompose", frames)
    if n == 20: print("going", flush=True)
"""


@contextmanager
def process(code: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A writer in a process of its own, which has opened the run directory; it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", OPEN + code, str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"open\n"
        yield started
        started.send_signal(signal.SIGKILL)


def test_a_killed_writer_leaves_whole_steps(tmp_path: Path) -> None:
    with process(WRITE, tmp_path / "run") as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"going\n"
    with RunDirectory(tmp_path / "run") as run:
        assert run.steps_done("decompose") >= 6
        for chunk in range(7):
            found = {*run.read("claims", chunk)["id"], *run.read("failures", chunk)["id"]}
            assert len(found) <= 1
        assert run.scan("claims").collect().height == run.manifest.counts()["claims"]
