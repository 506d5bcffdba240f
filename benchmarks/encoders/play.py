"""A row from its first process to its figures: load all, tune, then rounds in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Array, Played, difference
from models import find_model, token_lengths
from rows import Row, Variant
from workers import Measured, Worker, WorkerError, python_of
from workloads import distinct_texts, read_pairs, spread

WARM_UP = 16
PEAK_TOKENS = {"cpu": (256, 1024, 2048), "cuda": (8192, 32768)}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass(slots=True)
class Bench:
    """What all rows share: where things are, how much of everything, and who takes part."""

    workloads: Path
    environments: Path
    rounds: int = 3
    scale: float = 1.0
    clients: frozenset[str] = frozenset()
    before: Path | None = None
    versions: dict[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    references: dict[tuple[Any, ...], Array | None] = dataclasses.field(default_factory=dict)

    def n(self, whole: int) -> int:
        """So many of a row's items."""
        return max(8, round(whole * self.scale))

    def model(self, name: str) -> Path:
        """A model's folder; made at its first use."""
        pairs = spread(read_pairs(self.workloads, "w1"), 32)
        folder = self.environments / "models"
        return find_model(name, folder, lambda: distinct_texts(self.workloads), pairs)

    @contextlib.contextmanager
    def desk(self, task: str, model: Path, items: Sequence[Any], **common: Any) -> Iterator[Desk]:
        """A place to start clients for one kind of work; they end with it."""
        with (
            tempfile.TemporaryDirectory(prefix="encoders-") as name,
            contextlib.ExitStack() as all_,
        ):
            folder = Path(name)
            path = folder / "items.json"
            path.write_text(json.dumps(items), encoding="utf-8")
            job = {"task": task, "model": str(model), "items": str(path), **common}
            yield Desk(self, job, folder, all_)


@dataclasses.dataclass(slots=True)
class Desk:
    """Starts clients that do the same work."""

    bench: Bench
    job: Mapping[str, Any]
    folder: Path
    stack: contextlib.ExitStack

    def start(self, client: str, **job: Any) -> Worker:
        """Start a client without waiting; `WorkerError` where it is not to be had."""
        before = self.bench.before
        if client not in {*self.bench.clients, "peak", *(["before"] if before else [])}:
            raise WorkerError("not asked for")
        python = python_of(client, self.bench.environments)
        if python is None:
            raise WorkerError("not installed (setup_peers.sh)")
        where = {"checkout": before} if before and client == "before" else {}
        worker = Worker(client, python, {**self.job, **job}, self.folder, **where)
        return self.stack.enter_context(worker)

    def ready(self, worker: Worker) -> Worker:
        """Wait until it is; `WorkerError` where its model cannot be loaded."""
        self.bench.versions[worker.client] = worker.ready()
        return worker


def values_of(measured: Measured) -> Array | None:
    """What came out, where it was an array."""
    if measured.values is None:
        return None
    values: Array = np.load(measured.values, allow_pickle=False)
    return values


def play(bench: Bench, row: Row, threads: int) -> Played:
    """All rounds of a row with so many threads."""
    model = bench.model(row.model)
    items = list(row.items(bench.workloads, bench.n(row.n)))
    played = Played(row, threads, len(items), row.shape.gflop(sequences(row, model, items)))
    reference = _reference(bench, row, model, items)
    say(f"{row.name}: {threads} threads")
    common = {"threads": threads, "device": row.device, "more": dict(row.more)}
    with bench.desk(row.task, model, items, **common) as desk:
        workers = _start(desk, row, played)
        peak = desk.ready(desk.start("peak"))
        variants = _tune(row, played, workers)
        for number in range(bench.rounds):
            turn = number % max(1, len(variants))
            _peak(played, peak)
            for variant in variants[turn:] + variants[:turn]:
                if variant.name not in played.failed:
                    _order(played, workers[variant.worker], variant, reference)
                    seconds = played.seconds.get(variant.name, [0.0])[-1]
                    say(f"  {number + 1}/{bench.rounds} {variant.name}: {seconds:.2f} s")
    for name in played.failed:
        played.seconds.pop(name, None)
    return played


def sequences(row: Row, model: Path, items: Sequence[Any]) -> list[int]:
    """Tokens of each sequence that the work needs; BERTScore encodes each distinct text once."""
    if row.task == "bertscore":
        items = sorted({text for pair in items for text in pair})
    return token_lengths(model, items)


def _reference(bench: Bench, row: Row, model: Path, items: Sequence[Any]) -> Array | None:
    """The stock model's numbers, computed once for all rows with the same work."""
    key = (row.task, row.model, row.reference.name, len(items))
    if key not in bench.references:
        say(f"{row.name}: numbers to compare with ({row.reference.name})")
        threads = len(os.sched_getaffinity(0))
        common = {"threads": threads, "device": row.device, "more": dict(row.more)}
        try:
            with bench.desk(row.task, model, items, **common) as desk:
                worker = desk.ready(desk.start(row.reference.client, **row.reference.job))
                bench.references[key] = values_of(worker.order(row.reference.options))
        except WorkerError as exc:
            say(f"  none: {exc}")
            bench.references[key] = None
    return bench.references[key]


def _start(desk: Desk, row: Row, played: Played) -> dict[tuple[str, ...], Worker]:
    """Load all models at the same time; note who failed."""
    started: dict[tuple[str, ...], Worker] = {}
    failed: dict[tuple[str, ...], str] = {}
    for variant in row.variants:
        if variant.worker not in {*started, *failed}:
            try:
                started[variant.worker] = desk.start(variant.client, **variant.job)
            except WorkerError as exc:
                failed[variant.worker] = str(exc)
    for key, worker in list(started.items()):
        try:
            desk.ready(worker)
        except WorkerError as exc:
            failed[key] = str(exc)
            del started[key]
    for variant in row.variants:
        if variant.worker in failed:
            played.failed[variant.name] = failed[variant.worker]
            say(f"  {variant.name}: {failed[variant.worker]}")
    return started


def _tune(row: Row, played: Played, workers: Mapping[tuple[str, ...], Worker]) -> list[Variant]:
    """Warm everybody up, and give those that may choose the fastest of their options."""
    ready = []
    part = max(min(played.n, WARM_UP), played.n // 2)
    for variant in row.variants:
        if variant.name in played.failed:
            continue
        worker = workers[variant.worker]
        try:
            worker.order({**variant.options, "n": WARM_UP})
            if variant.tune is not None:
                option, values = variant.tune
                times = {
                    value: worker.order({**variant.options, option: value, "n": part}).seconds
                    for value in values
                }
                best = min(times, key=times.__getitem__)
                played.tuned[variant.name] = f"{option.replace('_', ' ')} {best}"
                options = {**variant.options, option: best}
                variant = dataclasses.replace(variant, options=options)
                say(f"  {variant.name}: {played.tuned[variant.name]}")
        except WorkerError as exc:
            played.failed[variant.name] = str(exc)
            say(f"  {variant.name}: {exc}")
            continue
        ready.append(variant)
    return ready


def _peak(played: Played, worker: Worker) -> None:
    """Measure what the machine can do, now."""
    shape = played.row.shape
    options = {
        "hidden": shape.hidden,
        "inner": shape.inner,
        "tokens": PEAK_TOKENS[played.row.device],
        "ways": played.row.peak_ways,
    }
    for way, gflops in worker.order(options).figures.items():
        played.ways.setdefault(way, []).append(gflops)


def _order(played: Played, worker: Worker, variant: Variant, reference: Array | None) -> None:
    """One turn of one variant; its numbers are compared each time and the worst is kept."""
    try:
        measured = worker.order(variant.options)
    except WorkerError as exc:
        played.failed[variant.name] = str(exc)
        return
    played.seconds.setdefault(variant.name, []).append(measured.seconds)
    values = values_of(measured)
    if values is not None and reference is not None:
        found = difference(played.row.task, values, reference)
        last = played.differences.get(variant.name, found)
        played.differences[variant.name] = max(found, last, key=lambda d: d.most)
