"""The name of an answer: a digest of everything that determines it. Pure."""

from __future__ import annotations

import hashlib
import json

from claimscore.types import JSON, Request

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
    output = request.output
    fields: JSON = {
        "v": KEY_VERSION,
        "provider": request.provider,
        "namespace": request.namespace,
        "model": request.model,
        "messages": request.messages,
        "temperature": _number(request.temperature),
        "max_tokens": request.max_tokens,
        "top_p": _number(request.top_p),
        "output": None if output is None else {"name": output.name, "schema": output.schema},
        "sample_index": request.sample_index,
    }
    if request.top_logprobs:  # requests without have the keys that they had before there were any
        fields["top_logprobs"] = request.top_logprobs
    return hashlib.sha256(canonical_json(fields)).hexdigest()


def canonical_json(value: JSON) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8.

    Lone surrogates, which a damaged input or a model's `\\ud800` can hold, are kept as
    they are instead of raising. NaN and infinities are no JSON and raise `ValueError`.
    """
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def _number(value: float) -> float:
    """One spelling a number: 0, 0.0 and -0.0 are the same setting."""
    return float(value) + 0.0
