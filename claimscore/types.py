"""The values that every part passes around. Standard library only, plain JSON both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

JSON = dict[str, Any]


class Message(NamedTuple):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclasses.dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON object an answer must be: a name for the server and a JSON schema."""

    name: str
    schema: JSON


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Everything that determines an answer and nothing else; the cache key is made of it.

    Timeouts, retries, URLs and the way a server is asked for JSON are not part of it
    (the base URL enters as `namespace`, which the user may name).
    """

    provider: str
    namespace: str
    model: str
    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int = 256
    top_p: float = 1.0
    output: OutputSchema | None = None
    sample_index: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server reported them; None where it said nothing."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """One paid answer: what the cache holds."""

    text: str
    model: str
    finish_reason: str = "stop"
    usage: Usage = Usage()

    def to_json(self) -> JSON:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Completion:
        return cls(
            text=value["text"],
            model=value["model"],
            finish_reason=value["finish_reason"],
            usage=Usage(**value["usage"]),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """What a row gets instead of a completion; `raw` is the last answer that was refused."""

    kind: str
    message: str
    attempts: int
    request_key: str | None = None
    raw: str | None = None
