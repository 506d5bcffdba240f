"""The cache key: what it depends on, and what not."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.cache.key import canonical_json, request_key
from claimscore.types import Message, OutputSchema, Request

BASE = Request(
    provider="openai",
    namespace="https://api.openai.com/v1",
    model="m",
    messages=(Message("system", "Decompose."), Message("user", "The staff was kind.")),
    output=OutputSchema("claims", {"type": "object", "required": ["claims"]}),
)

any_text = st.text(st.characters(codec=None))
numbers = st.floats(0, 2, allow_nan=False)
messages = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), any_text), max_size=3
).map(tuple)
schemas = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=4)
requests = st.builds(
    Request,
    provider=any_text,
    namespace=any_text,
    model=any_text,
    messages=messages,
    temperature=numbers,
    max_tokens=st.integers(1, 9999),
    top_p=numbers,
    output=st.none() | st.builds(OutputSchema, any_text, schemas),
    sample_index=st.integers(0, 9),
    top_logprobs=st.integers(0, 9),
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


@given(requests, requests)
def test_keys_are_equal_exactly_where_requests_are(one: Request, other: Request):
    """Equality of keys is equality of requests, for texts of any characters."""
    assert (request_key(one) == request_key(other)) == (one == other)


@given(schemas)
def test_the_order_of_a_schema_is_irrelevant(schema: dict[str, Any]):
    """A dict that was built in another order asks for the same."""
    turned = dict(reversed(schema.items()))
    keys = {
        request_key(dataclasses.replace(BASE, output=OutputSchema("s", value)))
        for value in (schema, turned)
    }
    assert len(keys) == 1


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_zero_has_one_spelling(zero: float):
    """A temperature of 0, from TOML or code, is the temperature 0.0."""
    assert request_key(dataclasses.replace(BASE, temperature=zero)) == request_key(BASE)


@given(requests)
def test_a_key_is_64_hexadecimal_digits(request: Request):
    """Keys can be file names, columns and log words."""
    key = request_key(request)
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


def test_lone_surrogates_do_not_crash():
    """A text cut in the middle of an emoji is still a text."""
    request = dataclasses.replace(BASE, messages=(Message("user", "\ud83d"),))
    assert request_key(request) != request_key(BASE)


def test_nan_is_refused():
    """NaN is no JSON and no setting."""
    with pytest.raises(ValueError, match="Out of range"):
        request_key(dataclasses.replace(BASE, temperature=float("nan")))


def test_canonical_json_is_json():
    """Any JSON reader can read what was hashed."""
    assert json.loads(canonical_json({"b": "ü", "a": [1, None]})) == {"a": [1, None], "b": "ü"}
