"""How many tokens the missing questions of a task have, and how many their answers will have.

Prompts are counted in bytes. How many of those a token has, and how long an answer is, is taken
from stored answers of the task and from what the built-in rules say; else it is a guess.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Iterable, Iterator

from claimscore.baseline.provider import ruled
from claimscore.pipeline.estimating.figures import Span
from claimscore.types import Completion, Request

#: Bytes of UTF-8 a token, where no answer of the model says better: right for English prose,
#: and not far off for other scripts, whose characters have more bytes.
BYTES_PER_TOKEN = 4.0

#: Lengths of answers are averaged over so many of the missing requests and stored answers.
_SAMPLED = 500

#: Stored answers from which on lengths are known rather than guessed.
KNOWN_FROM = 30

#: Without rules and stored answers: this share of what an answer may have.
_UNKNOWN_SHARE = 0.25

#: How far off a figure may be that rests on stored answers, on guesses.
_KNOWN, _PROMPT, _ANSWER = (0.93, 1.07), (0.75, 1.35), (0.6, 1.7)


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


class Lengths:
    """What is known of how long the prompts and answers of one task are.

    Told of missing requests and of stored answers; of either some are kept whole as a sample.
    """

    def __init__(self) -> None:
        self.known = Known()
        self._missing = _Sample()
        self._stored = _Sample()

    def add_missing(self, request: Request, key: str) -> None:
        self._missing.offer(key, request)

    def learn(self, request: Request, key: str, completion: Completion) -> None:
        """A stored answer; one without its usage says nothing."""
        usage = completion.usage
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return
        self.known.n += 1
        self.known.prompt_bytes += prompt_bytes(request)
        self.known.prompt_tokens += usage.prompt_tokens
        self.known.completion_tokens += usage.completion_tokens
        self._stored.offer(key, request, usage.completion_tokens)

    def about_answers(self) -> str:
        """What the expected lengths of answers rest on."""
        if any(_ruled_tokens(request) for request, _ in self._missing):
            if self.known.n:
                return f"lengths of answers after the rules' and {self.known.n:,} stored ones"
            return "answers as long as the built-in rules'"
        if self.known.n:
            return f"answers as long as {self.known.n:,} stored ones"
        return "a quarter of max_tokens an answer: nothing is known of their length"

    def prompt_tokens(self, n_bytes: float, bytes_per_token: float | None) -> Span:
        """Tokens of so many bytes; `bytes_per_token` is for want of own answers."""
        ratio = self.known.bytes_per_token or bytes_per_token
        return Span.around(n_bytes / (ratio or BYTES_PER_TOKEN), _KNOWN if ratio else _PROMPT)

    def completion_tokens(self, n: float, most: float) -> Span:
        """Tokens of `n` answers, which together may have at most `most`.

        As long as what the rules say to the missing questions, or rather as much longer or
        shorter as stored answers are; like those alone where there are no rules for the task.
        """
        if not n:
            return Span(0.0, 0.0, 0.0)
        ruled = [tokens for request, _ in self._missing if (tokens := _ruled_tokens(request))]
        if ruled:
            mean = sum(ruled) / len(ruled) * self._longer_than_rules()
        elif self.known.n:
            mean = self.known.completion_tokens / self.known.n
        else:
            return Span(n, most * _UNKNOWN_SHARE, most)
        span = Span.around(n * mean, _KNOWN if self.known.n >= KNOWN_FROM else _ANSWER)
        return Span(*(min(figure, most) for figure in span))

    def _longer_than_rules(self) -> float:
        """How much longer stored answers are than what the rules say to the same."""
        pairs = [
            (tokens, ruled)
            for request, tokens in self._stored
            if (ruled := _ruled_tokens(request)) and tokens
        ]
        return sum(real for real, _ in pairs) / sum(ruled for _, ruled in pairs) if pairs else 1.0


def known_ratio(tasks: Iterable[Lengths]) -> float | None:
    """Bytes a token over the stored answers of all tasks; None where there are none."""
    known = [lengths.known for lengths in tasks]
    n_tokens = sum(one.prompt_tokens for one in known)
    return sum(one.prompt_bytes for one in known) / n_tokens if n_tokens else None


def ruled_answer(request: Request) -> str | None:
    """What the built-in rules say to a request; None where they know no such task."""
    answer = ruled(request)
    return None if answer is None else json.dumps(answer, ensure_ascii=False)


def _ruled_tokens(request: Request) -> float | None:
    """About how many tokens that answer has."""
    answer = ruled_answer(request)
    if answer is None:
        return None
    return min(len(answer.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN, request.max_tokens)


def prompt_bytes(request: Request) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        for _, text in request.messages
    )


def key_number(key: str) -> int:
    """Half of a key: as good as the whole one for telling requests apart."""
    return int(key[:16], 16)


class _Sample:
    """The requests with the lowest keys: as good as drawn by lot, and always the same ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Request, int]] = []
        self._held: set[int] = set()

    def offer(self, key: str, request: Request, tokens: int = 0) -> None:
        number = -key_number(key)
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
