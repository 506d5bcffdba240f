"""Whether a prompt suits the task that it is used for, and the language model of the run. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import Task
from claimscore.prompts import Prompt
from claimscore.prompts.prompt import TEXT_FIELD, TEXTS_FIELD


def check_prompt(task: Task, prompt: Prompt, where: str) -> None:
    """`ConfigError` with the first reason why the task cannot use the prompt."""
    for problem in prompt_problems(task, prompt):
        raise ConfigError(f"{where}: {problem.message}")


class Problem(NamedTuple):
    """What is wrong, and the key of the prompt file that it is about."""

    key: tuple[str, ...]
    message: str


def prompt_problems(task: Task, prompt: Prompt) -> Iterator[Problem]:
    """Every reason why the task cannot use the prompt."""
    text = TEXTS_FIELD if prompt.takes_several else TEXT_FIELD
    offered = [text if field == TEXT_FIELD else field for field in task.fields]
    try:
        prompt.check_fields(offered, "")
    except ConfigError as exc:
        yield Problem(("user",), str(exc).removeprefix(": "))
    for field in offered[: task.n_required]:
        if field not in prompt.fields:
            yield Problem(("user",), f"the prompt never uses ${field}")
    if prompt.output != task.output:
        shown = json.dumps(task.output), json.dumps(prompt.output)
        yield Problem(("output",), f"[output] must be {shown[0]}, not {shown[1]}")
    if prompt.takes_several and not task.several:
        yield Problem(
            ("user",),
            f"$texts: {task.name} asks about one text at a time; several may be asked about by "
            f"{_those('several')}",
        )
    if max(prompt.settings.samples, prompt.summary_settings.samples) > 1 and not task.samples:
        yield Problem(
            ("settings", "samples"),
            f"settings.samples: {task.name} makes the one set of rows that metrics read; several "
            f"samples may have {_those('samples')}",
        )


def problems_for(task: str, prompt: Prompt) -> list[Problem]:
    """The same for a task by its name."""
    return list(prompt_problems(TASKS[task], prompt))


def _those(ability: str) -> str:
    return ", ".join(name for name, task in TASKS.items() if getattr(task, ability))


def other_models(prompt: Prompt) -> tuple[str, ...]:
    """The models that the prompt names in the place of the run's, each once."""
    named = (prompt.settings.model, prompt.summary_settings.model)
    return tuple(dict.fromkeys(filter(None, named)))


def check_model(prompt: Prompt, llm: LLMConfig, where: str) -> None:
    """`ConfigError` where the prompt names a model and the run's provider has but its own."""
    models = other_models(prompt)
    if models and llm.model.partition(":")[0] != "openai":
        raise ConfigError(
            f"{where}: the prompt names the model {models[0]}, which --llm {llm.model} cannot "
            "ask; use --llm openai:MODEL, or leave settings.model out"
        )
