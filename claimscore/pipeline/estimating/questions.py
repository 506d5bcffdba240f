"""The questions of one task, without asking them: which are answered, how large the others are.

Requests are looked up in the cache as the engine does it. What is not there is counted once,
however often it is asked.
"""

from __future__ import annotations

import array
import contextlib
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
from claimscore.pipeline.llm.budget.pricing import Price
from claimscore.pipeline.llm.question import Answer, Question
from claimscore.pipeline.llm.validation import Parse
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
        self._n_cut_off = 0
        self._keys = array.array("Q")
        self._bytes = array.array("Q")
        self._max_tokens = array.array("Q")

    def add(
        self,
        requests: Sequence[Request],
        parse: Parse[Any],
        *,
        step: int = 1,
        max_tokens_limit: int | None = None,
        counted: bool = True,
        known: Container[str] = (),
    ) -> list[Found]:
        """Look the requests up; where a stored answer cannot be used, what is asked after it.

        `step`, `max_tokens_limit`, `counted` and `known` are those of `Engine.answer_all`.
        """
        keys = [request_key(request) for request in requests]
        found: dict[str, Found] = {}
        at = {
            key: Question[Any](request, key, step, max_tokens_limit)
            for key, request in zip(keys, requests, strict=True)
        }
        while at:
            stored = self._cache.get_many([question.key for question in at.values()])
            following = {}
            for key, question in at.items():
                if question.key not in stored:
                    found[key] = self._not_stored(question, question.key in known)
                    continue
                completion = stored[question.key].completion
                self.lengths.learn(question.request, question.key, completion)
                if not question.use_stored(completion, parse):
                    following[key] = question
                elif isinstance(question.outcome, Answer):
                    self._count_end(question.n_answers + 1, question.n_cut_off)
                    found[key] = Found(answered=True, value=question.outcome.value)
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
        if samples > 1 and self._n_cut_off:
            tries += f", {self._n_cut_off / self._n_samples:.0%} of the answers cut off"
        return self.lengths.about_answers() + tries

    def _not_stored(self, question: Question[Any], has_failed: bool) -> Found:
        """An answer that is not stored: it would be asked for, or the question is given up."""
        may_ask = question.may_ask(self._max_samples, retry_failed=self._retry_failed)
        if not may_ask or (has_failed and not self._retry_failed):
            self._count_end(question.n_answers, question.n_cut_off)
            return _GIVEN_UP
        request = question.request
        self._keys.append(key_number(question.key))
        self._bytes.append(prompt_bytes(request))
        self._max_tokens.append(request.max_tokens)
        self.lengths.add_missing(request, question.key)
        return _MISSING

    def _count_end(self, n_answers: int, n_cut_off: int) -> None:
        self._n_ended += 1
        self._n_samples += n_answers
        self._n_cut_off += n_cut_off

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


def _chosen(values: array.array[int], indices: np.ndarray) -> np.uint64:
    total: np.uint64 = np.frombuffer(values, dtype=np.uint64)[indices].sum(dtype=np.uint64)
    return total
