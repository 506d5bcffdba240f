"""A `claimscore` process that is watched: its CPU time and memory while it works, by phase."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

#: Seconds between two looks, and until the first request.
SAMPLE_S, FIRST_S = 0.2, 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """Seconds since the start, requests that the server has had, CPU seconds, MB of memory."""

    at_s: float
    requests: int
    cpu_s: float
    rss_mb: float


@dataclasses.dataclass
class Watched:
    """What a process was seen to do; `ended` is its exit status, negative where it was killed."""

    samples: list[Sample] = dataclasses.field(default_factory=list)
    phase_s: dict[str, float] = dataclasses.field(default_factory=dict)
    phase_mb: dict[str, float] = dataclasses.field(default_factory=dict)
    peak_mb: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    first_request_s: float | None = None
    ended: int = 0
    errors: str = ""

    def cpu_ms_a_request(self, start: float, stop: float) -> float | None:
        """CPU between two numbers of requests; None where less than half of that was seen."""
        inside = [sample for sample in self.samples if start <= sample.requests <= stop]
        asked = inside[-1].requests - inside[0].requests if inside else 0
        if asked < (stop - start) / 2:
            return None
        return 1000 * (inside[-1].cpu_s - inside[0].cpu_s) / asked


def environment(folder: Path) -> dict[str, str]:
    """A cache and a state of its own, and this checkout."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CLAIMSCORE_STATE_DIR": str(folder / "state"),
        "CLAIMSCORE_CACHE_DIR": str(folder / "cache"),
    }


def timed(arguments: Sequence[str], folder: Path) -> tuple[float, str]:
    """Seconds and output of a short command."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "claimscore", *arguments],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"claimscore {' '.join(arguments)}: {done.stderr}")
    return time.perf_counter() - began, done.stdout


def watch(
    arguments: Sequence[str],
    folder: Path,
    note: Path,
    *,
    total: int,
    received: Callable[[], int],
    kill_at: float | None = None,
    at_half: Callable[[], None] | None = None,
) -> Watched:
    """Run `claimscore ARGUMENTS` to its end, or until so large a share of `total` was asked.

    `note` is where the run says what it does, `received` what the server has been asked so far:
    its first growth is the first new request. `at_half` is called once, half-way.
    """
    found, before = Watched(), received()
    log = folder / "errors.txt"
    began = time.perf_counter()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "claimscore", *arguments],
            env=environment(folder),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        while process.poll() is None:
            time.sleep(SAMPLE_S if found.first_request_s else FIRST_S)
            requests, now = received(), time.perf_counter() - began
            if requests > before and found.first_request_s is None:
                found.first_request_s = now
            _sample(found, process.pid, now, requests, _phase(note, process.pid))
            if at_half and requests > total / 2:
                at_half()
                at_half = None
            if kill_at is not None and requests >= total * kill_at:
                process.kill()
    found.wall_s = time.perf_counter() - began
    found.ended = process.returncode
    found.errors = log.read_text()
    return found


def _phase(note: Path, pid: int) -> str:
    """What the run said last that it does; an earlier process's word does not count."""
    try:
        if note.stat().st_mtime < Path(f"/proc/{pid}").stat().st_mtime:
            return "start"
        return str(json.loads(note.read_bytes())["phase"])
    except (OSError, ValueError):
        return "start"


def _sample(found: Watched, pid: int, at_s: float, requests: int, phase: str) -> None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
    if "VmRSS" not in sizes:
        return
    rss, peak = (int(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    last_s = found.samples[-1].at_s if found.samples else 0.0
    found.samples.append(Sample(at_s, requests, cpu_s, rss))
    found.phase_s[phase] = found.phase_s.get(phase, 0.0) + at_s - last_s
    found.phase_mb[phase] = max(found.phase_mb.get(phase, 0.0), rss)
    found.peak_mb, found.cpu_s = max(found.peak_mb, peak), cpu_s
