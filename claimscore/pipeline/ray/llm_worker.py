"""The LLM stage in a process of a cluster: an engine, and several chunks open at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anyio
from anyio.from_thread import start_blocking_portal

from claimscore.pipeline.blocking import LOOP
from claimscore.pipeline.chunk_work import do_tasks, tokens_of
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.services.client import Client
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.ray.files import ToldChunk
from claimscore.pipeline.ray.job import Job, Row, done_row
from claimscore.pipeline.ray.link import Link, here
from claimscore.rundir import ChunkFiles


class Asking(NamedTuple):
    """An engine, and its way to the services."""

    engine: Engine
    client: Client

    async def tell_stats(self) -> None:
        """Return when the services know how much was asked until now."""
        await self.client.ask("quick", ("beat", self.engine.observe().as_json()))


class LLMWorker:
    """Asks what the tasks of a chunk have to ask; Ray Data calls it from several threads.

    The engine lives on an event loop of its own for as long as the process does: whoever kills it
    loses what is in flight and nothing else.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._link = Link(job.head, "LLM")
        self._asking: Asking | None = None
        self._stack = contextlib.ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal(backend_options={**LOOP}))
        self._turn = anyio.Semaphore(1)
        try:
            job.check_place(here())
            if job.needs_llm:
                opened = self._portal.wrap_async_context_manager(_open(job, self._link))
                self._asking = self._stack.enter_context(opened)
        except Exception as exc:
            self._link.failed(exc)
        self._link.start()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        link, given = self._link, Row(chunk=row["chunk"], work=row["work"])
        link.wait_until_open()
        item, finished = self._job.todo(given)
        files = ToldChunk(self._job.where, item.chunk, finished, link)
        try:
            with link.at(f"chunk {item.chunk}"):
                self._portal.call(self._ask, item, files)
                if item.passes:
                    link.waits(item.chunk, tokens_of(item.passes, files))
        except Exception as exc:
            link.failed(exc)
            raise link.wait_for_end() from None
        link.flush()
        return {**done_row(given, files.written)}

    async def _ask(self, item: ChunkTodo, files: ChunkFiles) -> None:
        """In turn: the next chunk is opened when the engine runs short."""
        engine = self._asking.engine if self._asking else None
        await self._turn.acquire()
        waiting = True

        def asked() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self._turn.release()

        try:
            if engine is not None:
                await engine.runs_short()
            await do_tasks(
                item.tasks,
                files,
                engine,
                self._job.config.granularity,
                at=self._link.at,
                on_asked=asked,
            )
        finally:
            asked()
        if self._asking is not None:
            await self._asking.tell_stats()

    def __del__(self) -> None:
        """Ray ends the process in good order: the engine leaves the services."""
        self._link.close()
        self._stack.close()


@contextlib.asynccontextmanager
async def _open(job: Job, link: Link) -> AsyncIterator[Asking]:
    """An engine, on the event loop that this runs on."""
    llm = job.config.llm
    client = Client(link.carry, name=link.name, max_outage_s=llm.max_outage_s)
    async with open_engine(
        llm,
        load_provider(llm),
        models=job.other_models,
        retry_failed=job.config.retry_failed,
        on_event=client.event,
        services=client,
    ) as engine:
        yield Asking(engine, client)
