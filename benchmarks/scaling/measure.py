"""The costs of a run beside waiting, measured here: the figures of docs/explanation/scaling.md.

    OMP_NUM_THREADS=1 python benchmarks/scaling/measure.py --work /tmp/measure

Costs are CPU seconds, so other work on the machine disturbs them little; the cache's writer and
the parts are also timed by wall clock, since they wait for the disk. The LLM is the loopback
server in a process of its own, and answers at once; where models are only in the way they are a
stub. Real texts: hotel pairs and products of shared/data (`--data`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "engine"))

from server import Server  # noqa: E402  # of the benchmark of the engine

METRICS = ("caspr", "ds", "bs-inverse")


def hotel_pairs(data: Path) -> list[dict[str, str]]:
    """The 48 contrastive pairs of the CASPR data."""
    lines = (data / "caspr" / "comparisons.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["comparison"] == "ref_contrastive"]
    return [{"id": r["id"], "summary_a": r["text_a"], "summary_b": r["text_b"]} for r in rows]


def products(data: Path) -> list[dict[str, Any]]:
    """60 products with eight reviews and a summary each."""
    lines = (data / "factsim" / "copycat_amazon_gold.jsonl").read_text("utf-8").splitlines()
    return [
        {"id": str(n), "sources": row["reviews"], "summary": row["references"][0]}
        for n, row in enumerate(map(json.loads, lines))
    ]


def many(records: Sequence[Mapping[str, Any]], n: int) -> Iterator[dict[str, str]]:
    """`n` records, no two sentences of which are alike."""
    for number in range(n):
        record = records[number % len(records)]
        texts = {
            name: text.replace(". ", f" in house {number}. ")
            for name, text in record.items()
            if name != "id"
        }
        yield {"id": str(number), **texts}


def written(path: Path, records: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


class StubClassifier:
    """One third to everything, at once."""

    def __init__(self) -> None:
        from claimscore.pipeline.encoders.protocols import ModelInfo

        self.info = ModelInfo("stub", "1", "float32")

    def classify(self, pairs: Sequence[Any], *, on_batch: Any = None) -> Any:
        if on_batch is not None:
            on_batch(len(pairs))
        return np.full((len(pairs), 3), 1 / 3, dtype=np.float32)


class StubTokenEncoder(StubClassifier):
    """One half to every pair."""

    layer, baseline = 1, None

    def bertscore(self, candidates: Sequence[str], references: Any, *, on_batch: Any = None) -> Any:
        if on_batch is not None:
            on_batch(len(candidates))
        return np.full((len(candidates), 3), 0.5)


def measured_run(config: Any, *, stub: bool) -> dict[str, Any]:
    """A run, with the CPU seconds of each of its phases."""
    from claimscore.pipeline import model_stage
    from claimscore.pipeline.run import run

    load = model_stage.load_model
    if stub:
        stubs = {"nli": StubClassifier(), "token_encoder": StubTokenEncoder()}
        model_stage.load_model = lambda role, encoders: stubs[role]
    phases: dict[str, float] = {}
    state = {"phase": "reading", "cpu": time.process_time()}

    def note(progress: Any) -> None:
        if progress.phase != state["phase"]:
            now = time.process_time()
            phases[state["phase"]] = phases.get(state["phase"], 0.0) + now - state["cpu"]
            state.update(phase=progress.phase, cpu=now)

    try:
        result = run(config, on_progress=note)
    finally:
        model_stage.load_model = load
    return {"phases": phases, "summary": result.summary}


def sizes(folder: Path) -> dict[str, int]:
    """Bytes of the files in each folder of a run."""
    return {
        table.name: sum(file.stat().st_size for file in table.rglob("*") if file.is_file())
        for table in folder.iterdir()
        if table.is_dir()
    }


def of_real_records(work: Path, data: Path) -> dict[str, Any]:
    """A record of each kind with the rules and the embedded models: its work and its bytes."""
    import torch

    from claimscore.config import RunConfig
    from claimscore.pipeline.estimate import estimate_run
    from claimscore.pipeline.passes.pass_counts import count_items, count_tokens
    from claimscore.pipeline.plan import make_plan
    from claimscore.runs import RunDirectory

    torch.set_num_threads(1)
    kinds = {
        "pairs": (hotel_pairs(data), METRICS),
        "products": (products(data), ("factsim",)),
    }
    found = {}
    for kind, (records, metrics) in kinds.items():
        folder = work / kind
        source = written(work / f"{kind}.jsonl", records)
        config = RunConfig(str(source), folder / "run", metrics, cache_dir=folder / "cache")
        asked = estimate_run(config)
        done = measured_run(config, stub=False)
        directory = RunDirectory.reader(folder / "run")
        plan = make_plan(config, list(directory.read("records", 0).columns))
        passes = {}
        for planned in plan.passes:
            tokens = items = 0
            for chunk in range(directory.n_chunks):
                frame = directory.read("records", chunk)
                files = directory.chunk(chunk)
                given = (planned.model_pass, planned.need, frame, files.read)
                tokens, items = tokens + count_tokens(*given), items + count_items(*given)
            seconds = done["summary"]["last_call"]["passes"][planned.step]["seconds"]
            passes[planned.step] = {
                "items_a_record": items / len(records),
                "tokens_a_record": tokens / len(records),
                "seconds": seconds,
                "tokens_a_second": tokens / seconds,
            }
        n_requests = done["summary"]["last_call"]["requests"]
        cache_bytes = sum(f.stat().st_size for f in (folder / "cache").glob("cache.db*"))
        rows = directory.manifest.counts()
        found[kind] = {
            "records": len(records),
            "requests_a_record": n_requests / len(records),
            "prompt_tokens_a_request": asked.prompt_tokens.expected / asked.requests,
            "completion_tokens_a_request": asked.completion_tokens.expected / asked.requests,
            "cache_bytes_an_answer": cache_bytes / n_requests,
            "rows_a_record": {table: n / len(records) for table, n in rows.items()},
            "table_bytes_a_record": {
                table: size / len(records) for table, size in sizes(folder / "run").items()
            },
            "scores_bytes_a_record": (folder / "run" / "scores.parquet").stat().st_size
            / len(records),
            "passes": passes,
            "cpu_s": done["phases"],
        }
    return found


def of_the_llm_stage(work: Path, data: Path, n: int) -> dict[str, float]:
    """CPU seconds of a whole run with one task, a request, answers at once."""
    from claimscore.config import LLMConfig, RunConfig

    source = written(work / "llm.jsonl", many(hotel_pairs(data), n))
    with Server(work, {"text": None}) as server:
        llm = LLMConfig(model="openai:m", base_url=server.base_url, max_concurrency=128)
        config = RunConfig(
            str(source), work / "llm", (), ("decompose",), llm=llm, cache_dir=work / "llm-cache"
        )
        began = time.perf_counter()
        done = measured_run(config, stub=True)
        wall = time.perf_counter() - began
    n_requests = done["summary"]["last_call"]["requests"]
    running = done["phases"]["running"]
    return {
        "requests": n_requests,
        "cpu_s_a_request": running / n_requests,
        "read_cpu_s_a_record": done["phases"]["reading"] / n,
        "requests_a_second": n_requests / wall,
    }


def of_the_rest(work: Path, data: Path, n: int) -> dict[str, float]:
    """CPU seconds of reading, of the model stage without models, and of scoring, a record.

    The rules answer; what they cost is measured by a run that finds all answers in the cache.
    """
    from claimscore.config import RunConfig

    source = written(work / "rest.jsonl", many(hotel_pairs(data), n))
    config = RunConfig(
        str(source), work / "rest", ("ds",), ("decompose",), cache_dir=work / "rest-cache"
    )
    measured_run(config, stub=True)  # answers are in the cache from here on
    cached = dataclasses.replace(config, out=work / "cached")
    without = measured_run(cached, stub=True)["phases"]
    whole = dataclasses.replace(config, out=work / "whole", metrics=METRICS, tasks=())
    done = measured_run(whole, stub=True)
    again = measured_run(whole, stub=True)["phases"]
    return {
        "records": n,
        "pairs_a_record": done["summary"]["last_call"]["nli_pairs"] / n,
        "read_cpu_s_a_record": done["phases"]["reading"] / n,
        "cached_llm_stage_cpu_s_a_record": without["running"] / n,
        "model_stage_cpu_s_a_record": (done["phases"]["running"] - without["running"]) / n,
        "scoring_cpu_s_a_record": done["phases"]["scoring"] / n,
        "again_cpu_s_a_record": {name: s / n for name, s in again.items()},
        "files_a_record": sum(1 for f in (work / "whole").rglob("*") if f.is_file()) / n,
        "bytes_a_record": sum(f.stat().st_size for f in (work / "whole").rglob("*") if f.is_file())
        / n,
    }


def of_the_cache(work: Path) -> dict[str, float]:
    """Wall seconds of the one writer an answer, by how many are committed together."""
    from claimscore.cache.entry import Entry
    from claimscore.cache.store import DiskCache
    from claimscore.types import Completion, Usage

    answer = json.dumps({"claims": ["The room is clean.", "The room is quiet."]})
    entry = Entry(Completion(answer, "m", "stop", Usage(220, 25)))
    found = {}
    for group in (1, 16, 64, 256):
        cache = DiskCache(work / f"cache-{group}")
        rounds, n_groups = [], max(4, 2048 // group)
        for round_ in range(3):
            began = time.perf_counter()
            for g in range(n_groups):
                cache.put_many({f"{round_:032x}{g:016x}{i:016x}": entry for i in range(group)})
            rounds.append((time.perf_counter() - began) / (n_groups * group))
        cache.close()
        found[f"group_{group}"] = statistics.median(rounds)
    return found


def of_parts(work: Path) -> dict[str, float]:
    """Wall seconds of writing what a step made of a chunk, with the line that makes it count."""
    from claimscore.runs import RunDirectory
    from claimscore.tables import TABLES

    n = 64 * 288
    schema = TABLES["nli"].schema
    nli = pl.DataFrame(
        {
            name: pl.Series(
                [f"record-{i // 288}" for i in range(n)] if dtype == pl.String else range(n),
                strict=False,
            ).cast(dtype, strict=False)
            for name, dtype in schema.items()
        },
        schema=schema,
    )
    found = {}
    with RunDirectory(work / "parts") as directory:
        for name, frame in {"nli": nli, "small": nli.head(64)}.items():
            took = []
            for chunk in range(40):
                began = time.perf_counter()
                directory.write_parts(chunk, f"nli-{name}", {"nli": frame})
                took.append(time.perf_counter() - began)
            found[f"{name}_s_a_step"] = statistics.median(took)
    return found


def where_there(measure: Callable[..., Any], *given: Any) -> Any:
    """What is measured, or why it is not: an extra may be missing."""
    try:
        return measure(*given)
    except ImportError as exc:
        return f"not measured: {exc}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="An empty folder.")
    parser.add_argument("--data", type=Path, default=ROOT / "shared" / "data")
    parser.add_argument("--records", type=int, default=640, help="Of the larger measurements.")
    arguments = parser.parse_args()
    work, data = arguments.work, arguments.data
    os.environ["CLAIMSCORE_STATE_DIR"] = str(work / "state")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.environ |= {
        "CLAIMSCORE_CACHE_DIR": str(work / "user-cache"),
        "CLAIMSCORE_STATE_DIR": str(work / "user-state"),
    }
    found = {
        "cache_write_s_an_answer": of_the_cache(work),
        "parts": of_parts(work),
        "llm_stage": of_the_llm_stage(work, data, arguments.records),
        "rest": of_the_rest(work, data, arguments.records),
        "real_records": of_real_records(work, data),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
