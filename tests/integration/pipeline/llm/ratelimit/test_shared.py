"""Shared limits between processes, some of them killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.pipeline.llm.ratelimit.test_shared import BASE, Machine, lease


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


CHILD = """
import os, signal, sys
from pathlib import Path
from claimscore.pipeline.llm.ratelimit import shared
from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket

shared.BUSY_S = 20  # a busy machine must not look like a locked file
limits = shared.SharedLimits(Path(sys.argv[1]), sys.argv[2], clock=lambda: 1_800_000_000.0,
                             on_warning=lambda text: warnings.append(text))
warnings = []
lease = lambda: limits.lease("requests", 1, 1, 0.0)
say = lambda *values: print(*values, flush=True)
"""


@contextlib.contextmanager
def child(machine: Machine, code: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that runs `code` on the machine's file, its clock standing still too."""
    command = [sys.executable, "-c", CHILD + code, str(machine.path), BASE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_processes_at_once_give_nothing_away_twice(machine: Machine):
    code = (
        "lease(); limits.give_back('requests', 1); say('ready'); sys.stdin.readline()\n"
        "say(*[lease() for _ in range(1000)]); say(warnings)\n"
    )
    with child(machine, code) as one, child(machine, code) as other:
        assert {line(one), line(other)} == {"ready"}
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        waits = [float(word) for process in (one, other) for word in line(process).split()]
        assert {line(one), line(other)} == {"[]"}
    assert sorted(waits) == list(range(2000))


def test_a_killed_process_locks_nothing(machine: Machine):
    with child(machine, "lease(); say('go')\nwhile True: lease()") as victim:
        assert line(victim) == "go"
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    survivor = machine.process()
    first = lease(survivor)
    assert [lease(survivor) for _ in range(5)] == [first + n for n in range(1, 6)]
    assert (first % 1, machine.warnings) == (0, []), "nothing was waited for"
