"""Anthropic's Messages API as its documentation and SDK describe it, in terms of OpenAI's chat.

`POST /v1/messages` has the fate of a chat request: only its words differ. A beginning that is
marked and long enough is written into a cache once, and read from it afterwards.
"""

import datetime
import re
from typing import Any

from claimscore.types import Completion

Body = dict[str, Any]

#: The version whose rules hold here.
API_VERSION = "2026-10-21"
#: Shorter beginnings are not cached.
LEAST_CACHED_TOKENS = 1024

_FIELDS = {"model", "max_tokens", "messages", "system", "output_config", "thinking", "metadata"}
_FIELDS |= {"service_tier", "stop_sequences", "tools", "tool_choice"}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
#: Status -> the type of its error; a fault's name where OpenAI's status is another.
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FAULTS = {
    "quota": (400, "Your credit balance is too low to access the Anthropic API."),
    "filter": (400, "Output blocked by content filtering policy"),
    "schema": (400, "output_config.format: Extra inputs are not permitted"),
}


class Messages:
    """The protocol's words, and the beginnings that are in the cache."""

    def __init__(self) -> None:
        self._cached: set[str] = set()

    def problem(self, body: Body, headers: dict[str, str]) -> str | None:
        """Why the API refuses a request as it came; None where it does not."""
        if headers.get("anthropic-version") != API_VERSION:
            return "anthropic-version: a valid version is required"
        if "max_tokens" not in body:
            return "max_tokens: Field required"
        if unknown := sorted(body.keys() - _FIELDS):
            return f"{unknown[0]}: Extra inputs are not permitted"
        if any(turn["role"] not in ("user", "assistant") for turn in body["messages"]):
            return "messages.0.role: Input should be 'user' or 'assistant'"
        if not all(text for turn in body["messages"] for text in _texts(turn["content"])):
            return "messages: text content blocks must be non-empty"
        output = body.get("output_config", {}).get("format")
        return _schema_problem(output["schema"]) if output else None

    def chat_body(self, body: Body) -> Body:
        """The request as OpenAI's chat has it."""
        system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
        turns = [
            {"role": turn["role"], "content": "".join(_texts(turn["content"]))}
            for turn in body["messages"]
        ]
        chat = {"model": body["model"], "max_tokens": body["max_tokens"]}
        output = body.get("output_config", {}).get("format")
        if output:
            schema = {"name": output["schema"]["title"], "schema": output["schema"]}
            chat["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {**chat, "messages": [*system, *turns]}

    def answer(self, asked: Body, reply: Body, completion: Completion | None) -> Body:
        """The message that a chat completion is."""
        choice = reply["choices"][0]
        reasoning = completion.reasoning if completion is not None else ""
        blocks = (
            [{"type": "thinking", "thinking": reasoning, "signature": "s"}] if reasoning else []
        )
        reason = choice["finish_reason"]
        read, written = self._cache(asked)
        prompt = reply["usage"]["prompt_tokens"]
        return {
            "id": reply["id"].replace("chatcmpl-", "msg_"),
            "type": "message",
            "role": "assistant",
            "model": reply["model"],
            "content": [*blocks, {"type": "text", "text": choice["message"]["content"]}],
            "stop_reason": _STOP_REASONS.get(reason, reason),
            "stop_sequence": None,
            "usage": {
                "input_tokens": max(0, prompt - read - written),
                "cache_creation_input_tokens": written,
                "cache_read_input_tokens": read,
                "output_tokens": reply["usage"]["completion_tokens"],
                "service_tier": "standard",
            },
        }

    def refusal(self, fault: str, status: int, message: str) -> tuple[int, Body]:
        """Status and body of a refusal."""
        if fault == "model":
            message = message.replace("The model", "model:")
        status, message = _FAULTS.get(fault, (status, message))
        kind = ERROR_TYPES.get(status, "api_error")
        error = {"type": kind, "message": message}
        return status, {"type": "error", "error": error, "request_id": "req_1"}

    def limits(self, budget: dict[str, str]) -> dict[str, str]:
        """The limits of `budget.py` under the names and in the form of this API.

        Tokens are those of questions; of answers there may be a fifth.
        """
        headers = {}
        for name, value in budget.items():
            _, _, field, what = name.split("-")
            if field == "reset":
                value = _time(_seconds(value))
            for target, share in {"requests": 1, "input-tokens": 1, "output-tokens": 5}.items():
                if target.endswith(what):
                    number = value if field == "reset" else str(int(value) // share)
                    headers[f"anthropic-ratelimit-{target}-{field}"] = number
        return headers

    def _cache(self, asked: Body) -> tuple[int, int]:
        """Tokens that are read from the cache and written into it for a request."""
        beginning = str(asked.get("system", ""))
        for turn in asked["messages"]:
            for part in turn["content"] if isinstance(turn["content"], list) else []:
                beginning += part["text"]
                if part.get("cache_control") == {"type": "ephemeral"}:
                    tokens = len(beginning) // 4
                    if tokens < LEAST_CACHED_TOKENS:
                        return 0, 0
                    known = beginning in self._cached
                    self._cached.add(beginning)
                    return (tokens, 0) if known else (0, tokens)
        return 0, 0


def _texts(content: str | list[Body]) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def _schema_problem(schema: Any, path: str = "output_config.format.schema") -> str | None:
    """Why a JSON schema cannot be kept to, at any depth."""
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return f"{path}: For 'object' type, 'additionalProperties' must be explicitly set to false"
    if unknown := sorted({"minimum", "maximum", "minLength", "maxLength"} & schema.keys()):
        return f"{path}: For '{schema['type']}' type, property '{unknown[0]}' is not supported"
    inner = [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
    return next(filter(None, map(_schema_problem, inner)), None)


def _seconds(duration: str) -> float:
    """Seconds of `20ms`, `1.5s`, `6m0s`."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([0-9.]+)(ms|s|m)", duration))


def _time(seconds: float) -> str:
    """The moment so many seconds from now, as RFC 3339 has it."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.isoformat().replace("+00:00", "Z")
