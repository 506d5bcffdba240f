"""Which steps of which chunks of a run are missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from claimscore.config import RunConfig
from claimscore.pipeline.llm.providers.base import is_local
from claimscore.pipeline.plan import Plan, PlannedPass, PlannedTask
from claimscore.runs import RunDirectory

#: Records that are worked on together, where the user does not say.
CHUNK_RECORDS = 64

#: A short run has so many chunks at least, so that the models begin while answers still come.
LEAST_CHUNKS = 16


def with_chunk_size(
    config: RunConfig, n_records: int, stored: Mapping[str, Any] = MappingProxyType({})
) -> RunConfig:
    """The settings with a number of records a chunk: that of the folder's `stored` settings, the
    user's, or one that suits so many records.

    A model on this machine answers at once, so nothing is gained there by small chunks.
    """
    if config.chunk_records:
        return config
    size = CHUNK_RECORDS
    llm = config.llm
    if not all(is_local(llm.of(task).family) for task in ("", *llm.by_task)):
        size = min(size, max(1, -(-n_records // LEAST_CHUNKS)))
    return dataclasses.replace(config, chunk_records=stored.get("chunk_records", size))


@dataclasses.dataclass(frozen=True)
class ChunkTodo:
    """The missing steps of one chunk."""

    chunk: int
    tasks: tuple[PlannedTask, ...] = ()
    passes: tuple[PlannedPass, ...] = ()


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
        if item.tasks or item.passes:
            todo.append(item)
    return todo


def _chunk_todo(plan: Plan, directory: RunDirectory, chunk: int) -> ChunkTodo:
    steps = directory.manifest.steps(chunk)
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


def sides_done(task: str, steps: Iterable[str]) -> set[str]:
    """The sides that finished steps of a task cover."""
    works = (step.split("-") for step in steps)
    return {side for work, *sides in works if work == task for side in sides}


def _missing_sides(planned: PlannedTask, steps: frozenset[str]) -> PlannedTask | None:
    """The task for the sides that no finished step covers; None where all are covered."""
    done = sides_done(planned.task.name, steps)
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
    for step in directory.manifest.steps(chunk):
        if step.partition("-")[0] in stages:
            directory.forget(chunk, step)
