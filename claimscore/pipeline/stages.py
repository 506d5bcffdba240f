"""The two stages of a run, working at the same time.

The LLM stage has a few chunks open and shares one engine; a chunk whose tasks are done goes
through a queue to the model stage. A full queue holds the LLM stage back. Every finished step of
a chunk stands in the run directory's manifest, so running again is resuming.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from claimscore.config import RunConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline.chunk_work import do_tasks
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.encoders.devices import Worker
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.model_stage import ModelStage
from claimscore.pipeline.progress import Progress
from claimscore.rundir import RunDirectory


class Stages:
    """Runs the missing steps of a run. One use: `await Stages(...).run()`."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        todo: Sequence[ChunkTodo],
        engine: Engine | None,
        workers: Sequence[Worker],
        progress: Progress,
    ) -> None:
        self._config = config
        self._directory = directory
        self._todo = todo
        self._engine = engine
        self._progress = progress
        self._stopping = threading.Event()
        self._reason = StoppedEarly("interrupted")
        self._at_work: set[str] = set()
        self._model_stage = ModelStage(
            directory, workers, progress, stopping=self._stopping, at=self._at
        )

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
        async with anyio.create_task_group() as group:
            group.start_soon(self._model_stage.run)
            await self._llm_stage()
            await self._model_stage.no_more()
        if self._stopping.is_set():
            raise self._reason

    async def _llm_stage(self) -> None:
        """Open chunks in order, so many at a time that the engine's workers never starve.

        And no more: requests of chunks that are open together are sent in turn, so they would be
        done together, and the models would wait for the first of them and begin the last late.
        """
        concurrency = self._engine.max_concurrency if self._engine else 1
        wanted = math.ceil(2 * concurrency / self._config.chunk_records)
        slots = anyio.Semaphore(max(2, wanted))
        async with anyio.create_task_group() as group:
            for item in self._todo:
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
            await do_tasks(
                item.tasks,
                self._directory.chunk(item.chunk),
                self._engine,
                self._config.granularity,
                at=self._at,
                on_asked=task_status.started,
            )
            if item.tasks:
                self._progress.llm_chunks_done += 1
            if item.needs_models:
                await self._model_stage.put(item)
            else:
                await anyio.to_thread.run_sync(self._directory.settle, item.chunk)
        finally:
            slots.release()

    @contextlib.contextmanager
    def _at(self, work: str) -> Iterator[None]:
        self._at_work.add(work)
        try:
            yield
        finally:
            self._at_work.discard(work)
