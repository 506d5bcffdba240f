"""What a run will do: which metrics, and so which tasks on which sides and which model passes."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Sequence

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics import load_metric
from claimscore.metrics.base import Metric
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import FIELDS, Task
from claimscore.prompts import Prompt, load_prompt
from claimscore.tables import SIDE_COLUMNS, SOURCE_SIDE

SidePair = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class PlannedTask:
    """One task with the prompt it uses and the sides it is done for.

    `prompt` is None for `--units sentences`: the claims are the sentences, nobody is asked.
    """

    task: Task
    prompt: Prompt | None
    sides: tuple[str, ...]

    @property
    def step(self) -> str:
        """The name of this work on one chunk in the run directory's manifest."""
        return "-".join((self.task.name, *self.sides))


@dataclasses.dataclass(frozen=True)
class Plan:
    """The union of what the chosen metrics and tasks need, each once."""

    metrics: tuple[Metric, ...]
    tasks: tuple[PlannedTask, ...]
    nli: tuple[SidePair, ...]
    token_scores: tuple[SidePair, ...]

    @property
    def needs_llm(self) -> bool:
        return any(planned.prompt is not None for planned in self.tasks)


def load_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics by name, each once, in the order given."""
    return tuple(load_metric(name) for name in dict.fromkeys(names))


def required_columns(metrics: Sequence[Metric]) -> dict[str, tuple[str, ...]]:
    """The columns of the records that each metric needs."""
    return {metric.name: metric.needs.columns for metric in metrics}


def make_plan(config: RunConfig, columns: Sequence[str]) -> Plan:
    """The plan for records that have `columns`."""
    metrics = load_metrics(config.metrics)
    nli = _union(metric.needs.nli for metric in metrics)
    token_scores = _union(metric.needs.token_scores for metric in metrics)
    sides = _task_sides(config, metrics, columns)
    tasks = tuple(
        PlannedTask(task, _prompt_or_none(config, name), sides[name])
        for name, task in TASKS.items()
        if sides.get(name)
    )
    return Plan(metrics, tasks, nli, token_scores)


def _prompt_or_none(config: RunConfig, name: str) -> Prompt | None:
    if name == "decompose" and config.units == "sentences":
        return None
    return task_prompt(config, name)


def task_prompt(config: RunConfig, name: str) -> Prompt:
    """The prompt that a task uses in this run, checked against what the task offers and reads."""
    chosen = config.prompts.get(name, "v1")
    prompt = load_prompt(name, chosen, config.prompts_dir)
    prompt.check_fields(FIELDS, f"--prompt {name}={chosen}")
    if "text" not in prompt.fields:
        raise ConfigError(f"--prompt {name}={chosen}: the prompt never uses $text")
    expected = TASKS[name].output
    if prompt.output != expected:
        raise ConfigError(
            f"--prompt {name}={chosen}: [output] must be {json.dumps(expected)}, "
            f"not {json.dumps(prompt.output)}"
        )
    return prompt


def _union(groups: Iterable[tuple[SidePair, ...]]) -> tuple[SidePair, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(groups)))


def _task_sides(
    config: RunConfig, metrics: Sequence[Metric], columns: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """For each task that is needed, the sides it is needed for, in a fixed order."""
    wanted: dict[str, set[str]] = {}
    for metric in metrics:
        sides = {side for pair in metric.needs.nli for side in pair}
        for name in metric.needs.tasks:
            wanted.setdefault(name, set()).update(sides)
    for name in config.tasks:
        sides_here = TASKS[name].sides(columns)
        if not sides_here:
            raise ConfigError(f"--tasks {name}: the records have no column it can read")
        wanted.setdefault(name, set()).update(sides_here)
    for name in reversed(TASKS):
        for before in TASKS[name].after if name in wanted else ():
            wanted.setdefault(before, set()).update(wanted[name])
    order = (*SIDE_COLUMNS, SOURCE_SIDE)
    return {name: tuple(side for side in order if side in sides) for name, sides in wanted.items()}
