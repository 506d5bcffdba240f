"""Keys are assembled from remembered parts; they stay what the plain definition says."""

from __future__ import annotations

import copy
import dataclasses
import enum
import hashlib
import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.cache import key as key_module
from claimscore.cache.key import request_key
from claimscore.types import Message, OutputSchema, Request


def reference_key(request: Request) -> str:
    """The definition of a key, said in one expression; no released version may differ."""
    output = request.output
    fields = {
        "v": 1,
        "provider": request.provider,
        "namespace": request.namespace,
        "model": request.model,
        "messages": request.messages,
        "temperature": float(request.temperature) + 0.0,
        "max_tokens": request.max_tokens,
        "top_p": float(request.top_p) + 0.0,
        "output": None if output is None else {"name": output.name, "schema": output.schema},
        "sample_index": request.sample_index,
    }
    if request.top_logprobs:
        fields["top_logprobs"] = request.top_logprobs
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


any_text = st.text(st.characters(codec=None)) | st.text(
    st.sampled_from('\\"\n\t\r\b\x00\x1f\x7f/é')
)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, True, -0.0])
scalars = st.none() | st.booleans() | st.integers() | numbers | any_text
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(any_text, inner, max_size=3)
    ),
    max_leaves=8,
)
schemas = st.dictionaries(any_text, json_values, max_size=3)
messages = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), any_text), max_size=4
)
requests = st.builds(
    Request,
    provider=any_text,
    namespace=any_text,
    model=any_text,
    messages=messages.map(tuple) | messages,  # type: ignore[arg-type]  # a list is met too
    temperature=numbers,
    max_tokens=st.integers() | st.booleans(),
    top_p=numbers,
    output=st.none() | st.builds(OutputSchema, any_text, schemas),
    sample_index=st.integers(0, 9) | st.booleans(),
    top_logprobs=st.integers(0, 9) | st.booleans(),
)


@given(requests)
def test_every_key_is_what_the_definition_says(request_: Request):
    """Bit for bit, whatever the request holds: a different key would buy an answer again."""
    assert request_key(request_) == reference_key(request_)
    assert request_key(copy.deepcopy(request_)) == reference_key(request_)


BASE = Request("p", "n", "m", (Message("system", "s"), Message("user", "u")))


class Role(enum.StrEnum):
    USER = "user"


class NamedTurn(NamedTuple):
    """A message with one field more than ours."""

    role: str
    content: str
    name: str


#: Values that are equal, or look alike, and are spelled differently (or the same).
TWINS: list[tuple[str, list[Any]]] = [
    ("max_tokens", [1, True, 2]),
    ("sample_index", [0, False]),
    ("top_logprobs", [0, False, 1, True]),
    ("temperature", [1, 1.0, True, np.float32(1), np.float64(1), "1"]),
    ("temperature", [0, 0.0, -0.0, False, 5e-324]),
    ("top_p", [0.1, np.float32(0.1), np.float64(0.1), 1e300, 10**20]),
    ("model", ["1", 1, True, 1.0]),
    ("provider", [0, False, None, ""]),
    ("messages", [(Message("user", "x"),), (("user", "x"),), (["user", "x"],), [("user", "x")]]),
    ("messages", [(Message(Role.USER, "x"),), (Message("user", "x"), Message("user", "x"))]),
    ("messages", [(), [], "ab", ("ab", Message("user", "x")), (("ab",), Message("user", "x"))]),
    ("messages", [(Message("user", 1), Message("user", "x")), (Message("user", True),) * 2]),
    ("messages", [("x", "ab"), ("ab",), (NamedTurn("user", "x", "y"), Message("user", "x"))]),
    ("output", [None, OutputSchema("a", {}), OutputSchema("a", None), OutputSchema(1, {})]),
    ("output", [OutputSchema(1, {}), OutputSchema(True, {}), OutputSchema(None, {})]),
    *(
        ("output", [OutputSchema("a", {"x": value}) for value in values])
        for values in (
            [1, True, 1.0, "1", np.float64(1)],
            [0, False, 0.0, -0.0, None],
            [[1], (1,), [True], [[1]]],
            [2**70, 2.0**70],
        )
    ),
    ("output", [OutputSchema("a", {1: "x"}), OutputSchema("a", {"1": "x"})]),
    ("output", [OutputSchema("a", {"b": 1, "a": 2}), OutputSchema("a", {"a": 2, "b": 1})]),
]


@pytest.mark.parametrize(("field", "values"), TWINS)
@pytest.mark.parametrize("turn", [1, -1], ids=["forwards", "backwards"])
def test_equal_values_of_other_types_do_not_share_what_is_remembered(
    field: str, values: list[Any], turn: int
):
    """`True == 1` in Python, not in JSON: what was asked before must not change a key."""
    key_module._SETTINGS.clear()
    key_module._begun.cache_clear()
    for value in values[::turn]:
        request = dataclasses.replace(BASE, **{field: value})
        assert request_key(request) == reference_key(request), value


def test_a_number_of_another_library_does_not_let_bytes_pass():
    """`marshal` writes numpy's floats as it writes bytes, which are no JSON."""

    def asking(value: Any) -> Request:
        return dataclasses.replace(BASE, output=OutputSchema("a", {"x": value}))

    key = request_key(asking(np.float64(0.5)))
    assert key == reference_key(asking(0.5))
    with pytest.raises(TypeError):
        request_key(asking(np.float64(0.5).tobytes()))


def test_a_schema_that_changes_in_place_changes_the_key():
    """A schema is a dict; whoever edits it between two requests asks for something else."""
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    request = dataclasses.replace(BASE, output=OutputSchema("o", schema))
    before = request_key(request)
    schema["properties"]["a"]["type"] = "number"
    assert request_key(request) == reference_key(request) != before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"temperature": float("nan")}, id="nan"),
        pytest.param({"top_p": float("inf")}, id="infinity"),
        pytest.param({"model": b"m"}, id="bytes"),
        pytest.param({"output": OutputSchema("o", {"x": float("nan")})}, id="nan in the schema"),
        pytest.param({"output": OutputSchema("o", {"x": b"bytes"})}, id="bytes in the schema"),
        pytest.param({"output": OutputSchema("o", {"x": {1, 2}})}, id="set in the schema"),
        pytest.param({"messages": (Message("user", b"x"),)}, id="bytes as text"),
        pytest.param({"temperature": None}, id="no temperature"),
    ],
)
def test_what_is_no_json_is_refused_each_time(change: dict[str, Any]):
    """Asked twice: nothing of the first attempt is remembered."""
    request = dataclasses.replace(BASE, **change)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            request_key(request)


def test_what_is_remembered_is_bounded():
    """A million different beginnings and settings are forgotten again."""
    limit = key_module._REMEMBERED
    for i in range(3 * limit):
        turns = (Message("system", str(i)), Message("user", "u"))
        request_key(dataclasses.replace(BASE, messages=turns, max_tokens=i + 1))
    assert len(key_module._SETTINGS) <= limit
    assert key_module._begun.cache_info().currsize <= limit
