"""A question on its way through its samples, and the answer that it ends in."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from claimscore.cache.key import request_key
from claimscore.pipeline.llm.judge import Parse, Refused, judge
from claimscore.types import Completion, Failure, Request

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that passed its check; `cached` where nothing was sent for it."""

    key: str
    completion: Completion
    value: T
    cached: bool


@dataclasses.dataclass(slots=True)
class Row(Generic[T]):
    """The sample asked for next, and what became of earlier ones."""

    request: Request
    key: str
    step: int = 1
    n_refused: int = 0
    n_new: int = 0
    final: bool = False  # a further sample would fare no better
    failure: Failure | None = None  # the row's outcome if no further sample may be asked
    outcome: Answer[T] | Failure | None = None

    def use_stored(self, completion: Completion, parse: Parse[T]) -> bool:
        """Judge a stored answer; False where it is refused and the next sample's turn comes."""
        verdict = judge(completion, parse)
        if isinstance(verdict, Refused):
            self.next_sample(verdict)
            return False
        self.outcome = Answer(self.key, completion, verdict.value, cached=True)
        return True

    def next_sample(self, why: Refused) -> None:
        """The answer to this one was refused."""
        self.n_refused += 1
        self.final = why.final
        self.failure = Failure(why.kind, why.message, self.n_refused, self.key, why.raw)
        index = self.request.sample_index + self.step
        self.request = dataclasses.replace(self.request, sample_index=index)
        self.key = request_key(self.request)

    def may_ask(self, max_samples: int, *, retry_failed: bool) -> bool:
        """Whether a sample may be bought; `retry_failed` forgives those of earlier runs."""
        used = self.n_new if retry_failed else self.n_refused
        return used < max_samples and not (used and self.final)
