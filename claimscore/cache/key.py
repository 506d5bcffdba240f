"""The name of an answer: a digest of everything that determines it. Pure."""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
from json.encoder import encode_basestring

import orjson

from claimscore.types import JSON, Message, Request

#: Raised when the meaning of a stored answer changes; every key changes with it.
KEY_VERSION = 1

_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)

#: Settings, and beginnings of conversations, that are remembered as JSON at a time.
_REMEMBERED = 64


def request_key(request: Request) -> str:
    """64 hexadecimal digits: SHA-256 of the request's canonical JSON.

    Equal requests have equal keys in every process and on every machine; requests that
    differ in any field have different ones. How a server is asked (JSON mode, timeouts,
    retries) is no field of a `Request` and so cannot change the key.
    """
    try:
        return _quick_key(request)
    except (TypeError, ValueError, AttributeError):  # not the usual types
        return hashlib.sha256(canonical_json(_fields(request))).hexdigest()


def canonical_json(value: JSON) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8.

    Lone surrogates, which a damaged input or a model's `\\ud800` can hold, are kept as
    they are instead of raising. NaN and infinities are no JSON and raise `ValueError`.
    """
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def _fields(request: Request) -> JSON:
    return {"max_tokens": request.max_tokens, "messages": request.messages, **_rest(request)}


def _rest(request: Request) -> JSON:
    """The fields that come after the messages in sorted order."""
    output = request.output
    rest: JSON = {
        "v": KEY_VERSION,
        "provider": request.provider,
        "namespace": request.namespace,
        "model": request.model,
        "temperature": _number(request.temperature),
        "top_p": _number(request.top_p),
        "output": None if output is None else {"name": output.name, "schema": output.schema},
        "sample_index": request.sample_index,
    }
    if request.top_logprobs:  # requests without have the keys that they had before there were any
        rest["top_logprobs"] = request.top_logprobs
    return rest


def _number(value: float) -> float:
    """One spelling a number: 0, 0.0 and -0.0 are the same setting."""
    return float(value) + 0.0


# -- the same in a third of the time: in most requests only the last message is new


def _quick_key(request: Request) -> str:
    """The digest of the same bytes, put together from parts.

    Raises an error where a field has an unusual type: what is remembered here stands only for
    values that are spelled alike wherever they are equal.
    """
    messages = request.messages
    if not messages or type(messages[-1]) is not Message:
        raise TypeError
    role, content = messages[-1]
    head, tail = _settings(request)
    digest = _begun(head, messages[:-1], role).copy()
    digest.update(_text(content))
    digest.update(tail)
    return digest.hexdigest()


def _text(value: str) -> bytes:
    """A text as JSON; lone surrogates go the long way."""
    if not isinstance(value, str):
        raise TypeError
    try:
        return orjson.dumps(value)
    except TypeError:
        return encode_basestring(value).encode("utf-8", "surrogatepass")


@functools.lru_cache(_REMEMBERED)
def _begun(head: bytes, messages: tuple[Message, ...], role: str) -> hashlib._Hash:
    """The digest of all before the last message's content; the same for many requests."""
    parts = [head]
    for message in messages:
        if type(message) is not Message:
            raise TypeError
        parts.append(b"[%b,%b]," % (_text(message.role), _text(message.content)))
    return hashlib.sha256(b"".join((*parts, b"[", _text(role), b",")))


_SETTINGS: dict[tuple[object, ...], tuple[bytes, bytes]] = {}


def _settings(request: Request) -> tuple[bytes, bytes]:
    """The JSON before and after the messages; the same for most requests.

    A schema is a dict that may change under us, so it is looked up by its content: the bytes
    of `marshal`, which differ wherever values or types do (`True` is not 1), in half a
    microsecond. They are never read back.
    """
    output = request.output
    name = None if output is None else output.name
    schema = None if output is None else output.schema
    settings = (
        request.provider,
        request.namespace,
        request.model,
        name,
        request.temperature,
        request.top_p,
        request.max_tokens,
        request.sample_index,
        request.top_logprobs,
        marshal.dumps(schema),
    )
    counts = (request.max_tokens, request.sample_index, request.top_logprobs)
    if any(type(count) is not int for count in counts):
        raise TypeError
    known = _SETTINGS.get(settings)
    if known is None:
        if any(type(text) is not str for text in settings[: 3 if output is None else 4]):
            raise TypeError
        if not _is_plain(schema):
            raise TypeError
        known = (
            canonical_json({"max_tokens": request.max_tokens, "messages": []})[:-2],
            b"]]," + canonical_json(_rest(request))[1:],
        )
        if len(_SETTINGS) >= _REMEMBERED:
            _SETTINGS.clear()
        _SETTINGS[settings] = known
    return known


def _is_plain(value: object) -> bool:
    """Whether it is JSON by its exact types: equal to nothing that is spelled differently."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) is list or type(value) is tuple:
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)
