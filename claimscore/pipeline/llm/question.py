"""A question on its way through its samples, and the answer or failure that it ends in. Pure."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from claimscore.cache.key import request_key
from claimscore.pipeline.llm.validation import Invalid, Parse, validate
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
class Question(Generic[T]):
    """What is to be answered, and how far it is.

    `request` and its `key` are of the sample that is asked for next, `step` lies between two
    samples. `n_invalid` answers could not be used, `n_new` were bought by this call. `final`: a
    further sample would fare no better. `failure` is the outcome if no further one may be asked.
    """

    request: Request
    key: str
    step: int = 1
    n_invalid: int = 0
    n_new: int = 0
    final: bool = False
    failure: Failure | None = None
    outcome: Answer[T] | Failure | None = None

    def use_stored(self, completion: Completion, parse: Parse[T]) -> bool:
        """Judge a stored answer; False where it is invalid and the next sample's turn comes."""
        verdict = validate(completion, parse)
        if isinstance(verdict, Invalid):
            self.next_sample(verdict)
            return False
        self.outcome = Answer(self.key, completion, verdict.value, cached=True)
        return True

    def next_sample(self, why: Invalid) -> None:
        """Go on to the next sample, as the answer to this one cannot be used."""
        self.n_invalid += 1
        self.final = why.final
        self.failure = Failure(why.kind, why.message, self.n_invalid, self.key, why.raw)
        index = self.request.sample_index + self.step
        self.request = dataclasses.replace(self.request, sample_index=index)
        self.key = request_key(self.request)

    def may_ask(self, max_samples: int, *, retry_failed: bool) -> bool:
        """Whether a sample may be bought; `retry_failed` forgives those of earlier runs."""
        used = self.n_new if retry_failed else self.n_invalid
        return used < max_samples and not (used and self.final)
