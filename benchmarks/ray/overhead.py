"""What Ray costs on one machine: the same run by `--engine local` and `--engine ray`, in turn.

    python benchmarks/ray/overhead.py --records 500 2000 --repeats 3

Questions go to a server on loopback that answers at once, in a process that is not counted; a
tiny NLI model judges the claims. CPU seconds are of all processes of a run, by what they are: read
from /proc five times a second, so what a process did in its last moments is missing. What a
question costs is the slope between the smallest and the largest number of records: CPU seconds of
all processes, model work included, by questions. Nothing else should be at work; where it is, the
CPU seconds say more than the wall clock. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "engine")]
from server import Server  # noqa: E402  # of the benchmark of the engine

from tests.support.tiny_models import save_tiny_nli  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")

#: Each record has two sentences a side, and each is a question.
QUESTIONS = 4

#: What a command line says -> what the process is called here; the first that fits.
KINDS = (
    ("gcs_server", "Ray: its servers"),
    ("raylet/raylet", "Ray: its servers"),
    ("Dashboard", "Ray: its servers"),
    ("RuntimeEnv", "Ray: its servers"),
    ("log_monitor", "Ray: its servers"),
    ("monitor.py", "Ray: its servers"),
    ("ray::ModelActor", "model workers"),
    ("ray::", "Ray: helpers and idle workers"),
    ("default_worker.py", "Ray: helpers and idle workers"),
)


def cpu_by_kind(root: int, seen: dict[int, tuple[str, float]]) -> None:
    """CPU seconds so far of a process and all below it, by process; what has ended is kept."""
    parents, times, lines = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            lines[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        times[int(folder.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    for pid, used in times.items():
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid in lines:
            kind = next((kind for said, kind in KINDS if said in lines[pid]), "driver")
            known = seen.get(pid, ("", 0.0))[0]
            if kind == "Ray: helpers and idle workers" and known:
                kind = known  # it is called so again before it ends
            seen[pid] = kind, used


def one_run(engine: str, records: Path, folder: Path, url: str, nli: Path) -> dict[str, object]:
    """A run from nothing; wall seconds, CPU seconds by kind, when the work began and ended."""
    out = folder / engine
    command = [
        *(sys.executable, "-m", "claimscore", "run", str(records), "--out", str(out)),
        *("--metrics", "caspr,ds", "--nli", str(nli), "--no-model-store", "--device", "cpu"),
        *("--dtype", "float32"),  # a cluster's machines may differ, so auto is that there
        *("--llm", "openai:loopback", "--base-url", url, "--cache-namespace", "loopback"),
        *("--json", "--engine", engine),
    ]
    environment = {
        **os.environ,
        "CLAIMSCORE_CACHE_DIR": str(folder / "cache"),
        "CLAIMSCORE_STATE_DIR": str(folder / "state"),
    }
    seen: dict[int, tuple[str, float]] = {}
    began, began_unix = time.monotonic(), time.time()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        cpu_by_kind(process.pid, seen)
        time.sleep(0.2)
    wall_s = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{engine}: exit status {process.returncode}")
    by_kind: Counter[str] = Counter()
    for kind, used in seen.values():
        by_kind[kind] += used
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    unix = {event["kind"]: datetime.fromisoformat(event["time"]).timestamp() for event in events}
    at = {kind: seconds - began_unix for kind, seconds in unix.items()}
    return {
        "wall_s": wall_s,
        "cpu_s": sum(by_kind.values()),
        "started_s": at["started"],
        "finished_s": at["finished"],
        "by_kind": dict(by_kind),
        "scores": (out / "scores.parquet").read_bytes(),
    }


def write_records(path: Path, n: int) -> None:
    """Pairs of two sentences a side: four questions a record."""
    with path.open("w", encoding="utf-8") as stream:
        for i in range(n):
            record = {
                "id": f"r{i}",
                "summary_a": f"Room {i} is clean and quiet. Floor {i} is loud.",
                "summary_b": f"Bed {i} is hard but cheap. Pool {i} is warm.",
            }
            stream.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    cpu_s: dict[str, dict[int, float]] = {"local": {}, "ray": {}}
    with tempfile.TemporaryDirectory() as scratch:
        nli = save_tiny_nli(Path(scratch) / "nli")
        with Server(Path(scratch), {"text": None}) as server:
            for n in options.records:
                found = both(n, options.repeats, Path(scratch), server.base_url, nli)
                for engine, each in found.items():
                    figures = _medians(each)
                    print(json.dumps({"engine": engine, "records": n, **figures}), flush=True)
                    cpu_s[engine][n] = figures["cpu_s"]  # type: ignore[assignment]
    least, most = min(options.records), max(options.records)
    if least < most:
        questions = QUESTIONS * (most - least)
        ms = {engine: 1e3 * (of[most] - of[least]) / questions for engine, of in cpu_s.items()}
        rounded = {f"{engine}_ms_a_question": round(each, 3) for engine, each in ms.items()}
        print(json.dumps({**rounded, "ray_by_local": round(ms["ray"] / ms["local"], 2)}))


def both(
    n: int, repeats: int, scratch: Path, url: str, nli: Path
) -> dict[str, list[dict[str, object]]]:
    """The runs of each engine over `n` records, in turn; all must give the same scores."""
    records = scratch / f"records-{n}.jsonl"
    write_records(records, n)
    runs: dict[str, list[dict[str, object]]] = {"local": [], "ray": []}
    for repeat in range(repeats):
        for engine in runs if repeat % 2 == 0 else reversed(runs):
            folder = scratch / f"{engine}-{n}-{repeat}"
            folder.mkdir()
            runs[engine].append(one_run(engine, records, folder, url, nli))
            print(engine, _shown(runs[engine][-1]), file=sys.stderr)
    assert len({run["scores"] for each in runs.values() for run in each}) == 1, "other scores"
    return runs


def _medians(each: list[dict[str, object]]) -> dict[str, object]:
    kinds = sorted({kind for run in each for kind in run["by_kind"]})  # type: ignore[attr-defined]
    figures = {
        name: round(statistics.median(run[name] for run in each), 2)  # type: ignore[type-var]
        for name in ("wall_s", "cpu_s", "started_s", "finished_s")
    }
    shares = {
        kind: round(statistics.median(run["by_kind"].get(kind, 0.0) for run in each), 2)  # type: ignore[attr-defined]
        for kind in kinds
    }
    return {**figures, "cpu_s_by_kind": shares}


def _shown(run: dict[str, object]) -> str:
    return json.dumps({name: value for name, value in run.items() if name != "scores"})


if __name__ == "__main__":
    main()
