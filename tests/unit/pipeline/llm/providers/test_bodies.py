"""Bodies: how a server is asked and what it teaches; completions with their usage; models."""

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import TransientError
from claimscore.pipeline.llm.providers.errors import read_refusal
from claimscore.pipeline.llm.providers.openai import OpenAIProvider, completion_of
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body, encode_json, learn_dialect
from claimscore.types import Completion, Message, OutputSchema, Request, TokenLogprob, Usage

REQUEST = Request("openai", "n", "m", (Message("user", "x"),))


def body(content: object = "ok", usage: object = None, **choice: Any) -> dict[str, Any]:
    choices = [{"message": {"content": content}, "finish_reason": "stop", **choice}]
    return {"model": "m-2026", "choices": choices, "usage": usage}


def place(token: object, logprob: object, *top: tuple[object, object]) -> dict[str, Any]:
    others = [{"token": other, "logprob": p, "bytes": None} for other, p in top]
    return {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": others}


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (
            {"content": [place("{", -0.5), place("4", -0.1, ("4", -0.1), ("5", -2))]},
            (TokenLogprob("{", -0.5), TokenLogprob("4", -0.1, (("4", -0.1), ("5", -2.0)))),
        ),
        (  # what is impossible is left out
            {"content": [place("4", 0, ("5", float("-inf")), ("3", -9999.0))]},
            (TokenLogprob("4", 0.0, (("3", -9999.0),)),),
        ),
        ({"content": [{"token": "a\ud800", "logprob": -1}]}, (TokenLogprob("a?", -1.0),)),
        (None, None),
        ({"content": None}, None),
        ({"content": []}, None),
        ({"tokens": ["4"], "token_logprobs": [-1]}, None),
        ({"content": [place("4", None)]}, None),
        ({"content": [place("4", float("nan"))]}, None),
        ({"content": [place(4, -1)]}, None),
    ],
    ids=ascii,
)
def test_log_probabilities_are_read_or_not_there(reported: object, expected: object):
    """Whatever is odd about them, the answer itself stays good."""
    found = completion_of(body(logprobs=reported), REQUEST)
    assert (found.text, found.logprobs) == ("ok", expected)


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (body("{}", finish_reason="length"), Completion("{}", "m-2026", "length")),
        (body(None), Completion("", "m-2026", "stop")),
        (body("x", finish_reason=None), Completion("x", "m-2026", "stop")),
        (body(PARTS), Completion("ab", "m-2026", "stop")),
        (
            body(message={"content": None, "refusal": "I cannot"}),
            Completion("I cannot", "m-2026", "refusal"),
        ),
        ({"choices": [{"message": {"content": "x"}}]}, Completion("x", "m", "stop")),
    ],
    ids=["text", "no content", "no finish reason", "parts", "refusal", "no usage"],
)
def test_an_answer_is_read_whole(said: object, expected: Completion):
    assert completion_of(said, REQUEST) == expected


def test_an_echoed_key_takes_the_tokens_with_it():
    """They hold it in pieces."""
    said = body("sk-12345", logprobs={"content": [place("sk-", -0.1), place("12345", -0.1)]})

    def answer(key: str | None) -> tuple[str, object]:
        got = OpenAIProvider("m", base_url="https://x/v1", key=key).completion(said, REQUEST)
        return got.text, got.logprobs

    tokens = (TokenLogprob("sk-", -0.1), TokenLogprob("12345", -0.1))
    assert answer("sk-12345") == ("[key]", None)
    assert answer("sk-other") == answer(None) == ("sk-12345", tokens)


@pytest.mark.parametrize("key", ["x", "none", "EMPTY", "ollama"])
def test_a_word_in_the_place_of_a_key_is_left_in_answers(key: str):
    """Servers of one's own are given such a word; as a secret it would change every answer."""
    provider = OpenAIProvider("m", base_url="https://x/v1", key=key)
    said = body(f"The text has {key} in it.")
    assert provider.completion(said, REQUEST).text == f"The text has {key} in it."


@pytest.mark.parametrize(
    "choice",
    [  # OpenRouter; vLLM; DeepSeek
        {"finish_reason": "error"},
        {"error": {"code": 502, "message": "upstream"}},
        {"finish_reason": "abort"},
        {"finish_reason": "insufficient_system_resource"},
    ],
    ids=str,
)
def test_a_generation_that_was_broken_off_is_no_answer(choice: dict[str, Any]):
    """Its text may look whole; it is asked for again."""
    with pytest.raises(TransientError, match="broke its answer off") as caught:
        completion_of(body(**choice), REQUEST)
    assert caught.value.kind == "body"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 11, "completion_tokens": 3}, Usage(11, 3)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(9, None, 8)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, Usage(9)),
        ({"prompt_tokens_details": {"cached_tokens": 1}}, Usage()),
        ({"prompt_tokens": 1, "prompt_tokens_details": None}, Usage(1)),
        ({"prompt_tokens": True, "completion_tokens": -1}, Usage()),
        (  # OpenAI counts reasoning among the answer's tokens, Google beside them
            {
                **{"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            Usage(9, 5, None, 4),
        ),
        (
            {
                **{"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 14},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            Usage(9, 5, None, 4),
        ),
        ("x", Usage()),
        (None, Usage()),
    ],
    ids=str,
)
def test_usage_as_far_as_it_can_be_used(usage: object, expected: Usage):
    """What is no count is unknown, never zero."""
    assert completion_of(body(usage=usage), REQUEST).usage == expected


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [
        ("no", {"reasoning_content": "hm"}, ("no", "hm")),  # DeepSeek, vLLM, llama.cpp
        ("no", {"reasoning": "hm"}, ("no", "hm")),  # OpenRouter, Ollama, Groq
        (None, {"reasoning_content": "hm"}, ("", "hm")),
        ("\n<think>\nhm\n</think>\n\nno", {}, ("no", "hm")),
        ("hm\n</think>\n\nno", {}, ("no", "hm")),  # the template holds the first tag
        ("<think>hm", {}, ("", "hm")),
        ("say <think> and </think>", {}, ("say <think> and </think>", "")),
        ('{"a": "</think>"}', {}, ('{"a": "</think>"}', "")),
    ],
    ids=str,
)
def test_reasoning_is_kept_apart(content: str | None, fields: Any, expected: tuple[str, str]):
    """It is stored with the answer and is no part of it; log-probabilities would be of both."""
    logprobs = {"content": [place("x", -0.5)]}
    said = body(logprobs=logprobs)
    said["choices"][0]["message"] = {"content": content, **fields}
    found = completion_of(said, REQUEST)
    assert (found.text, found.reasoning) == expected
    assert (found.logprobs is None) == (expected[0] != (content or ""))
    assert Completion.from_json(found.to_json()) == found


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "usage", "model", "data", "id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON_VALUES)
def test_a_body_is_an_answer_or_a_broken_one(value: object):
    """Never another error, whatever the shape."""
    for shape in (value, body(value), {"choices": [value]}, body(message=value)):
        with contextlib.suppress(TransientError):
            completion_of(shape, REQUEST)


# -- how a server is asked

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


def test_without_a_schema_the_order_ends_what_the_system_says():
    output = OutputSchema("claims", {"type": "object", "properties": {"ü": {}}})
    order = "Answer with one JSON object and nothing else. Its JSON schema:\n"
    order += '{"type": "object", "properties": {"ü": {}}}'
    asked = dataclasses.replace(REQUEST, output=output)
    after = dataclasses.replace(asked, messages=(Message("system", "Do."), *asked.messages))
    given = {"name": "claims", "schema": output.schema, "strict": True}
    for mode, expected in (
        ("json_schema", {"type": "json_schema", "json_schema": given}),
        ("json_object", {"type": "json_object"}),
        ("text", None),
    ):
        alone, with_system = (chat_body(one, Dialect(mode)) for one in (asked, after))  # type: ignore[arg-type]
        assert alone.get("response_format") == expected
        if mode != "json_schema":
            assert alone["messages"][0] == {"role": "system", "content": order}
            assert with_system["messages"][0]["content"] == f"Do.\n\n{order}"


def test_what_utf8_cannot_carry_becomes_a_question_mark():
    """Everything else goes as it is."""
    request = Request("openai", "n", "m", (Message("user", "a\ud800b é 漢"),))
    sent = encode_json(chat_body(request, FIRST))
    assert json.loads(sent)["messages"] == [{"role": "user", "content": "a?b é 漢"}]
    assert "漢".encode() in sent
