"""Translates a server's refusal: status, headers and body become the error that decides.

Each server words a refusal in its own way, with statuses of its own; what is known of these ways is
here and in `refusals.toml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from claimscore.config import read_toml
from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.http_headers import rate_limits, retry_after_s
from claimscore.http_policy import password_wanted, scrubbed
from claimscore.types import RateLimits

#: Statuses that ask to come again. 424 and 498 are said by TGI and Groq, 499 by nginx.
_AGAIN = {408, 409, 424, 425, 498, 499}
#: A gateway gave up waiting; what it waited for may be done, and billed, all the same.
_GATEWAY_TIMEOUTS = {504, 524}

#: What refusals say, by what it means: whole codes, and patterns of words.
_SAID = read_toml(Path(__file__).with_name("refusals.toml"))
_WORDS = {meaning: re.compile("|".join(said["words"])) for meaning, said in _SAID.items()}
_CODES = {meaning: frozenset(said.get("codes", ())) for meaning, said in _SAID.items()}
_LIMIT_AND_REQUESTED = re.compile(r"limit:? ([0-9][0-9,]*)\b.*?requested:? ([0-9][0-9,]*)")

_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_LONGEST_BODY = 200_000
_LONGEST_MESSAGE = 500
_DEEPEST = 6
#: Only so much is searched by patterns, some of which take the square of what they search.
_LONGEST_HEAD, _LONGEST_CODE, _MOST_CODES = 4000, 100, 20


class Refusal(NamedTuple):
    """A refusal in its parts, without the key. `words` is what it says, in lower case."""

    status: int
    message: str
    codes: frozenset[str]
    param: str
    words: str
    location: str
    retry_after_s: float | None
    limits: RateLimits | None


def read_refusal(
    status: int, headers: Mapping[str, str], body: bytes, *secrets: str | None
) -> Refusal:
    """Read a refusal, `secrets` left out; header names are in lower case. Never fails, whatever
    the body is."""
    text = body[:_LONGEST_BODY].decode("utf-8", "replace")
    decoded = _decoded(text)
    named = _fields(decoded, ("code", "type", "error_type", "error_code"))
    codes = frozenset(code.lower()[:_LONGEST_CODE] for code in islice(named, _MOST_CODES))
    message = _message(decoded) or (text if isinstance(decoded, dict | list) else "")
    message = _shown(message, *secrets) or _phrase(status)
    param = _shown(" ".join(_fields(decoded, ("param",))), *secrets)
    return Refusal(
        status=status,
        message=message,
        codes=codes,
        param=param,
        words=" ".join([*sorted(codes), param, message]).lower(),
        location=_shown(headers.get("location", ""), *secrets),
        retry_after_s=retry_after_s(headers, text),
        limits=rate_limits(headers),
    )


def translate_error(
    refusal: Refusal, *, base_url: str, model: str, key_variable: str
) -> ClaimscoreError:
    """The error that a refusal is; its class decides whether to stop, to wait or to go on."""
    status, words, codes = refusal.status, refusal.words, refusal.codes
    refused = f"HTTP {status}: {refusal.message}"
    where = f"{base_url}: {refused}"
    if status == 401 or _says("unknown_key", words):  # its words are left out: some quote the key
        why = f"refused the key (HTTP {status}); check {key_variable}"
        return AuthenticationError(f"{base_url} {why}")
    if status == 407:
        return password_wanted(base_url)
    if status == 402 or (status in (400, 403, 429) and _says("quota", words)):
        return QuotaError(f"{where}; fill the account")
    if _is_unknown_model(status, codes, words):
        return UnknownModelError(f"{base_url} has no model {model!r}: {refused}")
    if status == 403 and not _says("content_filter", words):
        return AuthenticationError(f"{where}; check {key_variable} and its rights")
    if _is_too_large(status, words):
        return RejectedError(where, "too_large")
    if status == 429 or (status == 413 and _says("too_large", words)):
        return RateLimitError(where, refusal.retry_after_s, refusal.limits)
    is_too_long = "is too large to process" in words  # llama.cpp, with 500
    if codes & _CODES["context_length"] or is_too_long:
        return RejectedError(where, "context_length")
    if status in (404, 405, 410, 501):
        return ConfigError(f"{where}; is this the address of the server?")
    if status in _AGAIN or status >= 500:
        return TransientError(
            where,
            "timeout" if status in _GATEWAY_TIMEOUTS else "status",
            retry_after_s=refusal.retry_after_s,
            limits=refusal.limits,
            status=status,
        )
    if 300 <= status < 400:
        target = refusal.location or "elsewhere"
        return ConfigError(f"{base_url} points to {target}; name that as its address")
    if _says("context_length", words):
        return RejectedError(where, "context_length")
    kind = "content_filter" if _says("content_filter", words) else "rejected"
    return RejectedError(where, kind)


# -- kinds of refusals


def _says(meaning: str, words: str) -> bool:
    return _WORDS[meaning].search(words) is not None


def _is_unknown_model(status: int, codes: frozenset[str], words: str) -> bool:
    """Many servers say 400 instead of 404; their words must then be about the name."""
    if status == 404 and "model" in words:
        return True
    named = codes & _CODES["unknown_model"] or _says("unknown_model", words)
    return bool(named) and status in (400, 403, 404)


def _is_too_large(status: int, words: str) -> bool:
    """Whether a request can never pass: it is larger than a minute's tokens or than allowed.

    "Request too large ... Limit 250000, Requested 546" has been seen too: that one can.
    """
    if status not in (413, 429) or (status == 429 and not _says("too_large", words)):
        return False
    figures = _LIMIT_AND_REQUESTED.search(words)
    if figures is None:
        return True
    limit, requested = map(_number, figures.groups())
    return requested > limit


def _number(figure: str) -> int:
    return int(figure.replace(",", ""))


# -- reading


def _decoded(text: str) -> object:
    """The body's JSON, else its text, else of a page its title."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if not text.lstrip().startswith("<"):
        return text
    title = _TITLE.search(text[:_LONGEST_HEAD])
    return title[1] if title else ""


def _fields(part: object, names: tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """The values of some fields at any depth, but not in a quoted request."""
    if depth > _DEEPEST:
        return
    if isinstance(part, list):
        for item in part:
            yield from _fields(item, names, depth + 1)
    if isinstance(part, dict):
        for name, value in part.items():
            if name in names and isinstance(value, str | int):
                yield str(value)
            elif name not in ("input", "ctx"):
                yield from _fields(value, names, depth + 1)


def _message(part: object, depth: int = 0) -> str:
    """The words meant for people, in any of the forms in which servers pack them; else nothing."""
    if isinstance(part, str):
        return part
    if depth > _DEEPEST:
        return ""
    if isinstance(part, list):
        return "; ".join(filter(None, (_message(item, depth + 1) for item in part[:5])))
    if not isinstance(part, dict):
        return ""
    if isinstance(part.get("msg"), str):  # FastAPI says what is wrong with which field
        place = part.get("loc")
        names = place if isinstance(place, list) else []
        path = ".".join(str(name) for name in names if isinstance(name, str | int))
        return f"{path}: {part['msg']}" if path else part["msg"]
    for name in ("message", "error", "detail", "error_description"):
        text = _message(part.get(name), depth + 1)
        if text:  # OpenRouter quotes the provider behind it
            metadata = part.get("metadata")
            raw = metadata.get("raw") if isinstance(metadata, dict) else None
            return f"{text}: {raw}" if isinstance(raw, str) else text
    return ""


def _shown(text: str, *secrets: str | None) -> str:
    """The text on one short line, without control characters and without secrets."""
    start = scrubbed(text, *secrets)[: 20 * _LONGEST_MESSAGE]
    line = "".join(c if c.isprintable() else " " for c in start)
    return " ".join(line.split())[:_LONGEST_MESSAGE]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"
