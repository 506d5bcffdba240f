"""The model stage: chunks from one queue to the workers that run the models.

A worker has one device's models: on a thread of this process, or in another process of a Ray
cluster. One worker does a chunk alone, so batches are a function of the chunk, whichever worker
does it and in whatever order.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import anyio
import anyio.to_thread
import polars as pl
from anyio import CapacityLimiter

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline.encoders import Models, Worker, kept_model, load_model, load_workers
from claimscore.pipeline.encoders.devices import device_wait_s
from claimscore.pipeline.encoders.protocols import Model, OnBatch
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.passes import TABLES_READ, PassInput
from claimscore.pipeline.plan import ChunkTodo, PlannedPass
from claimscore.pipeline.progress import PassDone, Progress, ProgressReporter
from claimscore.pipeline.settings import add_settings, model_settings
from claimscore.runs import RunDirectory

#: A chunk is given to so many workers that die over it, one after the other; then the run stops.
CHUNK_TRIES = 5

#: Says whether the run ends: no batch is begun any more.
IsOver = Callable[[], bool]


#: Takes a step and the tables that it made of a chunk.
Write = Callable[[str, Mapping[str, pl.DataFrame]], None]


def read_tables(directory: RunDirectory, chunk: int) -> dict[str, pl.DataFrame]:
    """The rows of a chunk that its passes read, by table."""
    return {table: directory.read(table, chunk) for table in TABLES_READ}


def do_passes(
    item: ChunkTodo,
    tables: Mapping[str, pl.DataFrame],
    write: Write,
    models: Models,
    progress: Progress,
    is_over: IsOver,
) -> None:
    """Do the model passes of a chunk with these `tables`, in a thread; `write` what each made.

    Raises `ChunkUndoneError` after the batch in which the run ended.
    """
    passes, records = item.passes, tables["records"]

    def do(n_done: int, planned: PlannedPass) -> None:
        n_items = n_judged = 0

        def on_batch(items_done: int) -> None:
            nonlocal n_judged
            share = (n_done + items_done / max(1, n_items)) / len(passes)
            progress.add_pairs(item.chunk, items_done - n_judged, share)
            n_judged = items_done
            if is_over():
                raise ChunkUndoneError

        def listen(n: int) -> OnBatch:
            nonlocal n_items
            n_items = n
            return on_batch

        began, waited = time.monotonic(), device_wait_s()
        result = planned.model_pass.compute(
            PassInput(
                model=models[planned.model_pass.role],
                need=planned.need,
                records=records,
                read=tables.__getitem__,
                broken=_broken(planned, tables["failures"]),
                listen=listen,
            )
        )
        write(planned.step, {**result.rows, "failures": result.failures})
        seconds = time.monotonic() - began - (device_wait_s() - waited)
        progress.add_pass(planned.step, records.height, n_items, seconds)

    for n_done, planned in enumerate(passes):
        do(n_done, planned)


def _broken(planned: PlannedPass, failures: pl.DataFrame) -> frozenset[str]:
    """The records of which a task that the pass needs failed on one of its sides."""
    after = planned.model_pass.after
    if not after:
        return frozenset()
    of_sides = pl.col("stage").is_in(after) & pl.col("side").is_in(planned.need.sides)
    return frozenset(failures.filter(of_sides)["id"])


#: A pass that took less time says little of the pace.
LEAST_S = 1.0


def remember_paces(
    passes: Mapping[str, PassDone], roles: Mapping[str, str], encoders: EncoderConfig
) -> None:
    """Keep how many items a second the passes did of one device's work; `roles` are theirs."""
    for step, work in passes.items():
        if work.seconds >= LEAST_S and work.items:
            pace = {"per_second": round(work.items / work.seconds, 3)}
            open_store(None).remember(_pace_name(step, roles[step], encoders), pace)


def recall_pace(step: str, role: str, encoders: EncoderConfig) -> float | None:
    """Items a second that the pass last did on this machine; None where it is not known.

    By pass, for pairs of one are of like length, those of another may be ten times as long.
    """
    pace = open_store(None).recall(_pace_name(step, role, encoders))
    return None if pace is None else pace["per_second"]


def _pace_name(step: str, role: str, encoders: EncoderConfig) -> str:
    return f"pace | {step} | {getattr(encoders, role) or ''} | {encoders.device}"


class ChunkUndoneError(Exception):
    """The run ends; the chunk was left undone."""


class WorkerLostError(Exception):
    """The process of a worker died; the chunk that it had was left undone."""


class ModelWorker(Protocol):
    """Runs the model passes of up to `threads` chunks at a time."""

    name: str
    threads: int

    async def ready(self, is_over: IsOver) -> None:
        """Return when it can take a chunk, or the run is over."""

    async def do(self, item: ChunkTodo, is_over: IsOver) -> None:
        """Do the passes of a chunk, write their tables and make the steps count.

        Raises `ChunkUndoneError` where the run was over before the end, `WorkerLostError` where
        another worker has to do the chunk.
        """


class ModelPool(NamedTuple):
    """The workers of a run, one for each device. `tell_of_stop` tells those that cannot see it
    themselves once the run is stopped."""

    workers: Sequence[ModelWorker]
    tell_of_stop: Callable[[IsOver], Coroutine[Any, Any, None]] | None = None


class LocalModelWorker:
    """A `ModelWorker` on threads of this process."""

    def __init__(self, worker: Worker, directory: RunDirectory, progress: Progress) -> None:
        self.name, self.threads = worker.name, worker.threads
        self._models = worker.models
        self._directory = directory
        self._progress = progress
        self._limiter = CapacityLimiter(worker.threads)

    async def ready(self, is_over: IsOver) -> None:
        """At once."""

    async def do(self, item: ChunkTodo, is_over: IsOver) -> None:
        await anyio.to_thread.run_sync(self._do, item, is_over, limiter=self._limiter)

    def _do(self, item: ChunkTodo, is_over: IsOver) -> None:
        tables = read_tables(self._directory, item.chunk)
        write = partial(self._directory.write_parts, item.chunk)
        do_passes(item, tables, write, self._models, self._progress, is_over)


@contextlib.contextmanager
def local_models(
    config: RunConfig,
    directory: RunDirectory,
    roles: Sequence[str],
    reporter: ProgressReporter[Progress],
) -> Iterator[ModelPool]:
    """The models of these roles on each device that `config.encoders` names; `ConfigError` where
    one cannot be loaded, or is not the one that the folder was made with."""
    store = None
    if config.model_store:
        hear = reporter.event_listener(directory)
        store = open_store(config.cache_dir, on_notice=lambda text: hear("store", notice=text))
        reporter.progress.store = store.stats

    def load(role: str, encoders: EncoderConfig) -> Model:
        keeps = config.keep_models
        model = kept_model(role, encoders, load_model) if keeps else load_model(role, encoders)
        return model if store is None else store.around(model)

    workers: Sequence[Worker] = ()
    if roles:
        reporter.phase("loading models", directory)
        workers = load_workers(roles, config.encoders, load)
        add_settings(directory, model_settings(workers[0].models))  # the same on each
    progress = reporter.progress
    yield ModelPool([LocalModelWorker(worker, directory, progress) for worker in workers])


class _Waiting(NamedTuple):
    """A chunk in the queue, and how many workers died over it."""

    item: ChunkTodo
    deaths: int = 0


class ModelStage:
    """Does the model passes of the chunks that are put in. One use: `await run()`.

    Once `stopping` is set no batch is begun: the chunk at work is left undone and waiting chunks
    are dropped, for another run to do.
    """

    def __init__(
        self,
        pool: ModelPool,
        progress: Progress,
        *,
        stopping: threading.Event,
    ) -> None:
        self._queue = deque[_Waiting]()
        self._ready = anyio.Semaphore(0)  # what is in the queue, and at last its end
        self._pool = pool
        self._progress = progress
        self._stopping = stopping
        self._ended = threading.Event()
        self._n_open = 0
        self._has_all = False

    def put(self, item: ChunkTodo) -> None:
        """Hand a chunk whose tasks are done to the models; it waits on disk for its turn."""
        self._n_open += 1
        self._queue.append(_Waiting(item))
        self._ready.release()

    def no_more(self) -> None:
        """Nothing more will be put in."""
        self._has_all = True
        self._close_if_done()

    async def run(self) -> None:
        """Work until every chunk is done and `no_more` was called.

        An error in one worker, and a cancellation from outside, ends the others at their next
        batch: a thread cannot be cancelled, but it must not go on for a run that has ended.
        """
        async with anyio.create_task_group() as around:
            around.start_soon(self._end_threads)
            if self._pool.tell_of_stop is not None:
                around.start_soon(self._pool.tell_of_stop, self._is_stopped)
            async with anyio.create_task_group() as group:
                for worker in self._pool.workers:
                    for _ in range(worker.threads):
                        group.start_soon(self._work, worker)
            around.cancel_scope.cancel()

    async def _end_threads(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._ended.set()

    async def _work(self, worker: ModelWorker) -> None:
        await worker.ready(self._is_over)
        while (waiting := await self._next()) is not None:
            await self._take(waiting, worker)
            await worker.ready(self._is_over)

    async def _next(self) -> _Waiting | None:
        """The next chunk; None, for each worker, once all are done."""
        await self._ready.acquire()
        if not self._queue:
            self._ready.release()
            return None
        return self._queue.popleft()

    async def _take(self, waiting: _Waiting, worker: ModelWorker) -> None:
        """Do a chunk, or put it back where the worker died over it."""
        item, deaths = waiting.item, waiting.deaths + 1
        if not self._is_over():
            try:
                await worker.do(item, self._is_over)
                self._progress.add_chunk(item.chunk)
            except ChunkUndoneError:
                pass
            except WorkerLostError as lost:
                if deaths == CHUNK_TRIES:
                    raise StoppedEarly(
                        f"{CHUNK_TRIES} workers died over chunk {item.chunk}, the last one: {lost}"
                    ) from lost
                self._queue.appendleft(_Waiting(item, deaths))
                self._ready.release()
                return
            except BaseException:
                self._ended.set()
                raise
        self._n_open -= 1
        self._close_if_done()

    @property
    def _is_done(self) -> bool:
        return self._has_all and not self._n_open

    def _close_if_done(self) -> None:
        if self._is_done:
            self._ready.release()

    def _is_stopped(self) -> bool:
        return self._stopping.is_set() or self._ended.is_set()

    def _is_over(self) -> bool:
        """Whether no batch is to be begun any more."""
        return self._is_stopped() or self._is_done
