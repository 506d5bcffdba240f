"""A question on its way through its samples, and the answer or failure that it ends in. Pure.

`validate` judges a paid answer: cut off, declined, empty, or not as the prompt asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from claimscore.cache.key import request_key
from claimscore.errors import ParseError
from claimscore.types import Completion, Failure, Request

T = TypeVar("T")

#: Reasons to finish that leave no answer.
_NO_ANSWER = {"content_filter", "length", "model_length", "refusal"}

_STILL_REASONING = (
    "the model was still reasoning at max_tokens; many models reason less with --llm-param "
    "reasoning_effort=low"
)

#: Makes a value of an answer, or raises `ParseError`.
Parse = Callable[[Completion], T]


@dataclasses.dataclass(frozen=True, slots=True)
class ParseWord(Generic[T]):
    """A `Parse` of answers that are one word, read from its log-probabilities.

    So one that is cut off after the word has all that was asked for, and another sample of one
    that says no such word would fare no better.
    """

    parse: Parse[T]

    def __call__(self, completion: Completion) -> T:
        return self.parse(completion)


@dataclasses.dataclass(frozen=True, slots=True)
class Invalid:
    """Why an answer cannot be used.

    `is_final`: another sample would fare no better. `is_cut_off`: one with more `max_tokens` may.
    """

    kind: str
    message: str
    raw: str
    is_final: bool = False
    is_cut_off: bool = False


def validate(completion: Completion, parse: Parse[T]) -> T | Invalid:
    """The value of an answer, or why it has none.

    Cut-off, declined and empty answers are not shown to `parse`, but cut-off ones to a `ParseWord`.
    Raises only what `parse` raises besides `ParseError`.
    """
    text, reason = completion.text, completion.finish_reason
    is_word = isinstance(parse, ParseWord)
    is_whole = reason not in _NO_ANSWER and bool(text.strip())
    if not is_whole and not (is_word and reason == "length"):
        return _invalid(completion)
    try:
        return parse(completion)
    except ParseError as exc:
        return Invalid("parse", str(exc), text, is_final=is_word)


def _invalid(completion: Completion) -> Invalid:
    """Why a cut-off, declined or empty answer cannot be used."""
    text, reason = completion.text, completion.finish_reason
    if reason == "content_filter":
        message = "the server's filter stopped the answer"
        return Invalid("content_filter", message, text, is_final=True)
    has_reasoned = bool(completion.reasoning or completion.usage.reasoning_tokens)
    if reason == "length":
        message = "the answer was cut off at max_tokens"
        if has_reasoned and not text.strip():
            message, text = _STILL_REASONING, completion.reasoning
        return Invalid("length", message, text, is_cut_off=True)
    if reason == "model_length":  # Mistral's: more tokens would not fit
        return Invalid("length", "the answer was cut off where the model's context ends", text)
    if reason == "refusal":
        return Invalid("refusal", f"the model declined: {text}", text)
    message = "the model reasoned and then answered nothing" if has_reasoned else ""
    return Invalid("empty", message or "the answer was empty", text or completion.reasoning)


#: An answer that is cut off may be asked for again with up to so many times `max_tokens`.
LIMIT_TIMES = 4


class Answer(NamedTuple, Generic[T]):
    """An answer that passed its check; `cached` where nothing was sent for it."""

    key: str
    completion: Completion
    value: T
    cached: bool


def token_steps(max_tokens: int, limit: int | None = None) -> Iterator[int]:
    """The values of `max_tokens` that are tried while answers are cut off, in their order.

    Each is twice the one before, the last one `limit` (None: four times the first).
    """
    limit = LIMIT_TIMES * max_tokens if limit is None else limit
    yield max_tokens
    while max_tokens < limit:
        max_tokens = min(2 * max_tokens, limit)
        yield max_tokens


@dataclasses.dataclass(slots=True)
class Question(Generic[T]):
    """A question and the state of its answers.

    `request` with its `key` is the next one to be sent. After an answer that was cut off it is
    for the same sample with more `max_tokens`, up to `max_tokens_limit`; after another answer
    that cannot be used it is for the next sample, `step` further on.

    `n_answers` answers could not be used. `n_samples` samples are used up, `n_new` of them by this
    call. `is_final`: a further sample would fare no better.
    `failure` is the outcome if nothing more may be asked.
    """

    request: Request
    key: str
    step: int = 1
    max_tokens_limit: int | None = None
    n_answers: int = 0
    n_samples: int = 0
    n_new: int = 0
    is_final: bool = False
    failure: Failure | None = None
    outcome: Answer[T] | Failure | None = None
    _max_tokens: int = 0

    def use_stored(self, completion: Completion, parse: Parse[T]) -> bool:
        """Judge a stored answer; False, with the next request to come, where it cannot be used."""
        verdict = validate(completion, parse)
        if isinstance(verdict, Invalid):
            self.go_on(verdict, is_new=False)
            return False
        self.outcome = Answer(self.key, completion, verdict, cached=True)
        return True

    def go_on(self, why: Invalid, *, is_new: bool) -> None:
        """Go on to the next request, as the answer to this one cannot be used."""
        request, message = self.request, why.message
        self.n_answers += 1
        self._max_tokens = self._max_tokens or request.max_tokens  # the first one
        steps = token_steps(self._max_tokens, self.max_tokens_limit)
        larger = next((n_tokens for n_tokens in steps if n_tokens > request.max_tokens), None)
        if why.is_cut_off and larger is not None:
            self.request = dataclasses.replace(request, max_tokens=larger)
        else:
            self.n_samples += 1
            self.n_new += is_new
            self.is_final = why.is_final or why.is_cut_off
            index = request.sample_index + self.step
            self.request = dataclasses.replace(request, sample_index=index)
            if why.is_cut_off:
                limit = (
                    f"at {request.max_tokens:,} tokens, which is max_tokens_limit (max_tokens is "
                    f"{self._max_tokens:,}; both are in the prompt's [settings])"
                )
                message = message.replace("at max_tokens", limit)
        self.failure = Failure(why.kind, message, self.n_answers, self.key, why.raw)
        self.key = request_key(self.request)

    def may_ask(self, max_samples: int, *, retry_failed: bool) -> bool:
        """Whether an answer may be bought; `retry_failed` forgives those of earlier runs."""
        used = self.n_new if retry_failed else self.n_samples
        return used < max_samples and not (used and self.is_final)


def take_stored(
    get_many: Callable[[Sequence[str]], Mapping[str, Completion]],
    questions: Sequence[Question[T]],
    parse: Parse[T],
) -> None:
    """Use the stored answers to all of their samples; a question without an outcome is to be sent.

    `get_many` is that of a cache.
    """
    while questions:
        stored = get_many([question.key for question in questions])
        answered = [question for question in questions if question.key in stored]
        questions = [one for one in answered if not one.use_stored(stored[one.key], parse)]
