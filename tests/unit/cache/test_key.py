"""The cache key: what it depends on. `test_key_reference.py` holds its definition."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from claimscore.cache.key import canonical_json, request_key
from claimscore.types import Message, OutputSchema, Request

BASE = Request(
    provider="openai",
    namespace="https://api.openai.com/v1",
    model="m",
    messages=(Message("system", "Decompose."), Message("user", "The staff was kind.")),
    output=OutputSchema("claims", {"type": "object", "required": ["claims"]}),
)


def test_a_known_request_has_a_known_key():
    """A change of the key's definition would buy every stored answer again; it must be meant."""
    known = "9a91ed8a8882ae77a0f0e6b7e701a85174aa9957dd9f2422c48635ff0642d602"
    assert request_key(BASE) == known


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"provider": "builtin"}, id="provider"),
        pytest.param({"namespace": "http://127.0.0.1/v1"}, id="namespace"),
        pytest.param({"model": "n"}, id="model"),
        pytest.param({"messages": BASE.messages[:1]}, id="messages"),
        pytest.param({"messages": BASE.messages[::-1]}, id="message order"),
        pytest.param({"temperature": 0.7}, id="temperature"),
        pytest.param({"max_tokens": 257}, id="max_tokens"),
        pytest.param({"top_p": 0.9}, id="top_p"),
        pytest.param({"output": None}, id="no schema"),
        pytest.param({"output": OutputSchema("facts", BASE.output.schema)}, id="schema name"),
        pytest.param({"output": OutputSchema("claims", {})}, id="schema"),
        pytest.param({"sample_index": 1}, id="sample_index"),
        pytest.param({"top_logprobs": 5}, id="top_logprobs"),
    ],
)
def test_any_other_field_gives_another_key(change: dict[str, Any]):
    """Two requests that differ in anything never share an answer."""
    assert request_key(dataclasses.replace(BASE, **change)) != request_key(BASE)


def test_every_field_of_a_request_is_covered_above():
    """A field added to `Request` must enter the key and this file."""
    assert {field.name for field in dataclasses.fields(Request)} == {
        "provider", "namespace", "model", "messages", "temperature", "max_tokens", "top_p",
        "output", "sample_index", "top_logprobs",
    }  # fmt: skip


def test_canonical_json_is_json():
    """Any JSON reader can read what was hashed."""
    assert json.loads(canonical_json({"b": "ü", "a": [1, None]})) == {"a": [1, None], "b": "ü"}
