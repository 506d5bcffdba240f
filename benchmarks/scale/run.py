"""Runs of many short records on one machine: what stays flat and what grows.

    python benchmarks/scale/run.py --records 10000 50000 [--work FOLDER] [--out FILE.json]

Each size is a run of its own: `claimscore run` with one task and one metric against an instant
server in a process of its own, killed (-9) at 70 % and started again. Records are unique, one
sentence each, so a record is one request.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "engine"), str(HERE)]

from child import Watched, timed, watch  # noqa: E402  # beside this file
from server import Server  # noqa: E402  # of benchmarks/engine

THINGS = ("room", "pool", "lobby", "bar", "garden", "gym", "bed", "view", "staff", "breakfast")
WORDS = ("clean", "quiet", "large", "warm", "friendly", "modern", "cheap", "bright", "fresh")

#: What the server says to every question: two claims, which the question's digest makes unique.
ANSWER = json.dumps(
    {"answers": [{"text": 1, "claims": ["The pool is warm.", "It is house $digest."]}]}
)


def write_records(path: Path, n: int) -> None:
    """Records with an id and one sentence, no two alike."""
    with path.open("w", encoding="utf-8") as stream:
        for number in range(n):
            thing, other = THINGS[number % 10], THINGS[number // 10 % 10]
            word, second = WORDS[number % 9], WORDS[number // 9 % 9]
            very = "very " * (number % 4)
            summary = f"The {thing} of house {number} is {very}{word} and the {other} is {second}."
            record = {"id": f"r{number}", "summary": summary, "system": f"s{number % 3}"}
            stream.write(json.dumps(record) + "\n")


def measure(n: int, work: Path, *, kill_at: float, concurrency: int) -> dict[str, Any]:
    """One size: two processes with a kill between them, then `status` and `report`."""
    folder = work / str(n)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_records(folder / "records.jsonl", n)
    settings = {"text": ANSWER, "headers": "none", "depth_s": 60.0}
    with Server(folder, settings) as server:
        arguments = [
            *("run", "records.jsonl", "--out", "run"),
            *("--metrics", "claim-density", "--metric-file", str(HERE / "metric.py")),
            *("--prompt", "decompose=v2"),
            *("--llm", "openai:loopback", "--base-url", server.base_url),
            *("--max-concurrency", str(concurrency)),
        ]
        note = folder / "run" / ".state" / "now.json"
        status_s: list[float] = []

        def look() -> None:
            """`status` of a run at work, without holding up the one who watches."""

            def call() -> None:
                status_s.append(timed(["status", "run", "--json"], folder)[0])

            threading.Thread(target=call).start()

        def received() -> int:
            return int(server.stats()["received"])

        plan: dict[str, Any] = {"total": n, "received": received}
        first = watch(arguments, folder, note, kill_at=kill_at, at_half=look, **plan)
        files = _files(folder / "run")
        quiet_s = _quiet(server)
        second = watch(arguments, folder, note, **plan)
        if second.ended:
            raise SystemExit(f"the run ended with {second.ended}: {second.errors}")
        stats = server.stats()
    status_s.append(timed(["status", "run", "--json"], folder)[0])
    start_s, _ = timed(["--version"], folder)
    report_s, _ = timed(["report", "run"], folder)
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["records"] == {"total": n, "done": n, "failed": 0}, summary["records"]
    return {
        "records": n,
        "cpu_ms_an_item": _by_tenths(first, second, n),
        "peak_mb": [round(first.peak_mb, 1), round(second.peak_mb, 1)],
        "phases": [_phases(first), _phases(second)],
        "cpu_s": [round(first.cpu_s, 1), round(second.cpu_s, 1)],
        "wall_s": [round(first.wall_s, 1), round(second.wall_s, 1)],
        "killed": first.ended,
        "first_request_s": [_rounded(first.first_request_s), _rounded(second.first_request_s)],
        "status_s": [round(seconds, 2) for seconds in status_s],
        "start_s": round(start_s, 2),
        "report_s": round(report_s, 1),
        "files_at_kill": files[0],
        "files": _files(folder / "run")[0],
        "mb_at_kill": round(files[1] / 1e6, 1),
        "mb": round(_files(folder / "run")[1] / 1e6, 1),
        "requests": stats["received"],
        "asked_twice": stats["received"] - n,
        "quiet_after_kill_s": round(quiet_s, 1),
    }


def _quiet(server: Server) -> float:
    """Wait until the server has dealt with what the killed process had sent."""
    began, before = time.perf_counter(), -1
    while (now := int(server.stats()["received"])) != before:
        before = now
        time.sleep(0.3)
    return time.perf_counter() - began


def _by_tenths(first: Watched, second: Watched, total: int) -> dict[str, float | None]:
    """CPU milliseconds an item by tenths of the run; a process's start counts in its tenth."""
    found: dict[str, float | None] = {}
    for tenth in range(10):
        start, stop = total * tenth / 10, total * (tenth + 1) / 10
        values = [seen.cpu_ms_a_request(start, stop) for seen in (first, second)]
        known = [value for value in values if value is not None]
        found[f"{tenth * 10}-{tenth * 10 + 10} %"] = _rounded(known[0], 3) if known else None
    return found


def _phases(seen: Watched) -> dict[str, list[float]]:
    """Seconds and the most MB of each phase."""
    return {
        name: [round(seconds, 1), round(seen.phase_mb[name], 1)]
        for name, seconds in seen.phase_s.items()
    }


def _files(folder: Path) -> tuple[int, int]:
    """How many files, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--work", type=Path, help="where the runs lie; a fresh folder by default")
    parser.add_argument("--kill-at", type=float, default=0.7, help="the share of the requests")
    parser.add_argument("--max-concurrency", type=int, default=64)
    parser.add_argument("--out", type=Path, help="the figures as JSON")
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="scale-"))
    found: list[dict[str, Any]] = []
    for n in arguments.records:
        found.append(
            measure(
                n,
                work.resolve(),
                kill_at=arguments.kill_at,
                concurrency=arguments.max_concurrency,
            )
        )
        print(json.dumps(found[-1], indent=2), flush=True)
        if arguments.out:
            machine = {"python": platform.python_version(), "cores": os.cpu_count()}
            arguments.out.write_text(json.dumps({**machine, "sizes": found}, indent=2) + "\n")
    if arguments.work is None:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
