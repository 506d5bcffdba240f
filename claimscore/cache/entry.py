"""A stored answer as bytes that tell when a single bit of them has changed. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from claimscore.cache.key import canonical_json
from claimscore.types import JSON, Completion, TokenLogprob


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A paid answer; `rejected` says why it failed its check when it came, None if it passed."""

    completion: Completion
    rejected: str | None = None

    def to_json(self) -> JSON:
        return {"completion": self.completion.to_json(), "rejected": self.rejected}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        return cls(Completion.from_json(value["completion"]), value["rejected"])


def encode_entry(key: str, entry: Entry) -> bytes:
    """`{"v":1,"sum":"<16 hex>","entry":{...}}`; the sum is over the key and the entry's bytes."""
    body = canonical_json(entry.to_json())
    return b"".join((entry_header(key, body), body, b"}"))


def decode_entry(key: str, data: bytes) -> Entry | None:
    """The entry, or None where a single bit is not as it was written."""
    if not _is_whole(key, data):
        return None
    body = data[_HEAD_SIZE:-1]
    try:
        return Entry.from_json(_parsed(body))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def damage_of(key: str, data: bytes) -> str | None:
    """Why `data` is no entry of `key`, for people; None where it is one.

    Stricter than `decode_entry`, for what others may have written: every field has its type.
    """
    if not data.startswith(_BEGIN):
        return "it is not in the form that claimscore writes"
    if not _is_whole(key, data):
        return "its checksum differs: it was changed, cut off, or stored for another key"
    entry = decode_entry(key, data)
    if entry is None or not _is_sound(entry):
        return "its checksum is right, but it holds no answer"
    return None


def _is_sound(entry: Entry) -> bool:
    answer, usage = entry.completion, entry.completion.usage
    texts = answer.text, answer.model, answer.finish_reason, answer.reasoning, entry.rejected or ""
    counts = (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_prompt_tokens,
        usage.reasoning_tokens,
    )
    return (
        all(type(text) is str for text in texts)
        and all(count is None or type(count) is int for count in counts)
        and all(_is_sound_token(token) for token in answer.logprobs or ())
    )


def _is_sound_token(place: TokenLogprob) -> bool:
    return all(
        type(token) is str and type(logprob) in (float, int)
        for token, logprob in (place[:2], *place.top)
    )


def entry_header(key: str, body: bytes) -> bytes:
    """The header before the entry's own bytes."""
    return b"".join((_BEGIN, _checksum(key, body), _MIDDLE))


def _is_whole(key: str, data: bytes) -> bool:
    """Whether frame and checksum are right."""
    return (
        data[_SUM_END:_HEAD_SIZE] == _MIDDLE
        and data[_SUM_START:_SUM_END] == _checksum(key, data[_HEAD_SIZE:-1])
        and data[:_SUM_START] == _BEGIN
        and data[-1:] == b"}"
    )


def _parsed(body: bytes) -> JSON:
    """`json.loads` in half of its time; lone surrogates go the long way."""
    try:
        value: JSON = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = json.loads(body)
    return value


def _checksum(key: str, body: bytes) -> bytes:
    return sha256(key.encode() + body).hexdigest()[:16].encode()


_BEGIN = b'{"v":1,"sum":"'
_MIDDLE = b'","entry":'
_SUM_START = len(_BEGIN)
_SUM_END = _SUM_START + 16
_HEAD_SIZE = _SUM_END + len(_MIDDLE)
