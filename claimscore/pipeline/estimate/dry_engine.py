"""An engine that sends nothing: it answers from the cache, and counts what it would send."""

from __future__ import annotations

import array
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, DiskCache, MemoryCache
from claimscore.config import user_cache_dir
from claimscore.pipeline.estimate.figures import TaskEstimate
from claimscore.pipeline.llm.budget.pricing import Price, asked_tier
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.question import Answer, Parse, Question, take_stored
from claimscore.pipeline.llm.tokens import BYTES_PER_TOKEN, TokenMeans, prompt_bytes
from claimscore.pipeline.llm_stage import NOT_SENT
from claimscore.types import Failure, Request, Usage, utf8_bytes

T = TypeVar("T")

#: How much longer than the texts that it is about an answer of a task is, besides the names and
#: quotes of its JSON; measured on hotel and product reviews.
ANSWER_SHARES = {"decompose": 1.1, "paraphrase": 1.1, "negate": 1.1, "facts": 0.9}
_JSON_BYTES = 15

#: Else, without stored answers: this share of the tokens that an answer may have.
_UNKNOWN_SHARE = 0.25


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

    A request that would be sent has the outcome `NOT_SENT`. It takes 40 bytes, however long it
    is. `means` are of stored answers with their usage. While `weight` is more than 1, a request
    stands for so many.
    """

    def __init__(
        self,
        task: str,
        provider: Provider,
        cache: Cache,
        *,
        max_samples: int,
        retry_failed: bool,
    ) -> None:
        self.task = task
        self.provider = provider
        self.means = TokenMeans()
        self.weight = 1
        self.n_questions = 0
        self._cache = cache
        self._max_samples = max_samples
        self._retry_failed = retry_failed
        self._n_answered = 0
        self._n_given_up = 0
        # of each missing request, equal ones each time: half of its key, its weight, bytes of the
        # prompt, guessed tokens of the answer, max_tokens
        self._missing = array.array("Q")
        self._tier = ""  # of service, that the requests ask for

    async def answer_all(
        self,
        requests: Sequence[Request],
        parse: Parse[T],
        *,
        step: int = 1,
        max_tokens_limit: int | None = None,
        counted: bool = True,
        provider: Provider | None = None,
    ) -> list[Answer[T] | Failure]:
        """The stored answer to every request, its failure where no more samples may be asked, or
        `NOT_SENT`; parameters as in `Engine.answer_all`."""
        questions: dict[str, Question[T]] = {}
        keys = list(map(request_key, requests))
        for key, request in zip(keys, requests, strict=True):
            questions.setdefault(key, Question(request, key, step, max_tokens_limit))
        take_stored(self._cache.get_many, list(questions.values()), parse)
        for question in questions.values():
            if isinstance(question.outcome, Answer):
                self._learn(question.request, question.outcome.completion.usage)
            else:
                question.outcome = self._not_stored(question)
        outcomes = [questions[key].outcome for key in keys]
        n_answered = sum(isinstance(outcome, Answer) for outcome in outcomes)
        n_missing = sum(outcome is NOT_SENT for outcome in outcomes)
        self.n_questions += len(outcomes) * self.weight
        self._n_answered += n_answered * self.weight
        self._n_given_up += (len(outcomes) - n_answered - n_missing) * self.weight if counted else 0
        return cast("list[Answer[T] | Failure]", outcomes)

    def _not_stored(self, question: Question[Any]) -> Failure:
        """Count a request that would be sent; or the failure that the question ends in."""
        may_ask = question.may_ask(self._max_samples, retry_failed=self._retry_failed)
        if not may_ask and question.failure is not None:
            return question.failure
        request = question.request
        sizes = prompt_bytes(request), _guessed_tokens(request), request.max_tokens
        self._missing.extend((int(question.key[:16], 16), self.weight, *sizes))
        self._tier = asked_tier(request)
        return NOT_SENT

    def _learn(self, request: Request, usage: Usage) -> None:
        """A stored answer; one without its usage says nothing."""
        if usage.prompt_tokens is not None and usage.completion_tokens is not None:
            self.means.learn(prompt_bytes(request), usage.prompt_tokens, usage.completion_tokens)

    def basis(self) -> str | None:
        """The source of the expected lengths and numbers of answers; None where none is missing."""
        if not self._missing:
            return None
        if n_known := self.means.n_seen:
            return f"prompts and answers as long as {n_known:,} stored ones"
        if self.task in ANSWER_SHARES:
            return "4 bytes a token, answers by the length of their texts"
        return "4 bytes a token, a quarter of max_tokens an answer: nothing is known of them"

    def estimate(self, price: Price | None, *, share: float = 1.0) -> TaskEstimate:
        """The figures of the task, where the requests so far are a `share` of all."""
        missing = np.frombuffer(self._missing, dtype=np.uint64).reshape(-1, 5)
        _, first = np.unique(missing[:, 0], return_index=True)
        weights = missing[first, 1]
        n = int(weights.sum()) / share
        sums: list[float] = (weights @ missing[first, 2:] / share).tolist()
        n_bytes, guessed_tokens, most = sums
        prompt = n_bytes / self.means.bytes_per_token
        completion = self._answers(n, guessed_tokens, most)
        usd = most_usd = None
        if price is not None:
            usd, most_usd = (
                price.of_many(n, prompt, size, self._tier) for size in (completion, most)
            )
        return TaskEstimate(
            self.task,
            round(self.n_questions / share),
            round(self._n_answered / share),
            round(self._n_given_up / share),
            round(n),
            round(prompt),
            round(completion),
            usd,
            most_usd,
        )

    def _answers(self, n: float, guessed_tokens: float, most: float) -> float:
        """Tokens of `n` answers, which together may have at most `most`: like stored ones, else
        as guessed by their texts."""
        expected = guessed_tokens or max(n, most * _UNKNOWN_SHARE)
        if self.means.n_seen:
            expected = n * self.means.output_tokens
        return min(expected, most)


def _guessed_tokens(request: Request) -> int:
    """About how many tokens the answer has; 0 where nothing is guessed for its task."""
    share = None if request.output is None else ANSWER_SHARES.get(request.output.name)
    if share is None:
        return 0
    n_bytes = _JSON_BYTES + share * utf8_bytes(request.messages[-1].content)
    return min(round(n_bytes / BYTES_PER_TOKEN), request.max_tokens)
