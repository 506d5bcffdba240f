"""The cache key: its definition is fixed, and every field of a request is in it."""

import copy
import dataclasses
import hashlib
import json
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


class Text(str):
    """A type that `marshal` refuses."""


def test_a_type_that_is_no_json_changes_no_key():
    plain, odd = (dataclasses.replace(BASE, extra={"user": user}) for user in ("me", Text("me")))
    assert request_key(odd) == request_key(plain)


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
    "extra": [{"seed": 1}, {"seed": 2}, {"stop": None}, {"kwargs": {"seed": 1}}],
}


def test_any_other_field_gives_another_key():
    assert {*CHANGES, "shared", "texts"} == {field.name for field in dataclasses.fields(Request)}
    others = [
        dataclasses.replace(BASE, **{name: value})
        for name, values in CHANGES.items()
        for value in values
    ]
    assert len({request_key(request) for request in (BASE, *others)}) == len(others) + 1


def defined_key(request: Request) -> str:
    """The definition of a key; no released version may differ."""
    fields = dataclasses.asdict(request) | {"v": 1, "messages": request.messages}
    del fields["shared"], fields["texts"]  # what prompts have in common decides no answer
    fields |= {name: float(fields[name]) + 0.0 for name in ("temperature", "top_p")}
    for name in ("top_logprobs", "extra"):
        if not fields[name]:
            del fields[name]
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


any_text = st.text(st.characters(codec=None)) | st.text(st.sampled_from('\\"\n\x00\x7f/é],}'))
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, True, -0.0])
counts = st.integers() | st.booleans()
json_values = st.recursive(
    st.none() | counts | numbers | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
schemas = st.dictionaries(any_text, json_values, max_size=3)
any_request = st.builds(
    Request,
    provider=any_text,
    namespace=any_text,
    model=any_text,
    messages=st.lists(
        st.builds(Message, st.sampled_from(["system", "user"]), any_text), max_size=4
    ).map(tuple),
    temperature=numbers,
    max_tokens=counts,
    top_p=numbers,
    output=st.none() | st.builds(OutputSchema, any_text, schemas),
    sample_index=counts,
    top_logprobs=counts,
    extra=schemas,
)


@given(any_request)
def test_every_key_is_what_the_definition_says(asked: Request):
    assert request_key(asked) == defined_key(asked)
    assert request_key(copy.deepcopy(asked)) == defined_key(asked)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_tokens", [1, True, 1.0, np.float64(1)]),
        ("temperature", [1, "1", np.float32(1)]),
        ("model", ["1", 1, True]),
        ("messages", [(), [], BASE.messages, list(BASE.messages), (("user", "x"),), "ab"]),
        *(
            ("output", [OutputSchema("a", {"x": value}) for value in values])
            for values in ([1, True, 1.0, "1", np.float64(1)], [0, False, -0.0, None], [[1], (1,)])
        ),
    ],
)
@pytest.mark.parametrize("turn", [1, -1], ids=["forwards", "backwards"])
def test_equal_values_of_other_types_have_their_keys(field: str, values: list[Any], turn: int):
    for value in values[::turn]:
        asked = dataclasses.replace(BASE, **{field: value})
        assert request_key(asked) == defined_key(asked), value


def test_a_schema_that_changes_in_place_changes_the_key():
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    asked = dataclasses.replace(BASE, output=OutputSchema("o", schema))
    before = request_key(asked)
    schema["properties"]["a"]["type"] = "number"
    assert request_key(asked) == defined_key(asked) != before


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
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            request_key(dataclasses.replace(BASE, **change))
