"""What workers are given: the job once, and of each chunk what is missing and what is there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TypedDict

from claimscore.config import RunConfig, api_base_url
from claimscore.errors import ConfigError
from claimscore.pipeline.chunks import ChunkTodo
from claimscore.pipeline.plan import Plan, PlannedPass, PlannedTask
from claimscore.pipeline.ray.place import refuse_version, what_lacks
from claimscore.rundir import Lies
from claimscore.types import JSON

#: Where the rows of finished steps lie, by table: for what a worker wrote, their number.
Finished = Mapping[str, Mapping[str, Lies]]


class Row(TypedDict):
    """A row of the data set: the number of a chunk, and the rest as JSON, a few hundred bytes."""

    chunk: int
    work: str


@dataclasses.dataclass(frozen=True)
class Job:
    """All that a worker needs beside the run's folder. It has no key: these are the nodes' own.

    `version` is the driver's; it and what the place has are checked where the worker is. `tasks`
    and `passes` are those of the plan, prompts included, so that nobody needs the files that these
    came from. `expected` is what is known of the models. A worker has `calls` chunks open, and
    computes with so many `threads` where it does on a CPU; its share of the requests in flight is
    `config.llm.max_concurrency`.
    """

    config: RunConfig
    where: str
    version: str
    tasks: tuple[PlannedTask, ...]
    passes: tuple[PlannedPass, ...]
    roles: tuple[str, ...]
    other_models: tuple[str, ...]
    head: str
    namespace: str
    calls: int
    threads: int
    expected: JSON
    key_names: tuple[str, ...]
    needs_llm: bool

    def check_place(self, node: str) -> None:
        """`ConfigError` where a worker cannot be on this machine: the node may be a new one."""
        there = f"node {node} of the Ray cluster"
        refuse_version(there, self.version)
        lack = what_lacks(self.where, self.head, self.key_names)
        if lack is not None:
            raise ConfigError(f"{there} {lack}")

    def row(self, item: ChunkTodo, finished: Finished) -> Row:
        """A chunk as the workers get it."""
        work = {
            "tasks": {planned.task.name: list(planned.sides) for planned in item.tasks},
            "passes": [planned.step for planned in item.passes],
            "finished": finished,
        }
        return {"chunk": item.chunk, "work": json.dumps(work)}

    def todo(self, row: Row) -> tuple[ChunkTodo, dict[str, dict[str, Lies]]]:
        """What is missing of the chunk, and where the rows of its finished steps lie."""
        work = json.loads(row["work"])
        tasks, passes = work["tasks"], set(work["passes"])
        item = ChunkTodo(
            int(row["chunk"]),
            tuple(
                dataclasses.replace(planned, sides=tuple(tasks[planned.task.name]))
                for planned in self.tasks
                if planned.task.name in tasks
            ),
            tuple(planned for planned in self.passes if planned.step in passes),
        )
        return item, work["finished"]


def done_row(row: Row, written: Finished) -> Row:
    """The chunk as the next stage gets it: without its tasks, with the steps that they were."""
    work = json.loads(row["work"])
    work["tasks"] = {}
    work["finished"] |= written
    return {"chunk": row["chunk"], "work": json.dumps(work)}


def finished_of(row: Row) -> tuple[int, dict[str, dict[str, Lies]]]:
    """The number of a chunk and its finished steps."""
    return int(row["chunk"]), json.loads(row["work"])["finished"]


def resolved(config: RunConfig, plan: Plan) -> RunConfig:
    """The settings without what only this process knows; `ConfigError` where they name that."""
    if config.llm.model.startswith("openai-batch:") and plan.needs_llm:
        raise ConfigError(
            "--llm openai-batch with --engine ray: batches are collected by one process; take "
            "--engine local, or openai:MODEL"
        )
    if "," in config.encoders.device or ":" in config.encoders.device:
        raise ConfigError(
            f"--device {config.encoders.device}: that names GPUs of one machine; with --engine "
            "ray it is auto (GPUs where the cluster has any), cpu or cuda"
        )
    llm = dataclasses.replace(config.llm, base_url=config.llm.base_url or api_base_url())
    return dataclasses.replace(config, llm=llm, prompts={}, prompts_dir=None, metric_files=())
