"""An estimate in figures: of each LLM task, of each model pass, and in all; and as JSON.

And the hours that the limits of a language model's server ask for.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from claimscore.config import LLMConfig
from claimscore.pipeline.llm.budget.pricing import Price
from claimscore.pipeline.llm.providers.base import Provider, is_local, servers_of
from claimscore.types import JSON


@dataclasses.dataclass(frozen=True, slots=True)
class TaskEstimate:
    """The requests of one LLM task.

    `questions` are all it has, `answered` those that need no request, `given_up` those whose
    samples were all refused; equal questions are asked once. `usd_at_most` is with every answer as
    long as it may be. Dollars are None where the price is unknown.
    """

    task: str
    questions: int
    answered: int
    given_up: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    usd_at_most: float | None

    def amounts(self) -> JSON:
        """Plain values, null for what is unknown."""
        values = dataclasses.asdict(self)
        del values["task"]
        return values


@dataclasses.dataclass(frozen=True, slots=True)
class ModelEstimate:
    """What one language model is asked by these tasks.

    `price` is that of the model itself, None where it is not known. `hours` are those that the
    limits of its servers ask for; None where no limit is known.
    """

    llm: str
    tasks: tuple[str, ...]
    total: TaskEstimate
    price: Price | None
    hours: float | None

    def to_json(self) -> JSON:
        """Plain values, as of `Estimate.to_json`."""
        price: JSON | None = None
        if self.price is not None:
            names = ("input_per_mtok", "output_per_mtok", "source")
            price = dict(zip(names, (*self.price.per_mtok, self.price.source), strict=True))
        asked = {"llm": self.llm, "tasks": list(self.tasks), **self.total.amounts()}
        return {**asked, "hours": self.hours, "price": price}


@dataclasses.dataclass(frozen=True, slots=True)
class PassEstimate:
    """A model pass.

    `model` is the one that the user named, None where it is missing. `items` (pairs or texts, by
    `unit`) are still to be judged; `is_about` where they were counted on some of the records, or
    on guessed claims and facts. `per_second` is how many of them a device of this machine did in
    an earlier run; None where none did.
    """

    step: str
    role: str
    model: str | None
    items: int
    is_about: bool
    unit: str
    per_second: float | None


@dataclasses.dataclass(frozen=True)
class Estimate:
    """All tasks, what they cost together, each model's part, and what was assumed.

    `passes` are empty for requests of one's own. `about` are the tasks whose requests were counted
    on some of the records, or on rows that are guessed.
    """

    records: int
    tasks: tuple[TaskEstimate, ...]
    models: tuple[ModelEstimate, ...]
    assumptions: tuple[str, ...]
    passes: tuple[PassEstimate, ...] = ()
    about: frozenset[str] = frozenset()

    @functools.cached_property
    def total(self) -> TaskEstimate:
        """All tasks together."""
        return total_of(self.tasks)

    @property
    def requests(self) -> int:
        """Those that are still to be sent, of all tasks."""
        return self.total.requests

    @property
    def hours(self) -> float | None:
        """The longest that the limits of a model's servers ask for; None where none is known."""
        return max((model.hours for model in self.models if model.hours is not None), default=None)

    @property
    def model_s(self) -> float | None:
        """The seconds that the model passes take at their last pace here; None where one has none
        yet."""
        paces = [one.per_second for one in self.passes]
        if None in paces:
            return None
        return sum(one.items / one.per_second for one in self.passes if one.per_second)

    def to_json(self) -> JSON:
        """Plain values, null for what is unknown."""
        return {
            "records": self.records,
            "passes": [dataclasses.asdict(one) for one in self.passes],
            "tasks": [{"task": task.task, **task.amounts()} for task in self.tasks],
            "models": [model.to_json() for model in self.models],
            "total": self.total.amounts(),
            "hours": self.hours,
            "assumptions": list(self.assumptions),
        }


def total_of(tasks: Sequence[TaskEstimate]) -> TaskEstimate:
    """These tasks together; dollars are None where those of one are not known."""
    amounts = [task.amounts() for task in tasks]

    def total(name: str) -> Any:
        values = [one[name] for one in amounts]
        return None if None in values else sum(values)

    names = [field.name for field in dataclasses.fields(TaskEstimate)]
    return TaskEstimate("total", *map(total, names[1:]))


def hours_of_limits(
    llm: LLMConfig, provider: Provider, total: TaskEstimate
) -> tuple[float | None, str]:
    """How long a model's requests take at the limits of all its servers together, and which
    decides it.

    None, with the reason, where a server's limits are not known: then nothing tells its pace.
    """
    if is_local(llm.family):
        return None, "answers are made on this machine, in milliseconds"
    if llm.is_batch:
        return None, "a batch is promised within 24 hours; how soon it comes is not known"
    bounds = []
    if llm.rpm is not None:
        bounds.append((llm.rpm, f"{llm.rpm:,.0f} requests a minute"))
    if llm.tpm is not None:
        used = total.prompt_tokens + total.completion_tokens
        bounds.append((llm.tpm * total.requests / used, f"{llm.tpm:,.0f} tokens a minute"))
    if not bounds:
        return None, "no limit of the server is known: --rpm or --tpm would tell the hours"
    servers = len(servers_of(provider))
    per_minute, reason = min(bounds)
    of_each = f" of each of {servers} servers" if servers > 1 else ""
    return total.requests / (servers * per_minute) / 60, f"hours: {reason}{of_each}"
