"""What a server's answers say: completions, and the list of its models. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from claimscore.errors import TransientError
from claimscore.types import Completion, RateLimits, Request, TokenLogprob, Usage

#: Finish reasons of a generation that the server broke off: OpenRouter; vLLM; DeepSeek.
_BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}
_LONGEST_LIST = 2000


def completion_of(body: object, request: Request, limits: RateLimits | None = None) -> Completion:
    """The first choice of a decoded body; raises `TransientError` where there is none.

    Such an answer is broken, and worth asking for again.
    """
    try:
        choice = body["choices"][0]  # type: ignore[index] # anything else is caught below
        message = choice["message"]
        text = _text(message.get("content"))
        finish_reason = choice.get("finish_reason") or "stop"
        if finish_reason in _BROKEN_OFF or choice.get("error"):
            raise TransientError("the server broke its answer off", "body", limits=limits)
        refusal = message.get("refusal")
        if refusal and not text:
            text, finish_reason = _text(refusal), "refusal"
        model = body.get("model") or request.model  # type: ignore[attr-defined] # the same
        usage = _usage(body.get("usage"))  # type: ignore[attr-defined] # the same
        logprobs = _logprobs(choice.get("logprobs"))
        return Completion(_valid(text), str(model), str(finish_reason), usage, limits, logprobs)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        pass
    raise TransientError("the server's answer is no chat completion", "body", limits=limits)


def without_key(completion: Completion, key: str | None) -> Completion:
    """The answer of a server that echoes the key, fit for a cache and for tables."""
    if not key or (key not in completion.text and key not in completion.model):
        return completion
    return dataclasses.replace(
        completion,
        text=completion.text.replace(key, "[key]"),
        model=completion.model.replace(key, "[key]"),
        logprobs=None,
    )


def decoded(body: bytes) -> Any:
    """JSON, or None where it is none; what orjson is too strict for goes the long way."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(body)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(content: object) -> str:
    """A message's text; some servers send a list of parts."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError("content is neither text nor parts")
    return content


def _valid(text: str) -> str:
    """A text that can be stored; JSON may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _logprobs(reported: object) -> tuple[TokenLogprob, ...] | None:
    """The tokens with their log-probabilities; None where they are not there, or odd.

    What has no finite one is impossible and left out.
    """
    try:
        places = tuple(
            TokenLogprob(
                _valid(place["token"]),
                _finite(place["logprob"]),
                tuple(
                    (_valid(other["token"]), float(other["logprob"]))
                    for other in place.get("top_logprobs") or ()
                    if math.isfinite(other["logprob"])
                ),
            )
            for place in reported["content"]  # type: ignore[index] # anything else is caught below
        )
        return places or None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no log-probability")
    return float(value)


def _usage(reported: object) -> Usage:
    """Tokens as reported; what is no count is as good as not reported."""
    usage = reported if isinstance(reported, dict) else {}
    prompt_tokens = _count(usage, "prompt_tokens")
    details = usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else None
    if cached is not None and (prompt_tokens is None or cached > prompt_tokens):
        cached = None
    return Usage(prompt_tokens, _count(usage, "completion_tokens"), cached)


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else None


# -- the list of models


def models_instead(body: bytes, model: str) -> list[str]:
    """Up to five names from a list of models that surely lacks `model`, the likest first.

    Empty where the list is no proof: it is odd, one page of several or very long, has
    wildcards, or names one model only (such servers often take any name), or has the model
    under a longer name, with a date, an owner or a variant.
    """
    listed = decoded(body)
    more = isinstance(listed, dict) and (listed.get("has_more") or listed.get("next"))
    items = listed.get("data") if isinstance(listed, dict) else listed
    if more or not isinstance(items, list) or not 2 <= len(items) <= _LONGEST_LIST:
        return []
    names = [item["id"] for item in items if isinstance(item, dict) and _is_name(item.get("id"))]
    if len(names) < len(items):
        return []
    stem = _stem(model)
    if any(_stem(name).startswith(stem) for name in names):
        return []
    return difflib.get_close_matches(model, names, 5, 0.0)


def _stem(model: str) -> str:
    """A model's name without owner, tag and "-latest"."""
    return model.casefold().rpartition("/")[2].partition(":")[0].removesuffix("-latest")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != "" and "*" not in value
