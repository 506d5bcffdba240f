"""Rows of claimscore's alone: tokenising, stored results, memory of a GPU."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from figures import TableLine, difference, difference_text
from play import Bench, say, values_of
from rows import NLI_BOUND, OWN, w1
from workers import ROOT, WorkerError
from workloads import read_pairs

TOKENISE_N = 17_634
PEER_TOKENISE_N = 4096
LOOKUP_N = 50_000
MEMORY_N = 4096


def tokenise(bench: Bench) -> list[TableLine]:
    """Pairs for each CPU second that `classify` spends outside the model."""
    model = bench.model("tiny")
    pairs = read_pairs(bench.workloads, "w1")[: bench.n(TOKENISE_N)]
    mine, theirs, times, share = [], [], [], 0.0
    peers = pairs[: bench.n(PEER_TOKENISE_N)]
    with (
        bench.desk("tokenise", model, pairs, device="cpu", threads=1) as desk,
        bench.desk("tokenise", model, peers, device="cpu", threads=1) as other_desk,
    ):
        worker = desk.ready(desk.start(OWN))
        try:
            peer = other_desk.ready(other_desk.start("sentence-transformers"))
        except WorkerError as exc:
            peer, beside = None, f"CrossEncoder: {exc}"
        for number in range(bench.rounds):
            done = worker.order({"round": number})
            mine.append(len(pairs) / done.seconds)
            times.append(done.seconds / done.figures["tokenizer_s"])
            share = done.figures["n_texts"] / (2 * len(pairs))
            if peer is not None:
                theirs.append(len(peers) / peer.order({"batch_size": 32}).cpu_s)
                beside = f"CrossEncoder's way, batches of 32: {median(theirs):,.0f}/s"
            say(f"tokenise: {mine[-1]:,.0f}/s")
    ratios = [own / other for own, other in zip(mine, theirs, strict=False)]
    return [
        TableLine(
            "tokenising, batches and answers (all of `classify` but the model), pairs/s and core; "
            f"{share:.1%} of the texts are distinct",
            "1",
            "184,500, 1.3 x the tokenizer alone",
            median(mine) >= 184_500 and median(times) <= 1.3,
            f"{median(mine):,.0f}/s, {median(times):.2f} x the tokenizer alone",
            beside,
            f"{median(ratios):.1f}" if ratios else "",
        )
    ]


def lookup(bench: Bench) -> list[TableLine]:
    """Stored results found again by wall clock; the client asks the store as the passes do."""
    line = TableLine("look-up of stored results", "1", "100,000/s", None, "")
    pairs = read_pairs(bench.workloads, "w1s")[: bench.n(LOOKUP_N)]
    lines = []
    with bench.desk("lookup", bench.model("tiny"), pairs, device="cpu", threads=1) as desk:
        worker = desk.ready(desk.start(OWN))
        for order in ("in order", "shuffled"):
            asked = {"shuffled": order == "shuffled"}
            found = [worker.order(asked) for _ in range(bench.rounds)]
            reading = median(len(pairs) / one.seconds for one in found)
            writing = median(len(pairs) / one.figures["insert_s"] for one in found)
            text = f"{reading:,.0f}/s; stored at {writing:,.0f}/s"
            what = f"{line.what}, asked {order}"
            lines.append(line._replace(what=what, met=min(reading, writing) >= 100_000, own=text))
    return lines


def gpu_tests(bench: Bench) -> list[TableLine]:
    """The tests marked `gpu`, which compare every packed family with itself on the CPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/integration"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = (done.stdout or done.stderr).strip().splitlines()
    what = "GPU: packed families as on the CPU, in float32, bfloat16 and float16"
    return [TableLine(what, "GPU", "all pass", done.returncode == 0, said[-1] if said else "")]


def gpu_memory(bench: Bench) -> list[TableLine]:
    """The same pairs with half the memory that they took, in float32."""
    model = bench.model("roberta-large")
    pairs = list(w1(bench.workloads, bench.n(MEMORY_N)))
    common = {"device": "cuda", "threads": 1}
    with bench.desk("nli", model, pairs, **common) as desk:
        whole = desk.ready(desk.start(OWN)).order({})
        limit = whole.figures["memory_bytes"] // 2
        with bench.desk("nli", model, pairs, **common, more={"memory_bytes": limit}) as half_desk:
            half = half_desk.ready(half_desk.start(OWN)).order({})
            values, reference = values_of(half), values_of(whole)
    assert values is not None
    assert reference is not None
    found = difference("nli", values, reference)
    return [
        TableLine(
            f"GPU: {len(pairs):,} pairs of W1 with half the memory ({limit / 2**30:.1f} GiB)",
            "GPU",
            "same within 2e-5",
            found.most <= NLI_BOUND,
            f"{difference_text('nli', found)}; {half.seconds / whole.seconds:.2f} x the time",
        )
    ]
