"""A stored answer as bytes: what was put in comes out, and nothing else ever does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.cache.entry import Entry, checked_entry, decode_entry, encode_entry, framed
from claimscore.cache.key import canonical_json
from claimscore.types import Completion, TokenLogprob, Usage

ENTRY = Entry(Completion('{"claims": ["Größe"]}', "m", "stop", Usage(12, 7)))

any_text = st.text(st.characters(codec=None))
counts = st.none() | st.integers(0, 2**62)
log_probabilities = st.floats(max_value=0, allow_infinity=False)
places = st.builds(
    TokenLogprob,
    any_text,
    log_probabilities,
    st.lists(st.tuples(any_text, log_probabilities), max_size=3).map(tuple),
)
any_entry = st.builds(
    Entry,
    st.builds(
        Completion,
        any_text,
        any_text,
        any_text,
        st.builds(Usage, *5 * [counts], service_tier=st.text()),
        logprobs=st.none() | st.lists(places, max_size=3).map(tuple),
    ),
    st.none() | any_text,
)


@given(any_text, any_entry)
def test_what_was_encoded_is_decoded(key: str, entry: Entry):
    key = key.encode("utf-8", "replace").decode()
    data = encode_entry(key, entry)
    assert decode_entry(key, data) == entry
    assert checked_entry(key, data) == entry


def test_the_stored_form_is_fixed():
    known = (
        b'{"v":1,"sum":"faee3a8a25c6f691","entry":{"completion":{"finish_reason":"stop",'
        b'"model":"m","text":"{\\"claims\\": [\\"Gr\xc3\xb6\xc3\x9fe\\"]}","usage":'
        b'{"completion_tokens":7,"prompt_tokens":12}},"rejected":null}}'
    )
    assert encode_entry("key", ENTRY) == known


@pytest.mark.parametrize("change", [0x01, 0x20, 0x80, 0xFF])
def test_one_changed_byte_is_noticed(change: int):
    intact = encode_entry("key", ENTRY)
    for position in range(len(intact)):
        data = bytearray(intact)
        data[position] ^= change
        assert decode_entry("key", bytes(data)) is None, position
        assert isinstance(checked_entry("key", bytes(data)), str)


GOOD = ENTRY.to_json()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"{}",
        b"{broken",
        pytest.param(b"[" * 100_000, id="nested without end"),
        canonical_json(GOOD) + b"{}",
        b'"\xff"',
        canonical_json({**GOOD, "completion": {**GOOD["completion"], "usage": {"x": 1}}}),
    ],
)
def test_a_right_checksum_over_something_else_is_no_answer(body: bytes):
    assert decode_entry("key", framed("key", body)) is None
    assert "holds no answer" in str(checked_entry("key", framed("key", body)))


@pytest.mark.parametrize(
    "change",
    [
        {"text": 5},
        {"model": None},
        {"finish_reason": []},
        {"usage": {"prompt_tokens": "7"}},
        {"logprobs": [["4", "-0.1", []]]},
        {"logprobs": [["4", -0.1, [[5, -0.1]]]]},
        {"logprobs": [["4", -0.1]]},
        {"logprobs": 4},
    ],
    ids=["text", "model", "finish_reason", "usage", "logprob", "token", "short", "no list"],
)
def test_fields_of_another_type_are_damage(change: dict[str, object]):
    completion = {**GOOD["completion"], **change}
    completion["usage"] = GOOD["completion"]["usage"] | completion["usage"]
    body = canonical_json({**GOOD, "completion": completion})
    assert "holds no answer" in str(checked_entry("key", framed("key", body)))
