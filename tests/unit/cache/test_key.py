"""The cache key: its definition is fixed, and every field of a request is in it."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.cache.key import request_key
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
    odd = (Message("user", "Größe\n\u2028 \ud83d"),)
    other = dataclasses.replace(BASE, messages=odd, temperature=1e-7, top_logprobs=5)
    known = "2e7861804a415738dbeed04d6a9cd028652439a3c6a4ccb6fda81205852e4ac3"
    assert request_key(other) == known


CHANGES: dict[str, list[Any]] = {
    "provider": ["builtin"],
    "namespace": ["http://127.0.0.1/v1"],
    "model": ["n"],
    "messages": [BASE.messages[:1], BASE.messages[::-1]],
    "temperature": [0.7],
    "max_tokens": [257],
    "top_p": [0.9],
    "output": [None, OutputSchema("facts", BASE.output.schema), OutputSchema("claims", {})],
    "sample_index": [1],
    "top_logprobs": [5],
}


def test_any_other_field_gives_another_key():
    assert CHANGES.keys() == {field.name for field in dataclasses.fields(Request)}
    others = [
        dataclasses.replace(BASE, **{name: value})
        for name, values in CHANGES.items()
        for value in values
    ]
    assert len({request_key(request) for request in (BASE, *others)}) == len(others) + 1


@given(st.text(st.characters(codec=None)), st.floats(allow_nan=False, allow_infinity=False))
def test_equal_requests_have_equal_keys(text: str, number: float):
    request = dataclasses.replace(BASE, messages=(Message("user", text),), temperature=number)
    assert request_key(copy.deepcopy(request)) == request_key(request)


@pytest.mark.parametrize("zero", [0, -0.0, False, np.float32(0)])
def test_a_number_has_one_spelling(zero: Any):
    assert request_key(dataclasses.replace(BASE, temperature=zero)) == request_key(BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": float("nan")},
        {"temperature": None},
        {"model": b"m"},
        {"output": OutputSchema("o", {"x": float("nan")})},
        {"output": OutputSchema("o", {"x": {1, 2}})},
    ],
    ids=str,
)
def test_what_is_no_json_is_refused(change: dict[str, Any]):
    with pytest.raises((TypeError, ValueError)):
        request_key(dataclasses.replace(BASE, **change))
