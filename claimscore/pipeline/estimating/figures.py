"""An estimate in figures, of each task and in all, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from claimscore.pipeline.estimating.passes import MetricNeeds, PassEstimate
from claimscore.pipeline.llm.budget.pricing import Price
from claimscore.pipeline.scaling import Disk, Prediction
from claimscore.types import JSON


class Span(NamedTuple):
    """A figure with the range that it is likely to lie in."""

    low: float
    expected: float
    high: float

    @classmethod
    def around(cls, expected: float, spread: tuple[float, float]) -> Span:
        return cls(expected * spread[0], expected, expected * spread[1])

    @classmethod
    def total(cls, spans: Iterable[Span]) -> Span:
        """The sum; errors are taken not to cancel out."""
        return cls(*(float(sum(column)) for column in zip((0, 0, 0), *spans, strict=True)))


@dataclasses.dataclass(frozen=True, slots=True)
class TaskEstimate:
    """What one task would ask.

    `questions` are all it has, `answered` those that need no request, `given_up` those whose
    samples were all refused; equal questions are asked once. `most_completion_tokens` is every
    answer as long as it may be. Dollars are None where the price is unknown.
    """

    task: str
    questions: int
    answered: int
    given_up: int
    requests: int
    prompt_tokens: Span
    completion_tokens: Span
    most_completion_tokens: int
    usd: Span | None
    most_usd: float | None

    def to_json(self) -> JSON:
        """Plain values, tokens as whole numbers, null for what is unknown."""
        return {
            "task": self.task,
            "questions": self.questions,
            "answered": self.answered,
            "given_up": self.given_up,
            "requests": self.requests,
            **_sizes(self.prompt_tokens, self.completion_tokens),
            **_costs(self.usd, self.most_usd),
        }


@dataclasses.dataclass(frozen=True)
class Estimate:
    """All tasks, what they cost together, how long it takes, and what was assumed.

    `metrics` say who needs what, `passes` what models are asked; both are empty for requests of
    one's own. `hours` are the language model's; `time` is the whole run's, part by part, and
    `time_notes` say what it rests on and how to find out what is not known; None, like `disk`,
    where it was not asked for.
    """

    llm: str
    records: int
    tasks: tuple[TaskEstimate, ...]
    price: Price | None
    hours: float | None
    assumptions: tuple[str, ...]
    metrics: tuple[MetricNeeds, ...] = ()
    passes: tuple[PassEstimate, ...] = ()
    time: Prediction | None = None
    time_notes: tuple[str, ...] = ()
    disk: Disk | None = None

    @property
    def requests(self) -> int:
        return sum(task.requests for task in self.tasks)

    @property
    def prompt_tokens(self) -> Span:
        return Span.total(task.prompt_tokens for task in self.tasks)

    @property
    def completion_tokens(self) -> Span:
        return Span.total(task.completion_tokens for task in self.tasks)

    @property
    def usd(self) -> Span | None:
        """Dollars; None where the price is unknown."""
        if self.price is None:
            return None
        return Span.total(task.usd for task in self.tasks if task.usd is not None)

    @property
    def most_usd(self) -> float | None:
        """Dollars if every answer were as long as it may be; nothing is repeated."""
        if self.price is None:
            return None
        return sum(task.most_usd or 0.0 for task in self.tasks)

    def to_json(self) -> JSON:
        """Plain values, tokens as whole numbers, null for what is unknown."""
        total = {
            "questions": sum(task.questions for task in self.tasks),
            "answered": sum(task.answered for task in self.tasks),
            "given_up": sum(task.given_up for task in self.tasks),
            "requests": self.requests,
            **_sizes(self.prompt_tokens, self.completion_tokens),
            **_costs(self.usd, self.most_usd),
        }
        price = self.price
        return {
            "llm": self.llm,
            "records": self.records,
            "metrics": [needs.to_json() for needs in self.metrics],
            "passes": [model_pass.to_json() for model_pass in self.passes],
            "tasks": [task.to_json() for task in self.tasks],
            "total": total,
            "hours": self.hours,
            "price": None
            if price is None
            else {
                "input_per_mtok": price.input_per_mtok,
                "output_per_mtok": price.output_per_mtok,
                "source": price.source,
            },
            "assumptions": list(self.assumptions),
            "time": None
            if self.time is None
            else {**self.time.to_json(), "notes": list(self.time_notes)},
            "disk": None if self.disk is None else self.disk.to_json(),
        }


def _sizes(prompt: Span, completion: Span) -> JSON:
    return {
        "prompt_tokens": round(prompt.expected),
        "prompt_tokens_range": [round(prompt.low), round(prompt.high)],
        "completion_tokens": round(completion.expected),
        "completion_tokens_range": [round(completion.low), round(completion.high)],
    }


def _costs(usd: Span | None, most: float | None) -> JSON:
    return {
        "usd": None if usd is None else usd.expected,
        "usd_range": None if usd is None else [usd.low, usd.high],
        "usd_at_most": most,
    }
