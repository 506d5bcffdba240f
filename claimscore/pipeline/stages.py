"""The two stages of a run, working at the same time.

The LLM stage has a few chunks open and one engine; a chunk whose tasks are done goes through a
queue to the model stage, which never holds requests up. Every finished step of a chunk stands in
the run directory's manifest, so running again is resuming. Tasks that read what models made are
asked once all chunks are through the models (decision 116).

`--engine local` and `--engine ray` differ in the `ModelPool` that they give, and in nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Sequence

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, Ledger
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import do_tasks, plan_engine
from claimscore.pipeline.model_stage import ModelPool, ModelStage
from claimscore.pipeline.plan import CHUNK_RECORDS, ChunkTodo, Plan, in_turn
from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.supervision import supervised
from claimscore.runs import RunDirectory

logger = logging.getLogger(__name__)


def missing_roles(plan: Plan, todo: Sequence[ChunkTodo]) -> list[str]:
    """The models that missing passes ask; `ConfigError` where a pass cannot be done here."""
    passes = {planned.model_pass for item in todo for planned in item.passes}
    for model_pass in passes:
        model_pass.check()
    roles = {model_pass.role for model_pass in passes}
    return [role for role in plan.roles if role in roles]


async def run_stages(
    plan: Plan,
    directory: RunDirectory,
    todo: Sequence[ChunkTodo],
    pool: ModelPool,
    reporter: ProgressReporter[Progress],
) -> None:
    """Do the missing steps of a run: questions by one engine in this process, models in `pool`.

    Listens to signals and tells the progress meanwhile. Raises the
    reason where something stops it: `StoppedEarly` for what another call can go on with.
    """
    progress = reporter.progress
    async with contextlib.AsyncExitStack() as stack:
        engine = None
        if plan.providers:
            ledger = stack.enter_context(contextlib.closing(Ledger(directory.state / SPEND_FILE)))
            engine = await stack.enter_async_context(
                plan_engine(plan, reporter.event_listener(directory), ledger, directory.remote)
            )
            progress.engine = engine.stats
        stages = Stages(plan, directory, todo, engine, pool, progress)
        async with supervised(engine, directory, reporter, stop=stages.stop):
            await stages.run()


class Stages:
    """Runs the missing steps of a run. One use: `await Stages(...).run()`."""

    def __init__(
        self,
        plan: Plan,
        directory: RunDirectory,
        todo: Sequence[ChunkTodo],
        engine: Engine | None,
        pool: ModelPool,
        progress: Progress,
    ) -> None:
        self._chunk_records = plan.config.chunk_records or CHUNK_RECORDS
        self._directory = directory
        self._todo = todo
        self._engine = engine
        self._progress = progress
        self._stopping = threading.Event()
        self._reason: StoppedEarly | None = None
        self._pool = pool

    def stop(self, reason: StoppedEarly | None = None) -> None:
        """Ask for a stop: no new requests, no new batches; finished steps stay finished. The first
        reason is the one that `run` raises."""
        self._reason = self._reason or reason or StoppedEarly("interrupted")
        self._stopping.set()
        if self._engine is not None:
            self._engine.stop(self._reason)

    async def run(self) -> None:
        """Do all that is missing; `StoppedEarly` after `stop`."""
        for part in in_turn(self._todo):
            self._model_stage = ModelStage(self._pool, self._progress, stopping=self._stopping)
            async with anyio.create_task_group() as group:
                group.start_soon(self._model_stage.run)
                await self._llm_stage(part)
                self._model_stage.no_more()
            if self._reason is not None:
                raise self._reason

    async def _llm_stage(self, todo: Sequence[ChunkTodo]) -> None:
        """Open chunks in order, so many at a time that the engine's workers never starve.

        And no more: requests of chunks that are open together are sent in turn, so they would be
        done together, and the models would wait for the first of them and begin the last late.
        """
        concurrency = self._engine.max_concurrency if self._engine else 1
        wanted = math.ceil(2 * concurrency / self._chunk_records)
        slots = anyio.Semaphore(max(2, wanted))
        async with anyio.create_task_group() as group:
            for item in todo:
                await slots.acquire()
                if self._engine is not None:
                    await self._engine.runs_short()
                if self._stopping.is_set():
                    return
                await group.start(self._llm_chunk, item, slots)

    async def _llm_chunk(
        self, item: ChunkTodo, slots: anyio.Semaphore, *, task_status: TaskStatus[None]
    ) -> None:
        """All tasks of one chunk; the slot is held until it is in the model stage's queue.

        It counts as started once the engine knows of its first requests.
        """
        try:
            if item.tasks:
                await do_tasks(
                    item.tasks,
                    self._directory,
                    item.chunk,
                    self._engine,
                    on_asked=task_status.started,
                )
                self._progress.llm_chunks_done += 1
                logger.debug("language model: chunk %d is done", item.chunk)
            else:
                task_status.started()
            if item.passes:
                self._model_stage.put(item)
        finally:
            slots.release()
