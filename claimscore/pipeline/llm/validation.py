"""Whether a paid answer can be used: cut off, declined, empty, or not as the prompt asks. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from claimscore.errors import ParseError
from claimscore.types import Completion

T = TypeVar("T")

#: Reasons to finish that leave no answer.
_NO_ANSWER = {"content_filter", "length", "model_length", "refusal"}

#: Makes a value of an answer, or raises `ParseError`.
Parse = Callable[[Completion], T]


@dataclasses.dataclass(frozen=True, slots=True)
class Invalid:
    """Why an answer cannot be used.

    `is_final`: another sample would fare no better. `is_cut_off`: one with more `max_tokens` may;
    `is_reasoning`: it was cut off before it began.
    """

    kind: str
    message: str
    raw: str
    is_final: bool = False
    is_cut_off: bool = False
    is_reasoning: bool = False


def validate(completion: Completion, parse: Parse[T]) -> T | Invalid:
    """The value of an answer, or why it has none.

    Cut-off, declined and empty answers are not shown to `parse`. Raises only what `parse` raises
    besides `ParseError`.
    """
    text = completion.text
    if completion.finish_reason in _NO_ANSWER or not text or text.isspace():
        return _invalid(completion)
    try:
        return parse(completion)
    except ParseError as exc:
        return Invalid("parse", str(exc), text)


def _invalid(completion: Completion) -> Invalid:
    """Why a cut-off, declined or empty answer cannot be used."""
    text, reason = completion.text, completion.finish_reason
    if reason == "content_filter":
        message = "the server's filter stopped the answer"
        return Invalid("content_filter", message, text, is_final=True)
    has_reasoned = bool(completion.reasoning or completion.usage.reasoning_tokens)
    if reason == "length":
        if not has_reasoned or text.strip():
            return Invalid("length", "the answer was cut off at max_tokens", text, is_cut_off=True)
        message, raw = "the model was still reasoning at max_tokens", completion.reasoning
        return Invalid("length", message, raw, is_cut_off=True, is_reasoning=True)
    if reason == "model_length":  # Mistral's: more tokens would not fit
        return Invalid("length", "the answer was cut off where the model's context ends", text)
    if reason == "refusal":
        return Invalid("refusal", f"the model declined: {text}", text)
    message = "the model reasoned and then answered nothing" if has_reasoned else ""
    return Invalid("empty", message or "the answer was empty", text or completion.reasoning)
