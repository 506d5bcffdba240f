"""A whole offline run over synthetic pairs: pairs a second, peak memory, where the time goes.

    python benchmarks/offline_run.py --records 5000 --out /tmp/offline
    python benchmarks/offline_run.py --records 99 --sentences 40 --metrics faithfulness --out /tmp/f

Rules and the embedded models; each summary has three short sentences, no two pairs alike. With
`--sentences` a record is one summary with a source of so many sentences.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import time
from pathlib import Path

from claimscore import RunConfig, run
from claimscore.pipeline.progress import Progress

THINGS = ("room", "pool", "lobby", "bar", "garden", "gym", "bed", "view", "staff", "breakfast")
GOOD = ("clean", "quiet", "large", "warm", "friendly", "modern", "cheap", "bright", "fresh")
BAD = ("dirty", "loud", "small", "cold", "rude", "old", "expensive", "dark", "stale")


def write_records(path: Path, n: int, n_sentences: int, seed: int = 0) -> None:
    """Summaries of three sentences, the second of them with two claims: pairs, or with sources."""
    draw = random.Random(seed)

    def summary(number: int) -> str:
        first, second, third = draw.sample(THINGS, 3)
        words = [draw.choice(draw.choice((GOOD, BAD))) for _ in range(4)]
        return (
            f"The {first} of house {number} is {words[0]}. "
            f"The {second} is {words[1]} and {words[2]}. The {third} is {words[3]}."
        )

    def source(number: int) -> str:
        every = itertools.product(THINGS, GOOD + BAD)
        return " ".join(
            f"Guest {i} of house {number} told us that the {thing} was {word} all week."
            for i, (thing, word) in enumerate(draw.sample(list(every), n_sentences))
        )

    sides = (
        {"source": source, "summary": summary}
        if n_sentences
        else dict.fromkeys(("summary_a", "summary_b"), summary)
    )
    with path.open("w", encoding="utf-8") as stream:
        for number in range(n):
            record = {"id": str(number)} | {side: text(number) for side, text in sides.items()}
            stream.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--sentences", type=int, default=0, help="of a source; 0: two summaries")
    parser.add_argument("--metrics", default=None)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    os.environ["CLAIMSCORE_STATE_DIR"] = str(arguments.out / "state")
    records = arguments.out / "records.jsonl"
    write_records(records, arguments.records, arguments.sentences)

    phases: dict[str, float] = {}
    state = {"phase": "", "since": time.perf_counter()}

    def note(progress: Progress) -> None:
        now = time.perf_counter()
        if progress.phase != state["phase"]:
            if state["phase"]:
                phases[str(state["phase"])] = now - float(state["since"])
            state.update(phase=progress.phase, since=now)

    began, cpu = time.perf_counter(), time.process_time()
    metrics = {"metrics": arguments.metrics} if arguments.metrics else {}
    config = RunConfig(
        input=str(records), out=arguments.out / "run", cache_dir=arguments.out / "cache", **metrics
    )
    result = run(config, on_progress=note)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pairs = result.summary["last_call"]["nli_pairs"]
    computed = result.summary["last_call"]["model_items"]["computed"]
    print(f"{arguments.records:,} records, {pairs:,} text pairs asked, {computed:,} computed")
    print(f"{wall:.1f} s wall, {cpu:.1f} s CPU, {arguments.records / wall:.1f} records/s")
    print(f"{pairs / wall:.0f} text pairs/s, peak memory {peak:,.0f} MiB")
    for phase, seconds in phases.items():
        print(f"  {phase}: {seconds:.1f} s")


if __name__ == "__main__":
    main()
