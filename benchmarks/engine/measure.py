"""One run of one client against a fresh server, with a fresh cache."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server import ROOT, Server, Settings, ideal_s

HERE = Path(__file__).parent

#: Name -> its client and options of its own; the environment has the client's first word.
CLIENTS: dict[str, tuple[str, ...]] = {
    "claimscore": ("claimscore_client.py",),
    "aiohttp": ("aiohttp_client.py",),
    "openai": ("openai_sdk_client.py",),
    "litellm": ("litellm_client.py",),
    "curator": ("curator_client.py",),
}


@dataclasses.dataclass(slots=True)
class Run:
    """What a client says of itself, and what the server says of it.

    `total_*` are the operating system's figures for the whole process, start included.
    """

    n: int
    answered: int
    lost: int
    wall_s: float
    cpu_s: float
    rss_mb: float
    ideal_s: float
    server: dict[str, Any]
    total_wall_s: float
    total_cpu_s: float
    ended: str
    client: dict[str, Any]

    @property
    def span_s(self) -> float:
        """By the server's clock: from the first request to the last answer."""
        return float(self.server["last_paid_s"] or 0.0)

    @property
    def per_second(self) -> float:
        return self.answered / self.wall_s

    @property
    def cpu_per_1000(self) -> float:
        return 1000 * self.cpu_s / self.n


def python_of(name: str, environments: Path) -> Path | None:
    """The interpreter with a client's packages; None where it is not installed."""
    if name == "claimscore":
        return Path(sys.executable)
    folder = environments / name.partition("+")[0]
    return folder / "bin" / "python" if (folder / "done").exists() else None


@contextlib.contextmanager
def a_folder() -> Iterator[Path]:
    """A fresh one, gone afterwards whatever still writes to it."""
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_client(
    name: str,
    python: Path,
    settings: Settings,
    *,
    n: int,
    concurrency: int,
    options: tuple[str, ...] = (),
    timeout_s: float = 300.0,
    server: Server | None = None,
    work: Path | None = None,
) -> Run:
    """Run a client from start to end; with a server and a folder given, those go on."""
    if server is None or work is None:
        with a_folder() as folder, Server(folder, settings) as fresh:
            return run_client(
                name,
                python,
                settings,
                n=n,
                concurrency=concurrency,
                options=options,
                timeout_s=timeout_s,
                server=fresh,
                work=folder,
            )
    script, *own = CLIENTS[name]
    command = [
        *(str(python), str(HERE / "clients" / script), *own),
        *("--base-url", server.base_url, "--n", str(n), "--concurrency", str(concurrency)),
        *("--work", str(work), *options),
    ]
    environment = {"PYTHONPATH": str(ROOT)} if name == "claimscore" else {}
    process = run_process(command, timeout_s, environment)
    stats = server.stats()
    said = process.result or {}
    tokens = stats["prompt_tokens"] + stats["completion_tokens"]
    answered = said.get("answered", stats["paid_distinct"])
    return Run(
        n=n,
        answered=answered,
        lost=n - answered,
        wall_s=said.get("wall_s", process.wall_s),
        cpu_s=said.get("cpu_s", process.cpu_s),
        rss_mb=max(said.get("rss_mb", 0.0), process.rss_mb),
        ideal_s=ideal_s(settings, answered, tokens, concurrency),
        server=stats,
        total_wall_s=process.wall_s,
        total_cpu_s=process.cpu_s,
        ended=process.ended,
        client=said,
    )


@dataclasses.dataclass(slots=True)
class Process:
    """A process that is over: `result` is its last line where that is a JSON object."""

    code: int
    ended: str
    wall_s: float
    cpu_s: float
    rss_mb: float
    result: dict[str, Any] | None
    output: str


def run_process(
    command: list[str], timeout_s: float = 300.0, environment: dict[str, str] | None = None
) -> Process:
    """Run a command to its end, or kill it; CPU and memory as the system counted them."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
        ended, usage, code = "", None, 0
        while usage is None:
            pid, status, found = os.wait4(process.pid, os.WNOHANG)
            if pid:
                usage, code = found, os.waitstatus_to_exitcode(status)
            elif time.perf_counter() - began > timeout_s and not ended:
                ended = f"hung, killed after {timeout_s:.0f} s"
                process.kill()
            else:
                time.sleep(0.02)
        process.returncode = code  # it was waited for here
        out.seek(0)
        errors.seek(0)
        output = out.read()
        tail = errors.read()[-2000:]
    lines = output.strip().splitlines()
    result = None
    if lines and lines[-1].startswith("{"):
        result = json.loads(lines[-1])
    if code and not ended:
        ended = f"exit {code}: {tail.strip().splitlines()[-1][:200] if tail.strip() else ''}"
    return Process(
        code=code,
        ended=ended,
        wall_s=time.perf_counter() - began,
        cpu_s=usage.ru_utime + usage.ru_stime,
        rss_mb=usage.ru_maxrss / 1024,
        result=result,
        output=output,
    )
