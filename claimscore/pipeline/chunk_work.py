"""What is done with one chunk: its tasks, then its model passes.

The same functions for every runner: which process, thread or machine calls them, and who else
works at the same time, is not their business.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import anyio
import anyio.to_thread
import polars as pl
from anyio import lowlevel

from claimscore.config import Granularity
from claimscore.pipeline.chunks import waves
from claimscore.pipeline.encoders.base import OnBatch
from claimscore.pipeline.encoders.devices import Models
from claimscore.pipeline.encoders.turns import waited_s
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import known_failures, run_task
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.counting import count_tokens
from claimscore.pipeline.plan import PlannedPass, PlannedTask
from claimscore.pipeline.tasks import TASKS
from claimscore.rundir import ChunkFiles
from claimscore.types import Failure

#: Entered around work that may take long, with what it is, for people.
At = Callable[[str], AbstractContextManager[None]]


async def do_tasks(
    tasks: Sequence[PlannedTask],
    files: ChunkFiles,
    engine: Engine | None,
    granularity: Granularity,
    *,
    at: At,
    on_asked: Callable[[], None] = lambda: None,
) -> None:
    """Ask all that the tasks have to ask about a chunk and write what came of it.

    `on_asked` is called once the engine knows of the first requests. Raises what stops the engine.
    """
    told = False
    records, failed = pl.DataFrame(), pl.DataFrame()
    if tasks:
        records = await anyio.to_thread.run_sync(files.read, "records")
        failed = await anyio.to_thread.run_sync(files.read, "failures")
    for wave in waves(tasks):
        async with anyio.create_task_group() as group:
            for planned in wave:
                known = known_failures(failed, planned.task.name)
                group.start_soon(
                    _task_step, planned, files, records, known, engine, granularity, at
                )
            if not told:
                await lowlevel.checkpoint()
                on_asked()
                told = True
    if not told:
        on_asked()


async def _task_step(
    planned: PlannedTask,
    files: ChunkFiles,
    records: pl.DataFrame,
    known: Mapping[str, Failure],
    engine: Engine | None,
    granularity: Granularity,
    at: At,
) -> None:
    before = {TASKS[name].table.name for name in planned.task.after}
    tables = {table: await anyio.to_thread.run_sync(files.read, table) for table in before}
    result = await run_task(planned, records, tables, engine, granularity, known)
    frames = {planned.task.table.name: result.rows, "failures": result.failures}
    with at(f"the disk, at {planned.step} of chunk {files.chunk}"):
        await anyio.to_thread.run_sync(files.write, planned.step, frames)


def do_passes(
    passes: Sequence[PlannedPass],
    files: ChunkFiles,
    models: Models,
    *,
    listen: Callable[[int, int], OnBatch],
    on_pass: Callable[[str, int, float], None],
) -> None:
    """Do the model passes of a chunk and write their tables.

    `listen` gets how many passes are done and how many items the next one has, and gives what to
    call after each batch; `on_pass` hears of each pass that ended: step, records, seconds.
    """
    records = files.read("records")
    for done, planned in enumerate(passes):
        began, waited = time.monotonic(), waited_s()
        result = planned.model_pass.compute(
            PassInput(
                model=models[planned.model_pass.role],
                need=planned.need,
                records=records,
                read=files.read,
                broken=_broken(planned, files),
                listen=functools.partial(listen, done),
            )
        )
        files.write(planned.step, {**result.rows, "failures": result.failures})
        seconds = time.monotonic() - began - (waited_s() - waited)
        on_pass(planned.step, records.height, seconds)


def tokens_of(passes: Sequence[PlannedPass], files: ChunkFiles) -> int:
    """About how many tokens the passes of a chunk will give their models."""
    records = files.read("records")
    return sum(
        count_tokens(planned.model_pass, planned.need, records, files.read) for planned in passes
    )


def _broken(planned: PlannedPass, files: ChunkFiles) -> frozenset[str]:
    """The records of which a task that the pass needs failed on one of its sides."""
    after = planned.model_pass.after
    if not after:
        return frozenset()
    of_sides = pl.col("stage").is_in(after) & pl.col("side").is_in(planned.need.sides)
    return frozenset(files.read("failures").filter(of_sides)["id"])
