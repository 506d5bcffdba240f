"""An engine that sends nothing: it answers from the cache, and counts what it would send."""

from __future__ import annotations

import array
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from claimscore.cache.base import Cache, MemoryCache
from claimscore.cache.key import request_keys
from claimscore.cache.store import DiskCache
from claimscore.config import user_cache_dir
from claimscore.pipeline.estimate.figures import Spread, TaskEstimate
from claimscore.pipeline.estimate.lengths import KNOWN_FROM, Lengths, key_number, prompt_bytes
from claimscore.pipeline.llm.budget.pricing import Price
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.question import Answer, Parse, Question
from claimscore.pipeline.llm_stage import NOT_SENT
from claimscore.types import Failure, Request

T = TypeVar("T")

#: How many more or fewer the questions may be where they themselves are guessed.
_QUESTIONS = (0.7, 1.5)


@contextlib.contextmanager
def open_cache_if_there(cache_dir: Path | None) -> Iterator[Cache]:
    """The cache of paid answers; one that is not there yet is not made for an estimate."""
    folder = cache_dir or user_cache_dir()
    there = folder.is_dir() and any(folder.iterdir())
    cache: Cache = DiskCache(folder) if there else MemoryCache()
    try:
        yield cache
    finally:
        cache.close()


class DryEngine:
    """In the place of an `Engine`, for one task: stored answers are used, the rest is counted.

    A request that would be sent has the outcome `NOT_SENT`. It takes 24 bytes, however long it
    is; `lengths` keeps some as a sample. `model` is the one that the task's prompt names, "" for
    the provider's own.
    """

    def __init__(
        self,
        task: str,
        provider: Provider,
        cache: Cache,
        *,
        max_samples: int,
        retry_failed: bool,
        model: str = "",
    ) -> None:
        self.task = task
        self.provider = provider
        self.model = model
        self.lengths = Lengths()
        self._cache = cache
        self._max_samples = max_samples
        self._retry_failed = retry_failed
        self._n_questions = 0
        self._n_answered = 0
        self._n_given_up = 0
        # questions that came to an end, the answers that they took, those of them cut off
        self._n_ended = 0
        self._n_tries = 0
        self._n_cut_off = 0
        # of each missing request, equal ones each time: key, bytes of the prompt, max_tokens
        self._missing = array.array("Q")

    async def answer_all(
        self,
        requests: Sequence[Request],
        parse: Parse[T],
        *,
        step: int = 1,
        max_tokens_limit: int | None = None,
        counted: bool = True,
        shared: Sequence[str] = (),
    ) -> list[Answer[T] | Failure]:
        """The stored answer to every request, its failure where no more samples may be asked, or
        `NOT_SENT`; parameters as in `Engine.answer_all`."""
        questions: dict[str, Question[T]] = {}
        keys = request_keys(requests)
        for key, request in zip(keys, requests, strict=True):
            questions.setdefault(key, Question(request, key, step, max_tokens_limit))
        unanswered = list(questions.values())
        while unanswered:
            stored = self._cache.get_many([question.key for question in unanswered])
            following = []
            for question in unanswered:
                if question.key not in stored:
                    question.outcome = self._not_stored(question)
                    continue
                completion = stored[question.key].completion
                self.lengths.learn(question.request, question.key, completion)
                if question.use_stored(completion, parse):
                    self._count_end(question.n_answers + 1, question.n_cut_off)
                else:
                    following.append(question)
            unanswered = following
        outcomes = [questions[key].outcome for key in keys]
        n_answered = sum(isinstance(outcome, Answer) for outcome in outcomes)
        n_missing = sum(outcome is NOT_SENT for outcome in outcomes)
        self._n_questions += len(outcomes)
        self._n_answered += n_answered
        self._n_given_up += (len(outcomes) - n_answered - n_missing) if counted else 0
        return cast("list[Answer[T] | Failure]", outcomes)

    def _not_stored(self, question: Question[Any]) -> Failure:
        """Count a request that would be sent; or the failure that the question ends in."""
        may_ask = question.may_ask(self._max_samples, retry_failed=self._retry_failed)
        if not may_ask and question.failure is not None:
            self._count_end(question.n_answers, question.n_cut_off)
            return question.failure
        request = question.request
        sizes = prompt_bytes(request), request.max_tokens
        self._missing.extend((key_number(question.key), *sizes))
        self.lengths.add_missing(request, question.key)
        return NOT_SENT

    def _count_end(self, n_answers: int, n_cut_off: int) -> None:
        self._n_ended += 1
        self._n_tries += n_answers
        self._n_cut_off += n_cut_off

    def basis(self) -> str | None:
        """The source of the expected lengths and numbers of answers; None where none is missing."""
        if not self._missing:
            return None
        basis, tries = self.lengths.basis(), self._tries_a_question()
        if tries > 1:
            basis += f", {tries:.2f} tries a question as so far"
            if self._n_cut_off:
                basis += f", {self._n_cut_off / self._n_tries:.0%} of the answers cut off"
        return basis

    def estimate(
        self,
        price: Price | None,
        *,
        share: float = 1.0,
        bytes_per_token: float | None = None,
        guessed: bool = False,
    ) -> TaskEstimate:
        """The figures of the task, where the requests so far are a `share` of all.

        `bytes_per_token` is known from other tasks, for want of own answers. `guessed`: the
        requests themselves are not certain.
        """
        missing = np.frombuffer(self._missing, dtype=np.uint64).reshape(-1, 3)
        _, first = np.unique(missing[:, 0], return_index=True)
        scale = self._tries_a_question() / share
        n = len(first) * scale
        n_bytes, most = (missing[first, 1:].sum(axis=0) * scale).tolist()
        prompt = self.lengths.expect_prompts(n_bytes, bytes_per_token)
        completion = self.lengths.expect_answers(n, most)
        if guessed:
            prompt, completion = (
                Spread(span.low * _QUESTIONS[0], span.expected, span.high * _QUESTIONS[1])
                for span in (prompt, completion)
            )
            most *= _QUESTIONS[1]
        usd = most_usd = None
        if price is not None:
            usd = Spread(
                *(price.of_many(n, *size) for size in zip(prompt, completion, strict=True))
            )
            most_usd = price.of_many(n, prompt.high, most)
        return TaskEstimate(
            self.task,
            round(self._n_questions / share),
            round(self._n_answered / share),
            round(self._n_given_up / share),
            round(n),
            prompt,
            completion,
            usd,
            most_usd,
        )

    def _tries_a_question(self) -> float:
        """How many answers a question took so far, useless ones included; 1 where few ended."""
        if self._n_ended < KNOWN_FROM:
            return 1.0
        return max(1.0, self._n_tries / self._n_ended)
