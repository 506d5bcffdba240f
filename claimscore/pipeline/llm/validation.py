"""Whether a paid answer can be used: cut off, declined, empty, or not as the prompt asks. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

from claimscore.errors import ParseError
from claimscore.types import Completion

T = TypeVar("T")

#: Makes a value of an answer, or raises `ParseError`.
Parse = Callable[[Completion], T]


@dataclasses.dataclass(frozen=True, slots=True)
class Valid(Generic[T]):
    """An answer that can be used, as the value that `parse` made of it."""

    value: T


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


def validate(completion: Completion, parse: Parse[T]) -> Valid[T] | Invalid:
    """Judge an answer. Cut-off, declined and empty ones are not shown to `parse`.

    Raises only what `parse` raises besides `ParseError`.
    """
    text = completion.text
    if completion.finish_reason == "content_filter":
        message = "the server's filter stopped the answer"
        return Invalid("content_filter", message, text, is_final=True)
    if completion.finish_reason == "length":
        return Invalid("length", "the answer was cut off at max_tokens", text, is_cut_off=True)
    if completion.finish_reason == "model_length":  # Mistral's: more tokens would not fit
        return Invalid("length", "the answer was cut off where the model's context ends", text)
    if completion.finish_reason == "refusal":
        return Invalid("refusal", f"the model declined: {text}", text)
    if not text.strip():
        return Invalid("empty", "the answer was empty", text)
    try:
        return Valid(parse(completion))
    except ParseError as exc:
        return Invalid("parse", str(exc), text)
