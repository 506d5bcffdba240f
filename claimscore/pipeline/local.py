"""The missing steps of a run, done by this process: its engine, its devices, its threads."""

from __future__ import annotations

import contextlib

import anyio

from claimscore.config import RunConfig
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.devices import Worker, load_workers
from claimscore.pipeline.llm.money import SPEND_FILE
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.plan import Plan
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.runner import missing_roles, refuse_all_too_long, watch, with_store
from claimscore.pipeline.settings import model_settings
from claimscore.pipeline.signals import watch_signals
from claimscore.pipeline.stages import Stages
from claimscore.pipeline.telling import Teller
from claimscore.rundir import RunDirectory
from claimscore.types import JSON


class LocalRunner:
    """A `Runner` in this process."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        plan: Plan,
        provider: Provider | None,
        todo: list[ChunkTodo],
        tell: Teller[Progress],
    ) -> None:
        self.config = config
        self.directory = directory
        self.plan = plan
        self.provider = provider
        self.todo = todo
        self.tell = tell
        self._workers: list[Worker] = []

    def load_models(self) -> JSON:
        """The encoders on each device."""
        roles = missing_roles(self.plan, self.todo)
        if roles:
            self.tell.phase("loading models", self.directory)
        self._workers = load_workers(roles, self.config.encoders, load_model)
        if self.config.model_store:
            self._keep_results()
        return model_settings(self._workers[0].models) if self._workers else {}  # all have the same

    def _keep_results(self) -> None:
        hear = self.tell.hear(self.directory)
        models, self.tell.progress.store = with_store(
            [worker.models for worker in self._workers],
            self.config.cache_dir,
            on_notice=lambda notice: hear("store", notice=notice),
        )
        self._workers = [
            worker._replace(models=own) for worker, own in zip(self._workers, models, strict=True)
        ]

    async def run(self) -> None:
        """One engine for all chunks, threads for the devices."""
        progress, directory, hear = self.tell.progress, self.directory, self.tell.hear
        async with contextlib.AsyncExitStack() as stack:
            engine = None
            if self.provider is not None:
                engine = await stack.enter_async_context(
                    open_engine(
                        self.config.llm,
                        self.provider,
                        self.config.cache_dir,
                        models=self.plan.other_models,
                        spend_file=directory.state / SPEND_FILE,
                        retry_failed=self.config.retry_failed,
                        on_event=hear(directory),
                    )
                )
                progress.engine = engine.stats
            stages = Stages(self.config, directory, self.todo, engine, self._workers, progress)
            async with anyio.create_task_group() as background:
                dog = watch(
                    self.config.llm,
                    progress,
                    waiting_for=stages.waiting_for,
                    tell=hear(directory),
                    fail=stages.fail,
                    background=background,
                )
                background.start_soon(watch_signals, stages.stop)
                background.start_soon(self.tell.keep_telling, directory, engine)
                background.start_soon(dog.run)
                try:
                    await stages.run()
                finally:
                    if engine is not None:
                        engine.observe()
                background.cancel_scope.cancel()
            if engine is not None:
                refuse_all_too_long(engine.stats)
