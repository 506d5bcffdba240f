"""The values that every part passes around. Standard library only, plain JSON both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

JSON = dict[str, Any]

#: The answer to a request about several numbered texts: a list of objects under this name, each
#: with the number of its text.
ANSWERS, TEXT_NUMBER = "answers", "text"


def utf8_bytes(text: str) -> int:
    """Bytes of a text as UTF-8; halves of characters count too."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


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
    (the base URL enters as `namespace`, which the user may name). `top_logprobs` asks for the
    log-probabilities of so many of the likeliest tokens at each place of the answer. `extra` are
    parameters that the server gets as they stand (`seed`, `reasoning_effort`).

    `shared` is no part of it either: the text in the last message after whose end its prompts
    differ. Of requests that share one, the first is answered before the others are sent. Nor are
    `texts`: what stands in the last message for each placeholder of the prompt.
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
    top_logprobs: int = 0
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    shared: str = dataclasses.field(default="", compare=False, repr=False)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)


class Usage(NamedTuple):
    """Tokens as the server reported them; None where it said nothing.

    Of `prompt_tokens` the server had `cached_prompt_tokens` in a cache of its own, which it bills
    at a lower price, and wrote `written_prompt_tokens` into it. `reasoning_tokens` are those of
    `completion_tokens` that the model thought with. `service_tier` is the one that the request
    was served at, as the answer says; "" where it does not.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    reasoning_tokens: int | None = None
    written_prompt_tokens: int | None = None
    service_tier: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LimitState:
    """One limit as a server tells it: units a minute, what is left, seconds until it is full."""

    limit: float | None = None
    remaining: float | None = None
    reset_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits by a response's headers; None where they say nothing."""

    requests: LimitState | None = None
    tokens: LimitState | None = None


class TokenLogprob(NamedTuple):
    """A token of an answer with its natural log-probability; `top` are the likeliest there."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


#: Tokens of which a server said nothing.
_UNKNOWN_USAGE = Usage()


@dataclasses.dataclass(slots=True)  # freezing it takes twice the time, at every stored answer
class Completion:
    """One paid answer: what the cache holds. `reasoning` is what the model thought before it.

    `logprobs` are the answer's tokens in order, where they were asked for and the server gave
    them. `limits` came along with it and is for the limiter alone: it is neither stored nor
    compared.
    """

    text: str
    model: str
    finish_reason: str = "stop"
    usage: Usage = _UNKNOWN_USAGE
    limits: RateLimits | None = dataclasses.field(default=None, compare=False, repr=False)
    logprobs: tuple[TokenLogprob, ...] | None = None
    reasoning: str = ""

    def to_json(self) -> JSON:
        prompt_tokens, completion_tokens, *others = self.usage
        tokens: JSON = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        for name, value in zip(Usage._fields[2:], others, strict=True):
            if value not in (None, ""):
                tokens[name] = value
        entry: JSON = {
            "text": self.text,
            "model": self.model,
            "finish_reason": self.finish_reason,
            "usage": tokens,
        }
        if self.reasoning:
            entry["reasoning"] = self.reasoning
        if self.logprobs is not None:
            entry["logprobs"] = [
                [token, logprob, [list(other) for other in top]]
                for token, logprob, top in self.logprobs
            ]
        return entry

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Completion:
        tokens = value["usage"]
        usage = Usage(
            tokens["prompt_tokens"],
            tokens["completion_tokens"],
            tokens.get("cached_prompt_tokens"),
            tokens.get("reasoning_tokens"),
            tokens.get("written_prompt_tokens"),
            tokens.get("service_tier", ""),
        )
        logprobs = value.get("logprobs")
        if logprobs is not None:
            logprobs = tuple(
                TokenLogprob(token, logprob, tuple((other, p) for other, p in top))
                for token, logprob, top in logprobs
            )
        answer = value["text"], value["model"], value["finish_reason"]
        return cls(*answer, usage, logprobs=logprobs, reasoning=value.get("reasoning", ""))


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """The outcome of a row without a completion; `raw` is the last answer that was refused."""

    kind: str
    message: str
    attempts: int
    request_key: str | None = None
    raw: str | None = None
