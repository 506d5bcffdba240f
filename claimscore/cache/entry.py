"""A stored answer as bytes that tell when a single bit of them has changed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from claimscore.cache.key import canonical_json
from claimscore.types import JSON, Completion, TokenLogprob


class Entry(NamedTuple):
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
    return framed(key, canonical_json(entry.to_json()))


def decode_entry(key: str, data: bytes) -> Entry | None:
    """The entry, or None where a single bit is not as it was written."""
    body = data[_HEAD_SIZE:-1]
    if framed(key, body) != data:
        return None
    try:
        try:
            value = orjson.loads(body)  # half of the time of `json.loads`
        except orjson.JSONDecodeError:  # it refuses lone surrogates
            value = json.loads(body)
        return Entry.from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def checked_entry(key: str, data: bytes) -> Entry | str:
    """The entry of `key`, or why `data` is none, for people.

    Stricter than `decode_entry`, for what others may have written: every field has its type.
    """
    if not data.startswith(_BEGIN):
        return "it is not in the form that claimscore writes"
    if framed(key, data[_HEAD_SIZE:-1]) != data:
        return "its checksum differs: it was changed, cut off, or stored for another key"
    entry = decode_entry(key, data)
    if entry is None or not _is_sound(entry):
        return "its checksum is right, but it holds no answer"
    return entry


def _is_sound(entry: Entry) -> bool:
    answer, usage = entry.completion, entry.completion.usage
    texts = answer.text, answer.model, answer.finish_reason, answer.reasoning, entry.rejected or ""
    *counts, tier = usage
    return (
        all(type(text) is str for text in (*texts, tier))
        and all(count is None or type(count) is int for count in counts)
        and all(_is_sound_token(token) for token in answer.logprobs or ())
    )


def _is_sound_token(place: TokenLogprob) -> bool:
    return all(
        type(token) is str and type(logprob) in (float, int)
        for token, logprob in (place[:2], *place.top)
    )


def framed(key: str, body: bytes) -> bytes:
    """The bytes that are stored for an entry's own bytes."""
    checksum = sha256(key.encode() + body).hexdigest()[:16].encode()
    return b"".join((_BEGIN, checksum, _MIDDLE, body, b"}"))


_BEGIN = b'{"v":1,"sum":"'
_MIDDLE = b'","entry":'
_HEAD_SIZE = len(_BEGIN) + 16 + len(_MIDDLE)
