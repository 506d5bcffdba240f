"""The questions of one task, without asking them: which are answered, how large the others are.

Requests are looked up in the cache as the engine does it. What is not there is counted once,
however often it is asked; how long its answer will be is taken from stored answers to others
of the task and from what the built-in rules say.
"""

from __future__ import annotations

import array
import dataclasses
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache
from claimscore.pipeline.llm.judge import Parse, Refused, judge
from claimscore.pipeline.llm.prices import Price
from claimscore.pipeline.llm.providers.builtin import ruled
from claimscore.types import Completion, Request

#: Bytes of UTF-8 a token, where no answer of the model says better: right for English prose,
#: and not far off for other scripts, whose characters have more bytes.
BYTES_PER_TOKEN = 4.0

#: Lengths of answers are averaged over so many of the missing requests and stored answers.
_SAMPLED = 500

#: Stored answers from which on lengths are known rather than guessed.
_KNOWN_FROM = 30

#: Without rules and stored answers: this share of what an answer may have.
_UNKNOWN_SHARE = 0.25


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


#: How far off a figure may be that rests on stored answers, on guesses, on guessed questions.
_KNOWN, _PROMPT, _ANSWER, _QUESTIONS = (0.93, 1.07), (0.75, 1.35), (0.6, 1.7), (0.7, 1.5)


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


class Found(NamedTuple):
    """What the cache says to a question: an answer's value, or that it would be asked; neither
    where it was asked often enough."""

    answered: bool = False
    value: Any = None
    missing: bool = False


@dataclasses.dataclass(slots=True)
class Known:
    """Sums over stored answers with their usage: what texts and answers are in tokens."""

    n: int = 0
    prompt_bytes: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def bytes_per_token(self) -> float | None:
        return self.prompt_bytes / self.prompt_tokens if self.prompt_tokens else None


@dataclasses.dataclass(slots=True)
class _Row:
    """A question on its way through the samples that are stored."""

    request: Request
    step: int
    n_refused: int = 0
    final: bool = False


class Tally:
    """Counts the questions of one task.

    A missing request takes 24 bytes, however long it is; some are kept whole as a sample.
    """

    def __init__(self, task: str, cache: Cache, *, max_samples: int, retry_failed: bool) -> None:
        self.task = task
        self.known = Known()
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
        self._missing = _Sample()
        self._stored = _Sample()

    def add(
        self, requests: Sequence[Request], parse: Parse[Any], *, step: int = 1, counted: bool = True
    ) -> list[Found]:
        """Look the requests up; where a stored answer is refused, its next sample.

        `step` and `counted` are those of `Engine.answer_all`.
        """
        keys = [request_key(request) for request in requests]
        found: dict[str, Found] = {}
        at = {key: (key, _Row(request, step)) for key, request in zip(keys, requests, strict=True)}
        while at:
            stored = self._cache.get_many([sample_key for sample_key, _ in at.values()])
            following = {}
            for key, (sample_key, row) in at.items():
                if sample_key not in stored:
                    found[key] = self._not_stored(row, sample_key)
                    continue
                completion = stored[sample_key].completion
                self._learn(row.request, sample_key, completion)
                verdict = judge(completion, parse)
                if isinstance(verdict, Refused):
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
        if any(ruled_tokens(request) for request, _ in self._missing):
            lengths = "answers as long as the built-in rules'"
            if self.known.n:
                lengths = f"lengths of answers after the rules' and {self.known.n:,} stored ones"
        elif self.known.n:
            lengths = f"answers as long as {self.known.n:,} stored ones"
        else:
            lengths = "a quarter of max_tokens an answer: nothing is known of their length"
        samples = self._samples_a_question()
        tries = f", {samples:.2f} tries a question as so far" if samples > 1 else ""
        return lengths + tries

    def _not_stored(self, row: _Row, key: str) -> Found:
        """A sample that nobody has: it would be asked, or the question is given up."""
        used_up = row.n_refused >= self._max_samples or row.final
        if used_up and not self._retry_failed:
            self._count_end(row.n_refused)
            return _GIVEN_UP
        self._keys.append(_number(key))
        self._bytes.append(_prompt_bytes(row.request))
        self._max_tokens.append(row.request.max_tokens)
        self._missing.offer(key, row.request)
        return _MISSING

    def _count_end(self, n_samples: int) -> None:
        self._n_ended += 1
        self._n_samples += n_samples

    def _learn(self, request: Request, key: str, completion: Completion) -> None:
        usage = completion.usage
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return
        self.known.n += 1
        self.known.prompt_bytes += _prompt_bytes(request)
        self.known.prompt_tokens += usage.prompt_tokens
        self.known.completion_tokens += usage.completion_tokens
        self._stored.offer(key, request, usage.completion_tokens)

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
        ratio = self.known.bytes_per_token or bytes_per_token
        prompt = Span.around(n_bytes / (ratio or BYTES_PER_TOKEN), _KNOWN if ratio else _PROMPT)
        completion = self._completion_tokens(n, most)
        if guessed:
            prompt, completion = (
                Span(span.low * _QUESTIONS[0], span.expected, span.high * _QUESTIONS[1])
                for span in (prompt, completion)
            )
            most *= _QUESTIONS[1]
        usd = most_usd = None
        if price is not None:
            sizes = zip(prompt, completion, strict=True)
            usd = Span(*(price.of_many(n, prompted, answered) for prompted, answered in sizes))
            most_usd = price.of_many(n, prompt.high, most)
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
        if self._n_ended < _KNOWN_FROM:
            return 1.0
        return max(1.0, self._n_samples / self._n_ended)

    def _completion_tokens(self, n: float, most: float) -> Span:
        """As long as what the rules say to the missing questions, or rather as much longer or
        shorter as stored answers are; like those alone where there are no rules for the task."""
        if not n:
            return Span(0.0, 0.0, 0.0)
        ruled = [tokens for request, _ in self._missing if (tokens := ruled_tokens(request))]
        if ruled:
            mean = sum(ruled) / len(ruled) * self._longer_than_rules()
        elif self.known.n:
            mean = self.known.completion_tokens / self.known.n
        else:
            return Span(n, most * _UNKNOWN_SHARE, most)
        span = Span.around(n * mean, _KNOWN if self.known.n >= _KNOWN_FROM else _ANSWER)
        return Span(*(min(figure, most) for figure in span))

    def _longer_than_rules(self) -> float:
        """How much longer stored answers are than what the rules say to the same."""
        pairs = [
            (tokens, ruled)
            for request, tokens in self._stored
            if (ruled := ruled_tokens(request)) and tokens
        ]
        return sum(real for real, _ in pairs) / sum(ruled for _, ruled in pairs) if pairs else 1.0


_GIVEN_UP = Found()
_MISSING = Found(missing=True)


def _next_sample(row: _Row, verdict: Refused) -> tuple[str, _Row]:
    index = row.request.sample_index + row.step
    request = dataclasses.replace(row.request, sample_index=index)
    return request_key(request), _Row(request, row.step, row.n_refused + 1, verdict.final)


def ruled_answer(request: Request) -> str | None:
    """What the built-in rules say to a request; None where they know no such task."""
    answer = ruled(request)
    return None if answer is None else json.dumps(answer, ensure_ascii=False)


def ruled_tokens(request: Request) -> float | None:
    """About how many tokens that answer has."""
    answer = ruled_answer(request)
    if answer is None:
        return None
    return min(len(answer.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN, request.max_tokens)


def _prompt_bytes(request: Request) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        for _, text in request.messages
    )


def _number(key: str) -> int:
    """Half of a key: as good as the whole one for telling requests apart."""
    return int(key[:16], 16)


def _chosen(values: array.array[int], indices: np.ndarray) -> np.uint64:
    total: np.uint64 = np.frombuffer(values, dtype=np.uint64)[indices].sum(dtype=np.uint64)
    return total


class _Sample:
    """The requests with the lowest keys: as good as drawn by lot, and always the same ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Request, int]] = []
        self._held: set[int] = set()

    def offer(self, key: str, request: Request, tokens: int = 0) -> None:
        number = -_number(key)
        if number in self._held:
            return
        if len(self._heap) < _SAMPLED:
            heapq.heappush(self._heap, (number, request, tokens))
        elif number > self._heap[0][0]:
            gone, _, _ = heapq.heapreplace(self._heap, (number, request, tokens))
            self._held.discard(gone)
        else:
            return
        self._held.add(number)

    def __iter__(self) -> Iterator[tuple[Request, int]]:
        return ((request, tokens) for _, request, tokens in self._heap)
