"""A whole offline run over synthetic pairs: pairs a second, peak memory, where the time goes.

    python benchmarks/offline_run.py --records 5000 --out /tmp/offline

Rules and the embedded models; each summary has three short sentences, no two pairs alike.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from pathlib import Path

from claimscore import RunConfig, run
from claimscore.pipeline.progress import Progress

THINGS = ("room", "pool", "lobby", "bar", "garden", "gym", "bed", "view", "staff", "breakfast")
GOOD = ("clean", "quiet", "large", "warm", "friendly", "modern", "cheap", "bright", "fresh")
BAD = ("dirty", "loud", "small", "cold", "rude", "old", "expensive", "dark", "stale")


def write_records(path: Path, n: int, seed: int = 0) -> None:
    """Pairs of summaries with three sentences a side, the second of them with two claims."""
    draw = random.Random(seed)

    def summary(number: int) -> str:
        first, second, third = draw.sample(THINGS, 3)
        words = [draw.choice(draw.choice((GOOD, BAD))) for _ in range(4)]
        return (
            f"The {first} of house {number} is {words[0]}. "
            f"The {second} is {words[1]} and {words[2]}. The {third} is {words[3]}."
        )

    with path.open("w", encoding="utf-8") as stream:
        for number in range(n):
            record = {"id": str(number), "summary_a": summary(number), "summary_b": summary(number)}
            stream.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    records = arguments.out / "records.jsonl"
    write_records(records, arguments.records)

    phases: dict[str, float] = {}
    state = {"phase": "", "since": time.perf_counter()}

    def note(progress: Progress) -> None:
        now = time.perf_counter()
        if progress.phase != state["phase"]:
            if state["phase"]:
                phases[str(state["phase"])] = now - float(state["since"])
            state.update(phase=progress.phase, since=now)

    began, cpu = time.perf_counter(), time.process_time()
    config = RunConfig(
        input=str(records), out=arguments.out / "run", cache_dir=arguments.out / "cache"
    )
    result = run(config, on_progress=note)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pairs = result.summary["last_call"]["nli_pairs"]
    print(f"{arguments.records:,} pairs of summaries, {pairs:,} text pairs judged")
    print(f"{wall:.1f} s wall, {cpu:.1f} s CPU, {arguments.records / wall:.1f} summary pairs/s")
    print(f"{pairs / wall:.0f} text pairs/s, peak memory {peak:,.0f} MiB")
    for phase, seconds in phases.items():
        print(f"  {phase}: {seconds:.1f} s")


if __name__ == "__main__":
    main()
