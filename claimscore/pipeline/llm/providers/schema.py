"""How a server is asked for JSON: the body of a request, and what a refusal teaches about it.

Servers that speak OpenAI's protocol differ in what they take: a JSON schema, JSON without one or
only text; `max_tokens` or `max_completion_tokens`; a temperature or none. None of this is part
of a request, nor of the cache key. Pure.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Literal

import orjson

from claimscore.pipeline.llm.providers.errors import Refusal
from claimscore.types import JSON, Message, OutputSchema, Request

OutputMode = Literal["json_schema", "json_object", "text"]
LimitField = Literal["max_tokens", "max_completion_tokens"]
_NEXT_MODE: dict[OutputMode, OutputMode] = {"json_schema": "json_object", "json_object": "text"}
_OMITTABLE = ("temperature", "top_p", "logprobs")

_ABOUT_OUTPUT = re.compile(
    r"response_format|json_schema|json_object|guided|structured.output|output_config"
)
#: OpenAI's reasoning models have words 403 to logprobs; however it is worded, it is about these.
_LOGPROBS = {400, 403, 422}
_UNWANTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not permitted|extra"
)
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclasses.dataclass(frozen=True, slots=True)
class Dialect:
    """How a server wants to be asked for a model."""

    output_mode: OutputMode = "json_schema"
    limit_field: LimitField = "max_tokens"
    omitted: frozenset[str] = frozenset()


def encode_json(body: JSON) -> bytes:
    """JSON as UTF-8 can carry it: lone surrogates become question marks."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return _encoder.encode(body).encode("utf-8", "replace")


def chat_body(request: Request, dialect: Dialect) -> JSON:
    """The body of POST /chat/completions."""
    messages = request.messages
    body: JSON = {
        "model": request.model,
        "temperature": request.temperature,
        "top_p": request.top_p,
        dialect.limit_field: request.max_tokens,
    }
    if request.top_logprobs and "logprobs" not in dialect.omitted:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.output is not None:
        if dialect.output_mode != "json_schema":
            messages = with_schema_in_words(messages, request.output)
        if dialect.output_mode != "text":
            body["response_format"] = _response_format(request.output, dialect.output_mode)
    body["messages"] = [{"role": role, "content": content} for role, content in messages]
    for name in dialect.omitted:
        body.pop(name, None)
    return {**body, **request.extra}


def _response_format(output: OutputSchema, mode: OutputMode) -> JSON:
    if mode == "json_object":
        return {"type": "json_object"}
    schema = {"name": output.name, "schema": output.schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def with_schema_in_words(
    messages: tuple[Message, ...], output: OutputSchema
) -> tuple[Message, ...]:
    """The messages with the order to answer in this JSON, for a server that takes no schema."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    order = f"Answer with one JSON object and nothing else. Its JSON schema:\n{schema}"
    if messages and messages[0].role == "system":
        first = Message("system", f"{messages[0].content}\n\n{order}")
        return (first, *messages[1:])
    return (Message("system", order), *messages)


def learn_dialect(refusal: Refusal, dialect: Dialect) -> Dialect | None:
    """Return the dialect to ask in next; None where the refusal is about something else."""
    words = f"{refusal.param} {refusal.message}".lower()
    if "logprobs" in words and "logprobs" not in dialect.omitted and refusal.status in _LOGPROBS:
        return dataclasses.replace(dialect, omitted=dialect.omitted | {"logprobs"})
    if refusal.status not in (400, 422):
        return None
    if _ABOUT_OUTPUT.search(words):
        mode = _NEXT_MODE.get(dialect.output_mode)
        return None if mode is None else dataclasses.replace(dialect, output_mode=mode)
    if not _UNWANTED.search(words):
        return None
    if dialect.limit_field == "max_tokens" and "max_tokens" in words:
        return dataclasses.replace(dialect, limit_field="max_completion_tokens")
    for name in _OMITTABLE:
        if name in words and name not in dialect.omitted:
            return dataclasses.replace(dialect, omitted=dialect.omitted | {name})
    return None
