"""The progress of a run, from its folder alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from claimscore.pipeline.chunks import ChunkTodo, find_todo
from claimscore.pipeline.plan import make_plan
from claimscore.pipeline.scoring import count_claim_checks
from claimscore.pipeline.settings import config_from
from claimscore.pipeline.spending import run_spent
from claimscore.runs import RunDirectory, damage_as_error, retry_if_compacted
from claimscore.types import JSON


@retry_if_compacted
def run_status(out: Path | str) -> JSON:
    """Chunks done and left, rows by table, failures by stage and kind, spending so far.

    Reads only the manifest and the settings, so it is quick and may be called while the
    run works. Raises `ConfigError` where `out` is not a run directory.
    """
    directory = RunDirectory.reader(out)
    with damage_as_error(out):
        return _status(out, directory)


def _status(out: Path | str, directory: RunDirectory) -> JSON:
    begun: JSON = {
        "out": str(out),
        "running": directory.is_locked,
        "spent": dataclasses.asdict(run_spent(directory)),
        "last_call": directory.note(),
    }
    if not directory.has(0, "records"):
        return {**begun, "records": None, "failures": [], "complete": False}
    # What is left does not depend on prompts, whose files may be gone by now.
    config = dataclasses.replace(config_from(directory.options(), out), prompts={})
    records = directory.settings["records"]["count"]
    n_chunks = directory.n_chunks
    plan = make_plan(config, directory.read("records", 0).columns)
    todo = find_todo(plan, directory, n_chunks, retry_failed=False)
    size = directory.settings["chunk_records"]

    def records_in(items: Iterable[ChunkTodo]) -> int:
        return sum(min(size, records - size * item.chunk) for item in items)

    complete = not todo and directory.storage.exists("scores.parquet")
    return {
        **begun,
        "records": records,
        "chunks": {"total": n_chunks, "done": n_chunks - len(todo), "left": len(todo)},
        "records_left": {
            "all": records_in(todo),
            "llm": records_in(item for item in todo if item.tasks),
            "models": records_in(item for item in todo if item.passes),
        },
        "llm_chunks_left": sum(bool(item.tasks) for item in todo),
        "model_chunks_left": sum(bool(item.passes) for item in todo),
        "rows": directory.counts(),
        "failures": directory.failures_by_kind(),
        "claim_checks": count_claim_checks(directory),
        "complete": complete,
        "metrics": directory.summary().get("metrics", {}) if complete else {},
    }
