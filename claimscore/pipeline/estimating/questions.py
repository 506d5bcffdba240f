"""The questions of one task, without asking them: which are answered, how large the others are.

Requests are looked up in the cache as the engine does it. What is not there is counted once,
however often it is asked.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from claimscore.cache.base import Cache, MemoryCache
from claimscore.cache.key import request_key
from claimscore.cache.store import DiskCache
from claimscore.config import user_cache_dir
from claimscore.pipeline.estimating.figures import Span, TaskEstimate
from claimscore.pipeline.estimating.money import cost
from claimscore.pipeline.estimating.tokens import KNOWN_FROM, Lengths, key_number, prompt_bytes
from claimscore.pipeline.llm.prices import Price
from claimscore.pipeline.llm.validation import Invalid, Parse, validate
from claimscore.types import Request

#: How many more or fewer the questions may be where they themselves are guessed.
_QUESTIONS = (0.7, 1.5)


@contextlib.contextmanager
def cache_to_look_at(cache_dir: Path | None) -> Iterator[Cache]:
    """The cache; one that is not there yet is not made for an estimate."""
    folder = cache_dir or user_cache_dir()
    there = folder.is_dir() and any(folder.iterdir())
    cache: Cache = DiskCache(folder) if there else MemoryCache()
    try:
        yield cache
    finally:
        cache.close()


class Found(NamedTuple):
    """What the cache says to a question: an answer's value, or that it would be asked; neither
    where it was asked often enough."""

    answered: bool = False
    value: Any = None
    missing: bool = False


@dataclasses.dataclass(slots=True)
class _Row:
    """A question on its way through the samples that are stored."""

    request: Request
    step: int
    n_refused: int = 0
    final: bool = False


class Tally:
    """Counts the questions of one task.

    A missing request takes 24 bytes, however long it is; `Lengths` keeps some as a sample.
    """

    def __init__(self, task: str, cache: Cache, *, max_samples: int, retry_failed: bool) -> None:
        self.task = task
        self.lengths = Lengths()
        self._cache = cache
        self._max_samples = max_samples
        self._retry_failed = retry_failed
        self._n_questions = 0
        self._n_answered = 0
        self._n_given_up = 0
        self._n_ended = 0
        self._n_samples = 0
        self._keys = array.array("Q")
        self._bytes = array.array("Q")
        self._max_tokens = array.array("Q")

    def add(
        self,
        requests: Sequence[Request],
        parse: Parse[Any],
        *,
        step: int = 1,
        counted: bool = True,
        known: Container[str] = (),
    ) -> list[Found]:
        """Look the requests up; where a stored answer is refused, its next sample.

        `step`, `counted` and `known` are those of `Engine.answer_all`.
        """
        keys = [request_key(request) for request in requests]
        found: dict[str, Found] = {}
        at = {key: (key, _Row(request, step)) for key, request in zip(keys, requests, strict=True)}
        while at:
            stored = self._cache.get_many([sample_key for sample_key, _ in at.values()])
            following = {}
            for key, (sample_key, row) in at.items():
                if sample_key not in stored:
                    found[key] = self._not_stored(row, sample_key, sample_key in known)
                    continue
                completion = stored[sample_key].completion
                self.lengths.learn(row.request, sample_key, completion)
                verdict = validate(completion, parse)
                if isinstance(verdict, Invalid):
                    following[key] = _next_sample(row, verdict)
                else:
                    self._count_end(row.n_refused + 1)
                    found[key] = Found(answered=True, value=verdict.value)
            at = following
        outcomes = [found[key] for key in keys]
        self._n_questions += len(outcomes)
        self._n_answered += sum(outcome.answered for outcome in outcomes)
        self._n_given_up += counted and sum(outcome == _GIVEN_UP for outcome in outcomes)
        return outcomes

    @property
    def n_missing(self) -> int:
        """Questions that would be asked, equal ones each time."""
        return len(self._keys)

    def about_answers(self) -> str:
        """What the expected lengths and numbers of answers rest on."""
        samples = self._samples_a_question()
        tries = f", {samples:.2f} tries a question as so far" if samples > 1 else ""
        return self.lengths.about_answers() + tries

    def _not_stored(self, row: _Row, key: str, has_failed: bool) -> Found:
        """A sample that nobody has: it would be asked, or the question is given up."""
        used_up = row.n_refused >= self._max_samples or row.final or has_failed
        if used_up and not self._retry_failed:
            self._count_end(row.n_refused)
            return _GIVEN_UP
        self._keys.append(key_number(key))
        self._bytes.append(prompt_bytes(row.request))
        self._max_tokens.append(row.request.max_tokens)
        self.lengths.add_missing(row.request, key)
        return _MISSING

    def _count_end(self, n_samples: int) -> None:
        self._n_ended += 1
        self._n_samples += n_samples

    # -- what it comes to

    def estimate(
        self,
        price: Price | None,
        *,
        share: float = 1.0,
        bytes_per_token: float | None = None,
        guessed: bool = False,
    ) -> TaskEstimate:
        """The task's figures, where this was a share of its questions.

        `bytes_per_token` is what is known from other tasks, for want of own answers; with
        `guessed`, the questions themselves are not certain.
        """
        _, first = np.unique(np.frombuffer(self._keys, dtype=np.uint64), return_index=True)
        scale = self._samples_a_question() / share
        n = len(first) * scale
        n_bytes = float(_chosen(self._bytes, first)) * scale
        most = float(_chosen(self._max_tokens, first)) * scale
        prompt = self.lengths.prompt_tokens(n_bytes, bytes_per_token)
        completion = self.lengths.completion_tokens(n, most)
        if guessed:
            prompt, completion = (
                Span(span.low * _QUESTIONS[0], span.expected, span.high * _QUESTIONS[1])
                for span in (prompt, completion)
            )
            most *= _QUESTIONS[1]
        usd, most_usd = cost(price, n, prompt, completion, most)
        return TaskEstimate(
            self.task,
            round(self._n_questions / share),
            round(self._n_answered / share),
            round(self._n_given_up / share),
            round(n),
            prompt,
            completion,
            round(most),
            usd,
            most_usd,
        )

    def _samples_a_question(self) -> float:
        """How many answers a question took so far, refused ones included; 1 where few ended."""
        if self._n_ended < KNOWN_FROM:
            return 1.0
        return max(1.0, self._n_samples / self._n_ended)


_GIVEN_UP = Found()
_MISSING = Found(missing=True)


def _next_sample(row: _Row, verdict: Invalid) -> tuple[str, _Row]:
    index = row.request.sample_index + row.step
    request = dataclasses.replace(row.request, sample_index=index)
    return request_key(request), _Row(request, row.step, row.n_refused + 1, verdict.final)


def _chosen(values: array.array[int], indices: np.ndarray) -> np.uint64:
    total: np.uint64 = np.frombuffer(values, dtype=np.uint64)[indices].sum(dtype=np.uint64)
    return total
