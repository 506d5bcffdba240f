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


@pytest.mark.parametrize(
    ("body", "dialect", "expected"),
    [
        pytest.param(
            said("Invalid parameter: 'response_format' of type 'json_schema' is not supported"),
            FIRST,
            Dialect("json_object"),
            id="openai, old model",
        ),
        pytest.param(
            said("This response_format type is unavailable now"),
            FIRST,
            Dialect("json_object"),
            id="deepseek",
        ),
        pytest.param(
            {"detail": "Unexpected fields in the request: {'response_format'}"},
            Dialect("json_object"),
            Dialect("text"),
            id="transformers serve",
        ),
        pytest.param(
            {
                "detail": [
                    {"type": "extra_forbidden", "loc": ["body", "response_format"], "msg": "x"}
                ]
            },
            FIRST,
            Dialect("json_object"),
            id="pydantic",
        ),
        pytest.param(said("json_object?"), Dialect("text"), None, id="no mode is left"),
        pytest.param(
            said("Unsupported parameter: 'max_tokens' ..", param="max_tokens"),
            FIRST,
            Dialect(limit_field="max_completion_tokens"),
            id="reasoning models",
        ),
        pytest.param(
            said("Unsupported value: 'temperature' does not support 0", param="temperature"),
            FIRST,
            Dialect(omitted=frozenset({"temperature"})),
            id="no temperature",
        ),
        pytest.param(
            {"detail": [{"loc": ["body", "top_p"], "msg": "Extra inputs are not permitted"}]},
            Dialect(omitted=frozenset({"temperature"})),
            Dialect(omitted=frozenset({"temperature", "top_p"})),
            id="no top_p either",
        ),
        pytest.param(
            said("Unsupported value: 'temperature'"),
            Dialect(omitted=frozenset({"temperature"})),
            None,
            id="not sent at all",
        ),
        pytest.param(
            said("Unsupported parameter: 'logprobs' is not supported with this model."),
            FIRST,
            Dialect(omitted=frozenset({"logprobs"})),
            id="no logprobs",
        ),
        pytest.param(
            said("Requested sample logprobs of 5, which is greater than max allowed: 0"),
            FIRST,
            Dialect(omitted=frozenset({"logprobs"})),
            id="vllm without logprobs",
        ),
        pytest.param(
            said("logprobs are not supported with structured outputs"),
            Dialect(omitted=frozenset({"top_p"})),
            Dialect(omitted=frozenset({"top_p", "logprobs"})),
            id="logprobs go before the schema",
        ),
        pytest.param(
            said("logprobs are not supported"),
            Dialect(omitted=frozenset({"logprobs"})),
            None,
            id="no logprobs were asked for",
        ),
        pytest.param(said("max_tokens is too large: 9999"), FIRST, None, id="a value"),
        pytest.param(said("temperature must be at most 2"), FIRST, None, id="another value"),
        pytest.param(said("Unsupported role"), FIRST, None, id="something else"),
    ],
)
def test_a_complaint_teaches_one_thing(body: object, dialect: Dialect, expected: Dialect | None):
    """The next dialect to try, or that the complaint is about something else."""
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


@pytest.mark.parametrize(
    ("top", "dialect", "expected"),
    [
        pytest.param(0, FIRST, {}, id="not asked"),
        pytest.param(5, FIRST, {"logprobs": True, "top_logprobs": 5}, id="asked"),
        pytest.param(5, Dialect(omitted=frozenset({"logprobs"})), {}, id="refused before"),
    ],
)
def test_logprobs_are_sent_where_they_are_asked_for(
    top: int, dialect: Dialect, expected: dict[str, object]
):
    """Requests without them are sent as they always were."""
    request = Request("openai", "n", "m", (Message("user", "x"),), top_logprobs=top)
    body = chat_body(request, dialect)
    assert {name: value for name, value in body.items() if "logprobs" in name} == expected


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


@pytest.mark.parametrize(
    "dialect",
    [FIRST, Dialect("text", "max_completion_tokens", frozenset({"top_p", "logprobs"}))],
    ids=["first", "last"],
)
def test_a_dialect_can_be_kept(dialect: Dialect):
    """As plain JSON, for the next run."""
    assert Dialect.from_json(json.loads(json.dumps(dialect.to_json()))) == dialect


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        pytest.param(None, FIRST, id="nothing"),
        pytest.param([1], FIRST, id="something else"),
        pytest.param({"output_mode": "grammar", "limit_field": 7, "omitted": 7}, FIRST, id="odd"),
        pytest.param(
            {"output_mode": "text", "omitted": ["top_p", ["x"], "messages"], "more": 1},
            Dialect("text", omitted=frozenset({"top_p"})),
            id="in part",
        ),
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
