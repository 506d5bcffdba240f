"""The driver: gives the chunks to Ray Data, writes the manifest, tells how far it is, stops."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import uuid
from typing import Any

import anyio
import anyio.to_thread
import ray
import ray.data
from ray.data import ActorPoolStrategy
from ray.exceptions import RayActorError, RayError, RayTaskError

from claimscore import __version__
from claimscore.config import (
    API_KEY,
    EncoderConfig,
    RunConfig,
    api_key,
    model_api_key,
    model_key_name,
    user_cache_dir,
    user_state_dir,
)
from claimscore.errors import ClaimscoreError, StoppedEarly
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.encoders.devices import cpu_threads
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.encoders.store import StoreStats
from claimscore.pipeline.llm.money import SPEND_FILE
from claimscore.pipeline.llm.providers.base import Provider, base_urls
from claimscore.pipeline.llm.services.letters import Reason, error_of, reason_of
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.plan import Plan
from claimscore.pipeline.progress import PassWork, Progress
from claimscore.pipeline.ray.board import Counts, Look, Step
from claimscore.pipeline.ray.cluster import check_nodes, first_line, working_nodes
from claimscore.pipeline.ray.head import SharedFiles, start_head
from claimscore.pipeline.ray.job import Job, Row, finished_of, resolved
from claimscore.pipeline.ray.llm_worker import LLMWorker
from claimscore.pipeline.ray.model_worker import ModelWorker, look_at_models
from claimscore.pipeline.ray.place import mark_place
from claimscore.pipeline.ray.planning import LLM_CPUS, open_chunks, plan_layout, share
from claimscore.pipeline.runner import missing_roles, refuse_all_too_long, watch
from claimscore.pipeline.signals import watch_signals
from claimscore.pipeline.telling import Teller
from claimscore.rundir import RunDirectory
from claimscore.types import JSON

#: Seconds between two looks at the head.
LOOK_S = 0.25

INTERRUPTED: Reason = ("StoppedEarly", "interrupted")

#: How long the head may take to answer the driver; it may be on its way back.
_PATIENCE_S = 30.0


class RayRunner:
    """A `Runner` on the Ray that this process is connected to."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        plan: Plan,
        provider: Provider | None,
        todo: list[ChunkTodo],
        tell: Teller[Progress],
    ) -> None:
        self._directory = directory
        self._todo = todo
        self._tell = tell
        self._provider = provider
        roles = missing_roles(plan, todo)
        self._asks = any(item.tasks for item in todo)
        self._computes = any(item.passes for item in todo)
        self._layout = plan_layout(
            [node["Resources"] for node in working_nodes()],
            self._device(config.encoders, roles),
            cpu_threads(),
            computes=self._computes,
            concurrency=config.llm.max_concurrency,
        )
        self._job = self._make_job(resolved(config, plan), plan, roles)
        self._shared = self._shared_files()
        mark_place(directory.folder, self._job.head)
        check_nodes(self._job.where, self._job.head, self._job.key_names)
        self._progress = _Counting(tell.progress, directory, todo)
        self._head: Any = None
        self._why: Reason | None = None
        self._last: Look | None = None
        self._looking = anyio.Lock()

    def _make_job(self, config: RunConfig, plan: Plan, roles: list[str]) -> Job:
        layout = self._layout
        each = share(config.llm.max_concurrency, layout.llm_workers)
        encoders = dataclasses.replace(config.encoders, device=layout.device)
        llm = dataclasses.replace(config.llm, max_concurrency=each)
        return Job(
            config=dataclasses.replace(config, encoders=encoders, llm=llm),
            where=self._where(),
            version=__version__,
            tasks=plan.tasks,
            passes=plan.passes,
            roles=tuple(roles),
            other_models=plan.other_models,
            head=f"claimscore-{uuid.uuid4().hex}",
            namespace=self._provider.namespace if self._provider else "",
            calls=open_chunks(each, config.chunk_records),
            threads=layout.threads,
            expected={},
            key_names=self._key_names(roles),
            needs_llm=self._provider is not None,
        )

    @staticmethod
    def _device(encoders: EncoderConfig, roles: list[str]) -> str:
        """Models behind servers need no GPU here, whatever the cluster has."""
        if encoders.device == "auto" and all(is_served(getattr(encoders, r) or "") for r in roles):
            return "cpu"
        return encoders.device

    def _key_names(self, roles: list[str]) -> tuple[str, ...]:
        """The environment variables with keys that the work needs; nodes have their own."""
        asks = self._provider is not None and bool(base_urls(self._provider))
        names = [API_KEY] if asks and api_key() is not None else []
        served = [model_key_name(role) for role in roles if model_api_key(role) is not None]
        return (*names, *served)

    def _where(self) -> str:
        """The run's folder, as every node finds it."""
        path = self._directory.folder.local
        return self._directory.name if path is None else str(path.resolve())

    def _shared_files(self) -> SharedFiles | None:
        """What engines share, where there are any."""
        if self._provider is None:
            return None
        config = self._job.config
        return SharedFiles(
            config.llm,
            getattr(self._provider, "base_url", None),
            (config.cache_dir or user_cache_dir()).resolve(),
            user_state_dir().resolve(),
            (self._directory.state / SPEND_FILE).resolve(),
            self._job.other_models,
        )

    def load_models(self) -> JSON:
        """What a worker says of the models that it has loaded; its process is used again."""
        if not self._job.roles:
            return {}
        self._tell.phase("loading models", self._directory)
        look = ray.remote(look_at_models).options(
            num_cpus=self._layout.cpus, num_gpus=self._layout.gpus, max_retries=3
        )
        try:
            expected: JSON = ray.get(look.remote(self._job))
        except RayTaskError as exc:
            if isinstance(exc.cause, ClaimscoreError):
                raise exc.cause from None
            raise
        self._job = dataclasses.replace(self._job, expected=expected)
        return expected

    # -- the run

    async def run(self) -> None:
        """Do the missing steps, and take what the workers say into the run directory."""
        self._head = start_head(self._job.head, self._shared, self._layout.model_workers)
        try:
            await self._run()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _run(self) -> None:
        async with anyio.create_task_group() as background:
            dog = watch(
                self._job.config.llm,
                self._tell.progress,
                waiting_for=self._waiting_for,
                tell=self._tell.hear(self._directory),
                fail=lambda error: self._stop(reason_of(error)),
                background=background,
            )
            background.start_soon(watch_signals, lambda: self._stop(INTERRUPTED))
            background.start_soon(self._tell.keep_telling, self._directory, None)
            background.start_soon(self._keep_looking)
            background.start_soon(dog.run)
            await anyio.to_thread.run_sync(self._go_through)
            look, engine = await self._look()
            background.cancel_scope.cancel()
        why = look.stop or self._why
        if why is not None:
            raise error_of(why)
        if engine is not None:
            refuse_all_too_long(engine)

    async def _close(self) -> None:
        """The head's files are closed when this returns, so that another call can have them."""
        with contextlib.suppress(RayError), anyio.move_on_after(_PATIENCE_S):
            await self._head.close.remote()
        ray.kill(self._head)

    def _go_through(self) -> None:
        """Ray Data's results, as they come, in a thread. It fails when the workers were told that
        the run is over; why it is, the head knows."""
        try:
            for row in self._dataset().iter_rows():
                chunk, finished = finished_of(Row(chunk=row["chunk"], work=row["work"]))
                for step, lies in finished.items():
                    self._progress.finish(Step(chunk, step, lies))
                self._directory.settle(chunk)
        except RayError as exc:
            if self._why is None:
                raise StoppedEarly(f"Ray gave up: {first_line(exc)}") from exc

    def _dataset(self) -> Any:
        """A chunk a block: a lost worker loses what it has open, and results come one by one."""
        rows = [self._job.row(item, self._directory.finished(item.chunk)) for item in self._todo]
        data: Any = ray.data.from_items(rows, override_num_blocks=len(rows))
        if self._asks:
            data = data.map(
                LLMWorker,
                fn_constructor_args=(self._job,),
                compute=_pool(self._layout.llm_workers, self._job.calls),
                num_cpus=LLM_CPUS,
            )
        if self._computes:
            data = data.map(
                ModelWorker,
                fn_constructor_args=(self._job,),
                compute=_pool(self._layout.model_workers, 2 if self._layout.gpus else 1),
                num_cpus=self._layout.cpus,
                num_gpus=self._layout.gpus,
            )
        return data

    # -- what is seen and told

    async def _keep_looking(self) -> None:
        while True:
            look, _ = await self._look()
            if look.stop is not None:
                self._stop(look.stop)
            with contextlib.suppress(RayActorError):  # on its way back: told the next time
                if self._why is not None and look.stop is None:
                    await self._head.stop.remote(self._why)
                elif self._why is not None and look.is_idle:
                    await self._head.end.remote()
            await anyio.sleep(LOOK_S)

    async def _look(self) -> tuple[Look, EngineStats | None]:
        """What is new, taken in: it is given out once, so this is not to be cancelled."""
        async with self._looking:
            with anyio.CancelScope(shield=True):
                look, engine = await self._seen()
                self._take(look, engine)
        return look, engine

    async def _seen(self) -> tuple[Look, EngineStats | None]:
        while True:
            try:
                seen: tuple[Look, EngineStats | None] = await self._head.look.remote()
                return seen
            except RayActorError:
                await anyio.sleep(LOOK_S)

    def _take(self, look: Look, engine: EngineStats | None) -> None:
        self._last = look
        hear = self._tell.hear(self._directory)
        for step in look.steps:
            self._progress.finish(step)
        self._progress.count(look.counts)
        for kind, fields in look.notices:
            hear(kind, **fields)
        if engine is not None:
            self._tell.progress.engine = engine

    def _waiting_for(self) -> str:
        return "; ".join(self._last.open if self._last else ()) or "nothing that is known"

    # -- stopping

    def _stop(self, reason: Reason) -> None:
        """The head is told with the next look; the first reason stays."""
        if self._why is not None:
            return
        self._why = reason
        self._tell.progress.phase = "stopping: finishing what is in flight (Ctrl-C again: at once)"


class _Counting:
    """Steps that are written, each taken into the manifest once; and how far that is."""

    def __init__(self, progress: Progress, directory: RunDirectory, todo: list[ChunkTodo]) -> None:
        self._progress = progress
        self._directory = directory
        self._mutex = threading.Lock()
        self._asked = {i.chunk: {task.step for task in i.tasks} for i in todo if i.tasks}
        self._computed = {i.chunk: {p.step for p in i.passes} for i in todo if i.passes}

    def finish(self, step: Step) -> None:
        """A step that was written; a second time it is nothing new, but for the files where the
        worker of the first time died and another one wrote them again."""
        with self._mutex:
            known = self._directory.has(step.chunk, step.step)
            self._directory.finish_written(step.chunk, step.step, step.lies)
            if known:
                return
            self._progress.llm_chunks_done += self._is_last(self._asked, step)
            self._progress.model_chunks_done += self._is_last(self._computed, step)

    @staticmethod
    def _is_last(missing: dict[int, set[str]], step: Step) -> bool:
        steps = missing.get(step.chunk)
        if steps is None or step.step not in steps:
            return False
        steps.remove(step.step)
        return not steps

    def count(self, counts: Counts) -> None:
        """What the models have done."""
        progress = self._progress
        progress.pairs_done, progress.model_chunk_share = counts.pairs, counts.share
        progress.passes = {step: PassWork(*work) for step, work in counts.passes.items()}
        if counts.stored is not None:
            progress.store = StoreStats(*counts.stored)


def _pool(workers: int, calls: int) -> ActorPoolStrategy:
    """Fewer than `workers` will do where the cluster has no room for more now."""
    return ActorPoolStrategy(
        min_size=1,
        max_size=workers,
        initial_size=workers,
        max_concurrent_calls_per_actor=calls,
        enable_true_multi_threading=True,
    )
