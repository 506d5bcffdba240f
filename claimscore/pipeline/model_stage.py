"""The model stage: chunks from one queue, on as many threads and devices as there are.

A chunk is done by one thread with the models of one device, so its batches are a function of the
chunk alone, whoever does it and in whatever order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from claimscore.pipeline.chunk_work import do_passes, tokens_of
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.encoders.devices import Models, Worker
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.token_queue import TokenQueue
from claimscore.rundir import RunDirectory

#: Tokens of model work that may wait, for each device: about two chunks of 64 pairs of summaries
#: of ten claims (12,800 pairs of 40 tokens each). Enough that a device never waits for a chunk
#: that is about to come (on one that does 200,000 tokens a second, five seconds), little
#: enough that nobody pays far ahead of what the models can take. Waiting chunks are on disk, so
#: they take no memory; each costs at least one token, so their number is bounded too.
QUEUED_TOKENS = 1_000_000


#: A chunk of more is worth many. While a device with one thread is at it, a second thread takes the
#: chunks that come behind, batch by batch in turn: else the LLM stage would soon have to wait.
LARGE_TOKENS = 8 * QUEUED_TOKENS


class _Waiting(NamedTuple):
    """A chunk in the queue, and about how many tokens it is."""

    item: ChunkTodo
    tokens: int


class _EndedError(Exception):
    """The run ends, for a reason that is raised elsewhere."""


class ModelStage:
    """Does the model passes of the chunks that are put in. One use: `await run()`.

    Once `stopping` is set no batch is begun: the chunk at work is left undone and what waits is
    dropped, for another run to do. `at` is entered around each chunk with what is done, for people.
    """

    def __init__(
        self,
        directory: RunDirectory,
        workers: Sequence[Worker],
        progress: Progress,
        *,
        stopping: threading.Event,
        at: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._queue = TokenQueue[_Waiting](QUEUED_TOKENS * max(1, len(workers)))
        self._directory = directory
        self._workers = workers
        self._progress = progress
        self._stopping = stopping
        self._at = at
        self._ended = threading.Event()
        self._helped = anyio.Event()
        self._n_large = 0
        self._drained = False

    async def put(self, item: ChunkTodo) -> None:
        """Hand a chunk whose tasks are done to the models; waits while too much is waiting."""
        tokens = await anyio.to_thread.run_sync(self._tokens, item)
        await self._queue.put(_Waiting(item, tokens), tokens)

    async def no_more(self) -> None:
        """Nothing more will be put in."""
        await self._queue.close()

    async def run(self) -> None:
        """Work until all that was put in is done, and `no_more` was said.

        What goes wrong in one thread, and a cancellation from outside, ends the others at their
        next batch: a thread cannot be cancelled, but it must not go on for a run that has ended.
        """
        async with anyio.create_task_group() as around:
            around.start_soon(self._end_threads)
            threads = CapacityLimiter(max(1, sum(max(2, w.threads) for w in self._workers)))
            async with anyio.create_task_group() as group:
                for worker in self._workers:
                    for _ in range(worker.threads):
                        group.start_soon(self._work, worker, threads)
                    if worker.threads == 1:
                        group.start_soon(self._help, worker, threads)
            around.cancel_scope.cancel()

    async def _end_threads(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._ended.set()

    async def _work(self, worker: Worker, threads: CapacityLimiter) -> None:
        async for waiting in self._queue:
            await self._take(waiting, worker, threads)
        self._drained = True
        self._helped.set()

    async def _help(self, worker: Worker, threads: CapacityLimiter) -> None:
        """Take chunks too, as long as a large one is at work."""
        while not self._drained:
            await self._helped.wait()
            if self._n_large:
                async for waiting in self._queue:
                    await self._take(waiting, worker, threads)
                    if not self._n_large:
                        break

    async def _take(self, waiting: _Waiting, worker: Worker, threads: CapacityLimiter) -> None:
        if self._is_over:
            return
        item, is_large = waiting.item, waiting.tokens > LARGE_TOKENS
        with (
            self._large_at_work() if is_large else contextlib.nullcontext(),
            self._at(f"the models on {worker.name}, at chunk {item.chunk}"),
        ):
            try:
                await anyio.to_thread.run_sync(self._do_chunk, item, worker.models, limiter=threads)
            except _EndedError:
                pass
            except BaseException:
                self._ended.set()
                raise

    @contextlib.contextmanager
    def _large_at_work(self) -> Iterator[None]:
        self._n_large += 1
        self._helped.set()
        try:
            yield
        finally:
            self._n_large -= 1
            if not (self._n_large or self._drained):
                self._helped = anyio.Event()

    @property
    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._ended.is_set()

    def _do_chunk(self, item: ChunkTodo, models: Models) -> None:
        """All model passes of one chunk, in a thread of its own."""
        do_passes(
            item.passes,
            self._directory.chunk(item.chunk),
            models,
            listen=self._progress.listener(item.chunk, len(item.passes), self._check),
            on_pass=self._progress.add_pass,
        )
        self._progress.add_chunk(item.chunk)
        self._directory.settle(item.chunk)

    def _tokens(self, item: ChunkTodo) -> int:
        """About how many tokens the passes of a chunk will give their models."""
        return tokens_of(item.passes, self._directory.chunk(item.chunk))

    def _check(self) -> None:
        """After each batch: end here if the run is over."""
        if self._is_over:
            raise _EndedError
