"""How many tokens prompts and answers of one task have.

Prompts are measured in bytes. How many of those a token has, and how long an answer is, is taken
from stored answers of the task and from the built-in rules' answers; else it is a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from claimscore.baseline.provider import ruled
from claimscore.pipeline.estimate.figures import Spread
from claimscore.types import Completion, Request, utf8_bytes

#: Bytes of UTF-8 a token, where no answer of the model says better: right for English prose,
#: and not far off for other scripts, whose characters have more bytes.
BYTES_PER_TOKEN = 4.0

#: Lengths of answers are averaged over so many of the missing requests and stored answers.
SAMPLED = 500

#: Stored answers from which on lengths are known rather than guessed.
KNOWN_FROM = 30

#: Without rules and stored answers: this share of the tokens that an answer may have.
_UNKNOWN_SHARE = 0.25

#: How far off a figure may be that rests on stored answers, on guesses.
_KNOWN, _PROMPT, _ANSWER = (0.93, 1.07), (0.75, 1.35), (0.6, 1.7)


class Lengths:
    """The lengths of the prompts and answers of one task.

    Learns from missing requests and from stored answers, and keeps a sample of both. `n_known`
    answers are stored with their usage; their prompts had `prompt_bytes` and `prompt_tokens`.
    """

    def __init__(self) -> None:
        self.n_known = 0
        self.prompt_bytes = 0
        self.prompt_tokens = 0
        self._completion_tokens = 0
        self._missing = _Sample()
        self._stored = _Sample()

    def add_missing(self, request: Request, key: str) -> None:
        """A request that would be sent."""
        self._missing.offer(key, request)

    def learn(self, request: Request, key: str, completion: Completion) -> None:
        """A stored answer; one without its usage says nothing."""
        usage = completion.usage
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return
        self.n_known += 1
        self.prompt_bytes += prompt_bytes(request)
        self.prompt_tokens += usage.prompt_tokens
        self._completion_tokens += usage.completion_tokens
        self._stored.offer(key, request, usage.completion_tokens)

    def basis(self) -> str:
        """The source of the expected lengths of answers, in words."""
        if any(_ruled_tokens(request) for request, _ in self._missing):
            if self.n_known:
                return f"lengths of answers after the rules' and {self.n_known:,} stored ones"
            return "answers as long as the built-in rules'"
        if self.n_known:
            return f"answers as long as {self.n_known:,} stored ones"
        return "a quarter of max_tokens an answer: nothing is known of their length"

    def expect_prompts(self, n_bytes: float, bytes_per_token: float | None) -> Spread:
        """Tokens of so many bytes; `bytes_per_token` is used where no own answer is stored."""
        ratio = known_ratio([self]) or bytes_per_token
        return Spread.around(n_bytes / (ratio or BYTES_PER_TOKEN), _KNOWN if ratio else _PROMPT)

    def expect_answers(self, n: float, most: float) -> Spread:
        """Tokens of `n` answers, which together may have at most `most`.

        As long as the rules' answers to the missing questions, times how much longer stored
        answers are than the rules'; like stored ones alone where there are no rules for the task.
        """
        if not n:
            return Spread(0.0, 0.0, 0.0)
        ruled = [tokens for request, _ in self._missing if (tokens := _ruled_tokens(request))]
        if ruled:
            mean = sum(ruled) / len(ruled) * self._longer_than_rules()
        elif self.n_known:
            mean = self._completion_tokens / self.n_known
        else:
            return Spread(n, most * _UNKNOWN_SHARE, most)
        span = Spread.around(n * mean, _KNOWN if self.n_known >= KNOWN_FROM else _ANSWER)
        return Spread(*(min(figure, most) for figure in span))

    def _longer_than_rules(self) -> float:
        pairs = [
            (tokens, ruled)
            for request, tokens in self._stored
            if (ruled := _ruled_tokens(request)) and tokens
        ]
        return sum(real for real, _ in pairs) / sum(ruled for _, ruled in pairs) if pairs else 1.0


def known_ratio(tasks: Iterable[Lengths]) -> float | None:
    """Bytes a token over the stored answers of the tasks; None where there are none."""
    n_bytes = n_tokens = 0
    for lengths in tasks:
        n_bytes, n_tokens = n_bytes + lengths.prompt_bytes, n_tokens + lengths.prompt_tokens
    return n_bytes / n_tokens if n_tokens else None


def prompt_bytes(request: Request) -> int:
    """Bytes of UTF-8 of all messages."""
    return sum(utf8_bytes(text) for _, text in request.messages)


def key_number(key: str) -> int:
    """Half of a key: as good as the whole one for telling requests apart."""
    return int(key[:16], 16)


def _ruled_tokens(request: Request) -> float | None:
    """About how many tokens the rules' answer has; None where there are no rules for its task."""
    answer = ruled(request)
    if answer is None:
        return None
    text = json.dumps(answer, ensure_ascii=False)
    return min(utf8_bytes(text) / BYTES_PER_TOKEN, request.max_tokens)


class _Sample:
    """The requests with the lowest keys: as good as drawn by lot, and always the same ones."""

    def __init__(self) -> None:
        self._by_key: dict[int, tuple[Request, int]] = {}

    def offer(self, key: str, request: Request, tokens: int = 0) -> None:
        self._by_key[key_number(key)] = request, tokens
        if len(self._by_key) >= 2 * SAMPLED:
            self._by_key = {number: self._by_key[number] for number in self._lowest()}

    def _lowest(self) -> list[int]:
        return sorted(self._by_key)[:SAMPLED]

    def __iter__(self) -> Iterator[tuple[Request, int]]:
        return (self._by_key[number] for number in self._lowest())
