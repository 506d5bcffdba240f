"""A whole `claimscore run` whose LLM and encoder stages take equally long, beside each alone.

The LLM is the loopback server; its latency is set so that its stage takes as long as the
encoders' does on this machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from figures import TableLine
from play import Bench, say
from workers import HERE, WorkerError
from workloads import block, read_pairs

sys.path.append(str(HERE.parent / "engine"))

from measure import run_process
from server import Server

from claimscore.text import split_sentences

#: Twelve chunks of records: with few, the first and last stage of a chunk stand alone for long.
RECORDS = 768
IN_FLIGHT = 16
LEAST_STAGE_S = 2.0
LEAST_S = 0.1
#: The shorter stage over the longer, and how often the latency is set anew to get there.
EQUAL, ATTEMPTS = 0.85, 2
WHAT = "run whose LLM and encoder stages take equal time, beside the longer of them"


class Took(NamedTuple):
    """Seconds of a run, and what the server counted."""

    seconds: float
    n_requests: int


class Place:
    """Records, caches and output of runs; `server` is the fake one."""

    def __init__(self, folder: Path, server: Server, fast: Path, threads: int) -> None:
        self._folder, self._server, self._fast = folder, server, fast
        self._threads = threads
        self._runs = 0

    def run(self, cache: str, *, encoders: bool) -> Took:
        """One run from an empty output folder; without encoders their models are tiny."""
        self._runs += 1
        self._server.control(reset=True)
        fast = ["--nli", str(self._fast)] if not encoders else []
        command = [
            *(sys.executable, "-m", "claimscore", "run", str(self._folder / "records.jsonl")),
            *("--out", str(self._folder / f"run{self._runs}"), "--quiet", "--metrics", "caspr"),
            *("--llm", "openai:gpt-4o-mini", "--base-url", self._server.base_url, *fast),
            *("--max-concurrency", str(IN_FLIGHT), "--cache-dir", str(self._folder / cache)),
        ]
        environment = {
            "OPENAI_API_KEY": "sk-benchmark",
            "CLAIMSCORE_CACHE_DIR": str(self._folder / cache),
            "CLAIMSCORE_STATE_DIR": str(self._folder / "state"),
            "OMP_NUM_THREADS": str(self._threads),
            "HF_HUB_OFFLINE": "1",
        }
        done = run_process(command, 1800.0, environment)
        if done.code:
            raise WorkerError(f"claimscore run: {done.ended}")
        return Took(done.wall_s, int(self._server.stats()["received"]))


def overlap(bench: Bench) -> list[TableLine]:
    """Both stages cold, over the longer of the two alone; start-up is taken off all three."""
    rounds = []
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="overlap-"))
        folder = Path(name)
        write_records(bench, folder / "records.jsonl")
        server = stack.enter_context(Server(folder, {"text": None}))
        place = Place(folder, server, bench.model("tiny"), threads=1)
        n_requests = place.run("warm", encoders=False).n_requests
        latency_s = 0.0
        for number in range(bench.rounds):
            server.control(latency_s=0.0)
            start_s = place.run("warm", encoders=False).seconds
            encoders_s = beyond(start_s, place.run(warmed(folder, number), encoders=True))
            wanted_s = max(encoders_s, LEAST_STAGE_S)
            latency_s = latency_s or wanted_s / math.ceil(n_requests / IN_FLIGHT)
            for attempt in range(ATTEMPTS):
                server.control(latency_s=latency_s)
                llm_s = beyond(start_s, place.run(f"llm{number}-{attempt}", encoders=False))
                if equal(llm_s, wanted_s):
                    break
                latency_s *= min(max(wanted_s / llm_s, 0.25), 4.0)
            else:
                server.control(latency_s=latency_s)
                llm_s = beyond(start_s, place.run(f"llm{number}", encoders=False))
            both_s = beyond(start_s, place.run(f"both{number}", encoders=True))
            rounds.append({"encoders": encoders_s, "llm": llm_s, "both": both_s})
            say(f"overlap: {', '.join(f'{k} {v:.1f} s' for k, v in rounds[-1].items())}")
    return [line(rounds)]


def beyond(start_s: float, took: Took) -> float:
    """Seconds beyond those of a run with nothing to do; noise can make them look negative."""
    return max(took.seconds - start_s, LEAST_S)


def equal(one_s: float, other_s: float) -> bool:
    """As equal as it takes: a stage that is much shorter would hide behind the other."""
    return min(one_s, other_s) >= EQUAL * max(one_s, other_s)


def line(rounds: list[dict[str, float]]) -> TableLine:
    """The median of the rounds' ratios; nothing is judged where the stages were not equal."""
    ratios = [one["both"] / max(one["llm"], one["encoders"]) for one in rounds]
    middle = {stage: median(one[stage] for one in rounds) for stage in rounds[0]}
    fair = sum(equal(one["llm"], one["encoders"]) for one in rounds) > len(rounds) / 2
    beside = f"LLM alone {middle['llm']:.1f} s, encoders alone {middle['encoders']:.1f} s"
    return TableLine(
        WHAT,
        "1",
        "at most 1.15 x",
        median(ratios) <= 1.15 if fair else None,
        f"{middle['both']:.1f} s",
        beside if fair else f"{beside}: not equal, so not judged",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
    )


def warmed(folder: Path, number: int) -> str:
    """A cache with the LLM's answers and without the encoders' results."""
    shutil.copytree(folder / "warm", folder / f"warm{number}")
    return f"warm{number}"


def write_records(bench: Bench, path: Path) -> None:
    """Pairs of the first sentences of real summaries: a chunk is a few seconds of work, not a
    minute, and there are enough chunks."""
    pairs = read_pairs(bench.workloads, "w3")
    records: list[dict[str, Any]] = [
        {
            "id": str(number),
            "summary_a": split_sentences(first)[0],
            "summary_b": split_sentences(second)[0],
        }
        for number, (first, second) in enumerate(block(pairs[len(pairs) // 2 :], bench.n(RECORDS)))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
