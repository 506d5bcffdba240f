"""Whether a paid answer can be used. Pure."""

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
class Passed(Generic[T]):
    """What `parse` made of a completion."""

    value: T


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Why a completion failed its check; `final` where another sample would fare no better."""

    kind: str
    message: str
    raw: str
    final: bool = False


def judge(completion: Completion, parse: Parse[T]) -> Passed[T] | Refused:
    """Judge an answer. Cut-off, declined and empty ones are not shown to `parse`."""
    text = completion.text
    if completion.finish_reason == "content_filter":
        return Refused("content_filter", "the server's filter stopped the answer", text, final=True)
    if completion.finish_reason in ("length", "model_length"):  # the latter is Mistral's
        return Refused("length", "the answer was cut off at max_tokens", text)
    if completion.finish_reason == "refusal":
        return Refused("refusal", f"the model declined: {text}", text)
    if not text.strip():
        return Refused("empty", "the answer was empty", text)
    try:
        return Passed(parse(completion))
    except ParseError as exc:
        return Refused("parse", str(exc), text)
