"""The name of an answer: a digest of everything that determines it. Pure."""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
from json.encoder import encode_basestring

from claimscore.types import JSON, Message, Request

#: Raised when the meaning of a stored answer changes; every key changes with it.
KEY_VERSION = 1

_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def request_key(request: Request) -> str:
    """64 hexadecimal digits: SHA-256 of the request's canonical JSON.

    Equal requests have equal keys in every process and on every machine; requests that
    differ in any field have different ones. How a server is asked (JSON mode, timeouts,
    retries) is no field of a `Request` and so cannot change the key.
    """
    fields, messages = _fields(request), request.messages
    try:  # most requests differ from others in the content of the last message only
        begun, after = _around_content(marshal.dumps(fields, 2), messages[:-1], messages[-1].role)
        digest, content = begun.copy(), encode_basestring(messages[-1].content)
        digest.update(content.encode("utf-8", "surrogatepass") + after)
        return digest.hexdigest()
    except (TypeError, ValueError, AttributeError, IndexError):  # no messages, or unusual types
        return hashlib.sha256(canonical_json({**fields, "messages": messages})).hexdigest()


def _fields(request: Request) -> JSON:
    output = request.output
    fields: JSON = {
        "v": KEY_VERSION,
        "provider": request.provider,
        "namespace": request.namespace,
        "model": request.model,
        "temperature": _number(request.temperature),
        "max_tokens": request.max_tokens,
        "top_p": _number(request.top_p),
        "output": None if output is None else {"name": output.name, "schema": output.schema},
        "sample_index": request.sample_index,
    }
    if request.top_logprobs:  # requests without have the keys that they had before there were any
        fields["top_logprobs"] = request.top_logprobs
    if request.extra:  # the same
        fields["extra"] = dict(request.extra)
    return fields


@functools.lru_cache(64)
def _around_content(
    fields: bytes, earlier: tuple[Message, ...], role: str
) -> tuple[hashlib._Hash, bytes]:
    """The digest begun with the JSON before the last message's content, and the JSON after it.

    The fields come as the bytes of `marshal`: a schema may be edited in place, and `True` and 1
    are equal but spelled differently. `marshal` refuses or changes types that are no JSON.
    """
    after: JSON = marshal.loads(fields)
    before = {name: after.pop(name) for name in sorted(after) if name < "messages"}
    before["messages"] = [*earlier, [role]]
    begun = hashlib.sha256(canonical_json(before).removesuffix(b"]]}") + b",")
    return begun, b"]]," + canonical_json(after)[1:]  # its names sort after "messages"


def canonical_json(value: object) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8.

    Lone surrogates, which a damaged input or a model's `\\ud800` can hold, are kept as
    they are instead of raising. NaN and infinities are no JSON and raise `ValueError`.
    """
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def _number(value: float) -> float:
    """One spelling a number: 0, 0.0 and -0.0 are the same setting."""
    return float(value) + 0.0
