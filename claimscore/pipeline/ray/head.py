"""The actor on the driver's node: what all engines share, and what workers tell the driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from claimscore.pipeline.llm.services.letters import Letter, Reason, Reply, error_of
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.ray.board import Board, Look, Orders, Report

if TYPE_CHECKING:
    from claimscore.pipeline.llm.services.head import Services


class Head:
    """`Services` and `Board` behind one address. Killed and started again it goes on: what must
    not be lost is in files, and the workers say the rest again."""

    def __init__(
        self, open_services: Callable[[Callable[..., None]], Services] | None, model_workers: int
    ) -> None:
        self._board = Board(model_workers)
        self._services = None if open_services is None else open_services(self._board.notice)

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
        if self._services is not None:
            self._services.close()
            self._services = None

    async def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def _reason(self) -> Reason | None:
        reason = None if self._services is None else self._services.reason
        return reason or self._board.error


def start_head(
    name: str,
    open_services: Callable[[Callable[..., None]], Services] | None,
    model_workers: int,
) -> ActorHandle[Any]:
    """The head, on this node, restarted as often as it dies; gone with this process."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return (
        ray.remote(Head)
        .options(name=name, num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        .remote(open_services, model_workers)
    )
