"""The actor on the driver's node: what all engines share, and what workers tell the driver."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from claimscore.config import LLMConfig, set_environment
from claimscore.pipeline.llm.services.head import Services
from claimscore.pipeline.llm.services.letters import Letter, Reason, Reply, error_of
from claimscore.pipeline.llm.services.opening import open_services
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.ray.board import Board, Look, Orders, Report


class SharedFiles(NamedTuple):
    """What the services of a run are opened with, on the driver's node."""

    llm: LLMConfig
    base_url: str | None
    cache_dir: Path
    state_dir: Path
    spend_file: Path
    models: tuple[str, ...]


class Head:
    """`Services` and `Board` behind one address. Killed and started again it goes on: what must
    not be lost is in files, and the workers say the rest again."""

    def __init__(self, name: str, shared: SharedFiles | None, model_workers: int) -> None:
        self._board = Board(model_workers)
        self._files = contextlib.ExitStack()
        self._services: Services | None = None
        if shared is not None:
            set_environment({"CLAIMSCORE_STATE_DIR": str(shared.state_dir)}, override=True)
            self._services = self._files.enter_context(
                open_services(
                    shared.llm,
                    shared.base_url,
                    shared.cache_dir,
                    models=shared.models,
                    spend_file=shared.spend_file,
                    run=name,
                    tell=self._board.notice,
                )
            )

    async def handle(self, letter: Letter) -> Reply:
        """A letter of an engine."""
        assert self._services is not None, "an engine needs services"
        return await self._services.handle(letter)

    async def report(self, report: Report) -> Orders:
        """What a worker has done; what it is to do."""
        orders = self._board.hear(report, self._reason())
        if report.error is not None and self._services is not None:
            self._services.stop(error_of(report.error))
        for worker in self._board.lost():
            if self._services is not None:
                self._services.gone(worker)
        return orders

    async def look(self) -> tuple[Look, EngineStats | None]:
        """What is new for the driver."""
        services = self._services
        if services is not None:
            services.sweep()
        look = self._board.look()._replace(stop=self._reason())
        return look, None if services is None else services.stats()

    async def stop(self, reason: Reason) -> None:
        """Nothing more is to be begun."""
        self._board.error = self._board.error or reason
        if self._services is not None:
            self._services.stop(error_of(reason))

    async def end(self) -> None:
        """The run is over: workers fail what still waits."""
        self._board.is_over = True

    async def close(self) -> None:
        """Write what has ended and give the files back."""
        self._services = None
        self._files.close()

    async def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def _reason(self) -> Reason | None:
        reason = None if self._services is None else self._services.reason
        return reason or self._board.error


def start_head(name: str, shared: SharedFiles | None, model_workers: int) -> Any:
    """The head, on this node, restarted as often as it dies; gone with this process."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    head: Any = (
        ray.remote(Head)
        .options(name=name, num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        .remote(name, shared, model_workers)
    )
    return head
