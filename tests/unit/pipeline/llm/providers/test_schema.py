"""How a server is asked, and what is learnt from its complaints."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.llm.providers.errors import read_refusal
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body, encode_json, learn_dialect
from claimscore.types import Message, Request

FIRST = Dialect()


def learnt(body: object, dialect: Dialect = FIRST, status: int = 400) -> Dialect | None:
    return learn_dialect(read_refusal(status, {}, json.dumps(body).encode()), dialect)


def said(message: str, **fields: str) -> dict[str, object]:
    return {"error": {"message": message, **fields}}


def without(*names: str) -> Dialect:
    return Dialect(omitted=frozenset(names))


@pytest.mark.parametrize(
    ("body", "dialect", "expected"),
    [
        # OpenAI's old models, DeepSeek, transformers serve, pydantic
        (said("'response_format' of type 'json_schema'"), FIRST, Dialect("json_object")),
        (said("This response_format type is unavailable now"), FIRST, Dialect("json_object")),
        ({"detail": "{'response_format'}"}, Dialect("json_object"), Dialect("text")),
        ({"detail": [{"loc": ["response_format"], "msg": "x"}]}, FIRST, Dialect("json_object")),
        (said("json_object?"), Dialect("text"), None),
        # reasoning models
        (
            said("Unsupported parameter: 'max_tokens' ..", param="max_tokens"),
            FIRST,
            Dialect(limit_field="max_completion_tokens"),
        ),
        (said("Unsupported value: 'temperature'"), FIRST, without("temperature")),
        (
            {"detail": [{"loc": ["top_p"], "msg": "Extra inputs are not permitted"}]},
            without("temperature"),
            without("temperature", "top_p"),
        ),
        (said("Unsupported value: 'temperature'"), without("temperature"), None),
        # log-probabilities; vLLM; before the schema
        (said("'logprobs' is not supported with this model."), FIRST, without("logprobs")),
        (said("Requested logprobs of 5, greater than max: 0"), FIRST, without("logprobs")),
        (
            said("logprobs are not supported with structured outputs"),
            without("top_p"),
            without("top_p", "logprobs"),
        ),
        (said("logprobs are not supported"), without("logprobs"), None),
        # something else
        (said("max_tokens is too large: 9999"), FIRST, None),
        (said("temperature must be at most 2"), FIRST, None),
        (said("Unsupported role"), FIRST, None),
    ],
    ids=str,
)
def test_a_complaint_teaches_one_thing(body: object, dialect: Dialect, expected: Dialect | None):
    assert learnt(body, dialect) == expected


@pytest.mark.parametrize("status", [401, 403, 404, 413, 429, 500])
def test_other_statuses_teach_nothing(status: int):
    """A server in trouble does not spoil how it is asked afterwards."""
    assert learnt(said("response_format is not supported"), status=status) is None


def test_a_model_that_may_not_give_logprobs_is_asked_without():
    """OpenAI's reasoning models have said 403, which is about no key here."""
    body = said("You are not allowed to request logprobs from this model.")
    assert learnt(body, status=403) == Dialect(omitted=frozenset({"logprobs"}))
    assert learnt(body, status=500) is None


def test_logprobs_are_sent_where_they_are_asked_for():
    def sent(top: int, dialect: Dialect) -> dict[str, object]:
        request = Request("openai", "n", "m", (Message("user", "x"),), top_logprobs=top)
        body = chat_body(request, dialect)
        return {name: value for name, value in body.items() if "logprobs" in name}

    assert sent(0, FIRST) == sent(5, without("logprobs")) == {}
    assert sent(5, FIRST) == {"logprobs": True, "top_logprobs": 5}


@given(st.integers(400, 599), st.text(max_size=80), st.sampled_from(["json_schema", "top_p", ""]))
def test_learning_comes_to_an_end(status: int, message: str, about: str):
    """Whatever a server goes on to say, it is asked only so often."""
    dialect: Dialect | None = FIRST
    for _ in range(8):
        assert dialect is not None
        dialect = learnt(said(f"unsupported {about} {message}"), dialect, status)
        if dialect is None:
            return
    raise AssertionError("it goes on")


def test_a_dialect_can_be_kept():
    """As plain JSON, for the next run."""
    for dialect in (FIRST, Dialect("text", "max_completion_tokens", frozenset({"top_p"}))):
        assert Dialect.from_json(json.loads(json.dumps(dialect.to_json()))) == dialect


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (None, FIRST),
        ([1], FIRST),
        ({"output_mode": "grammar", "limit_field": 7, "omitted": 7}, FIRST),
        ({"omitted": ["top_p", ["x"], "messages"], "more": 1}, without("top_p")),
    ],
)
def test_what_was_kept_badly_is_learnt_again(kept: object, expected: Dialect):
    """A damaged file costs a complaint, not the run; and never leaves the messages out."""
    assert Dialect.from_json(kept) == expected


def test_what_utf8_cannot_carry_becomes_a_question_mark():
    """Everything else goes as it is."""
    request = Request("openai", "n", "m", (Message("user", "a\ud800b é 漢"),))
    sent = encode_json(chat_body(request, FIRST))
    assert json.loads(sent)["messages"] == [{"role": "user", "content": "a?b é 漢"}]
    assert "漢".encode() in sent
