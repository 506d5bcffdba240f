"""Sentences a second of `--llm builtin`, beside another checkout's, and whether claims differ.

    python benchmarks/claim_maker.py sentences.txt --beside ../other-checkout

Asks the provider as the engine does, 64 requests at a time. The checkouts take turns, each time in
a new process; figures are medians. Where the machine is shared, CPU time says more than wall time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anyio

from claimscore.baseline.provider import MODEL, BuiltinProvider
from claimscore.types import Message, OutputSchema, Request

IN_FLIGHT = 64


async def ask(sentences: list[str]) -> list[str]:
    """The answers to a request for each sentence."""
    provider = BuiltinProvider()
    output = OutputSchema("decompose", {"type": "object"})
    answers = [""] * len(sentences)
    waiting = iter(enumerate(sentences))

    async def work() -> None:
        for place, sentence in waiting:
            messages = (Message("user", sentence),)
            asked = Request("builtin", "builtin", MODEL, messages, output=output)
            answers[place] = (await provider.complete(asked)).text

    async with anyio.create_task_group() as group:
        for _ in range(IN_FLIGHT):
            group.start_soon(work)
    return answers


def measure(sentences: list[str]) -> dict[str, float | str]:
    anyio.run(ask, ["Anna left."])  # loads the parser
    began, cpu = time.perf_counter(), time.process_time()
    answers = anyio.run(ask, sentences)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    digest = hashlib.sha256("\n".join(answers).encode()).hexdigest()
    return {"wall_s": wall, "cpu_s": cpu, "digest": digest[:12]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", type=Path, help="a text file, a sentence a line")
    parser.add_argument("--beside", type=Path, help="another checkout of claimscore")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sentences = given.sentences.read_text(encoding="utf-8").splitlines()
    if given.child:
        print(json.dumps(measure(sentences)))
        return
    here = Path(__file__).parents[1]
    checkouts = [here, *([given.beside.resolve()] if given.beside else [])]
    found: dict[Path, list[dict[str, float]]] = {path: [] for path in checkouts}
    command = [sys.executable, __file__, str(given.sentences), "--child"]
    for _ in range(given.rounds):
        for path in checkouts:
            environment = {**os.environ, "PYTHONPATH": str(path), "OPENBLAS_NUM_THREADS": "1"}
            ran = subprocess.run(command, env=environment, check=True, capture_output=True)
            found[path].append(json.loads(ran.stdout))
    for path, rows in found.items():
        wall, cpu = (statistics.median(row[k] for row in rows) for k in ("wall_s", "cpu_s"))
        n, digests = len(sentences), {row["digest"] for row in rows}
        print(
            f"{path}: {n / wall:.0f} sentences/s, {1000 * cpu / n:.2f} ms of CPU a sentence "
            f"({cpu / wall:.2f} cores), answers {', '.join(map(str, digests))}"
        )


if __name__ == "__main__":
    main()
