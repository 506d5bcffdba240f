"""The two stages of a run, working at the same time.

The LLM stage has several chunks open and shares one engine; a chunk whose tasks are done
goes through a bounded stream to the model stage, which is one worker thread. A full stream
holds the LLM stage back. Every finished step of a chunk stands in the run directory's
manifest, so running again is resuming.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import anyio
import anyio.to_thread
import polars as pl
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from claimscore.config import RunConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline.encoders.base import Model, OnBatch
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import run_task
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.plan import Plan, PlannedPass, PlannedTask
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.tasks import TASKS
from claimscore.rundir import RunDirectory

#: Chunks that may wait between the stages.
QUEUED_CHUNKS = 2


@dataclasses.dataclass(frozen=True)
class ChunkTodo:
    """What is missing of one chunk."""

    chunk: int
    tasks: tuple[PlannedTask, ...] = ()
    passes: tuple[PlannedPass, ...] = ()

    @property
    def needs_models(self) -> bool:
        return bool(self.passes)


#: The loaded models by role: those that a missing step needs.
Models = Mapping[str, Model]


def find_todo(
    plan: Plan, directory: RunDirectory, n_chunks: int, retry_failed: bool
) -> list[ChunkTodo]:
    """The chunks with missing steps, in order.

    With `retry_failed`, the steps that left failures are forgotten first, and with them
    the steps that were made from their rows.
    """
    todo = []
    for chunk in range(n_chunks):
        if retry_failed:
            _forget_failed(plan, directory, chunk)
        item = _chunk_todo(plan, directory, chunk)
        if item.tasks or item.needs_models:
            todo.append(item)
    return todo


def _chunk_todo(plan: Plan, directory: RunDirectory, chunk: int) -> ChunkTodo:
    steps = directory.steps(chunk)
    return ChunkTodo(
        chunk,
        tuple(part for task in plan.tasks if (part := _missing_sides(task, steps))),
        tuple(planned for planned in plan.passes if planned.step not in steps),
    )


def waves(tasks: Sequence[PlannedTask]) -> Iterator[list[PlannedTask]]:
    """The tasks in groups, each after those whose rows it reads."""
    left = list(tasks)
    while left:
        names = {planned.task.name for planned in left}
        ready = [planned for planned in left if not names.intersection(planned.task.after)]
        yield ready
        left = [planned for planned in left if planned not in ready]


def _missing_sides(planned: PlannedTask, steps: frozenset[str]) -> PlannedTask | None:
    """The task for the sides that no finished step covers; None where all are covered."""
    done = {
        side
        for step in steps
        if step.partition("-")[0] == planned.task.name
        for side in step.split("-")[1:]
    }
    sides = tuple(side for side in planned.sides if side not in done)
    return dataclasses.replace(planned, sides=sides) if sides else None


def _forget_failed(plan: Plan, directory: RunDirectory, chunk: int) -> None:
    stages = set(directory.read("failures", chunk)["stage"].unique())
    if not stages:
        return
    for planned in plan.tasks:
        if stages.intersection(planned.task.after):
            stages.add(planned.task.name)
    for planned_pass in plan.passes:
        if stages.intersection(planned_pass.model_pass.after):
            stages.add(planned_pass.model_pass.kind)
    for step in directory.steps(chunk):
        if step.partition("-")[0] in stages:
            directory.forget(chunk, step)


class Stages:
    """Runs the missing steps of a run. One use: `await Stages(...).run()`."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        todo: Sequence[ChunkTodo],
        engine: Engine | None,
        models: Models,
        progress: Progress,
    ) -> None:
        self._config = config
        self._directory = directory
        self._todo = todo
        self._engine = engine
        self._models = models
        self._progress = progress
        self._stopping = threading.Event()
        self._reason = StoppedEarly("interrupted")
        self._at_work: set[str] = set()

    def stop(self) -> None:
        """Ask for a stop: no new requests, no new batches; what is done stays done."""
        self._stopping.set()
        self._progress.phase = "stopping: finishing what is in flight (Ctrl-C again: at once)"
        if self._engine is not None:
            self._engine.stop()

    def fail(self, reason: StoppedEarly) -> None:
        """Stop for a reason that somebody else found."""
        self._reason = reason
        self.stop()

    def waiting_for(self) -> str:
        """What is being waited for, for people who wonder why nothing happens."""
        work = [*sorted(self._at_work), *([self._engine.waiting_for()] if self._engine else [])]
        return "; ".join(item for item in work if item) or "nothing that is known"

    async def run(self) -> None:
        """Do all that is missing; `StoppedEarly` after `stop`."""
        send, receive = anyio.create_memory_object_stream[ChunkTodo](QUEUED_CHUNKS)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._model_stage, receive)
                async with send:
                    await self._llm_stage(send)
        except BaseException:
            self._stopping.set()  # the model thread must not go on for a run that has ended
            raise
        if self._stopping.is_set():
            raise self._reason

    async def _llm_stage(self, send: MemoryObjectSendStream[ChunkTodo]) -> None:
        """Open chunks in order, so many at a time that the engine's workers never starve."""
        concurrency = self._engine.max_concurrency if self._engine else 1
        wanted = math.ceil(2 * concurrency / self._config.chunk_records)
        slots = anyio.Semaphore(max(2, wanted))
        async with anyio.create_task_group() as group:
            for item in self._todo:
                await slots.acquire()
                if self._stopping.is_set():
                    return
                group.start_soon(self._llm_chunk, item, send, slots)

    async def _llm_chunk(
        self, item: ChunkTodo, send: MemoryObjectSendStream[ChunkTodo], slots: anyio.Semaphore
    ) -> None:
        """All tasks of one chunk; the slot is held until the model stage has taken it."""
        try:
            for wave in waves(item.tasks):
                async with anyio.create_task_group() as group:
                    for planned in wave:
                        group.start_soon(self._task_step, item.chunk, planned)
            if item.tasks:
                self._progress.llm_chunks_done += 1
            if item.needs_models:
                await send.send(item)
        finally:
            slots.release()

    async def _task_step(self, chunk: int, planned: PlannedTask) -> None:
        records = self._directory.read("records", chunk)
        before = {TASKS[name].table.name for name in planned.task.after}
        tables = {table: self._directory.read(table, chunk) for table in before}
        result = await run_task(planned, records, tables, self._engine, self._config.granularity)
        frames = {planned.task.table.name: result.rows, "failures": result.failures}
        with self._at(f"the disk, at {planned.step} of chunk {chunk}"):
            await anyio.to_thread.run_sync(self._directory.write_parts, chunk, planned.step, frames)

    @contextlib.contextmanager
    def _at(self, work: str) -> Iterator[None]:
        self._at_work.add(work)
        try:
            yield
        finally:
            self._at_work.discard(work)

    async def _model_stage(self, receive: MemoryObjectReceiveStream[ChunkTodo]) -> None:
        worker = anyio.CapacityLimiter(1)
        async with receive:
            async for item in receive:
                with self._at(f"the models, at chunk {item.chunk}"):
                    await anyio.to_thread.run_sync(self._model_chunk, item, limiter=worker)

    def _model_chunk(self, item: ChunkTodo) -> None:
        """All model passes of one chunk, in the worker thread."""
        chunk = item.chunk
        records = self._directory.read("records", chunk)
        for planned in item.passes:
            began = time.monotonic()
            result = planned.model_pass.compute(
                PassInput(
                    model=self._models[planned.model_pass.role],
                    need=planned.need,
                    records=records,
                    read=functools.partial(self._read, chunk),
                    broken=self._broken(chunk, planned),
                    listen=self._listen,
                )
            )
            frames = {**result.rows, "failures": result.failures}
            self._directory.write_parts(chunk, planned.step, frames)
            self._progress.add_pass(planned.step, records.height, time.monotonic() - began)
        self._progress.model_chunk_share = 0.0
        self._progress.model_chunks_done += 1

    def _read(self, chunk: int, table: str) -> pl.DataFrame:
        return self._directory.read(table, chunk)

    def _broken(self, chunk: int, planned: PlannedPass) -> frozenset[str]:
        """The records of which a task that the pass needs failed on one of its sides."""
        after = planned.model_pass.after
        if not after:
            return frozenset()
        failures = self._directory.read("failures", chunk)
        of_sides = pl.col("stage").is_in(after) & pl.col("side").is_in(planned.need.sides)
        return frozenset(failures.filter(of_sides)["id"])

    def _listen(self, pairs: int) -> OnBatch:
        """What a model calls after each batch of `pairs`: keeps count, and stops it if need be."""
        before = self._progress.pairs_done

        def on_batch(done: int) -> None:
            self._progress.pairs_done = before + done
            self._progress.model_chunk_share = done / pairs
            if self._stopping.is_set():
                raise self._reason

        return on_batch
