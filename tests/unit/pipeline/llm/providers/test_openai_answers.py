"""What bodies say: completions with their usage, and lists of models."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import TransientError
from claimscore.pipeline.llm.providers.openai import OpenAIServer, completion_of, models_instead
from claimscore.types import Message, RateLimits, Request, TokenLogprob, Usage

REQUEST = Request("openai", "n", "m", (Message("user", "x"),))


def body(content: object = "ok", usage: object = None, **choice: Any) -> dict[str, Any]:
    choices = [{"message": {"content": content}, "finish_reason": "stop", **choice}]
    return {"model": "m-2026", "choices": choices, "usage": usage}


@pytest.mark.parametrize(
    "reason", ["stop", "length", "content_filter", "tool_calls", "model_length", "eos_token"]
)
def test_a_finish_reason_is_kept_as_it_is(reason: str):
    """Whether it can be used is not decided here."""
    assert completion_of(body(finish_reason=reason), REQUEST).finish_reason == reason


def place(token: object, logprob: object, *top: tuple[object, object]) -> dict[str, Any]:
    others = [{"token": other, "logprob": p, "bytes": None} for other, p in top]
    return {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": others}


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param(
            {"content": [place("{", -0.5), place("4", -0.1, ("4", -0.1), ("5", -2))]},
            (TokenLogprob("{", -0.5), TokenLogprob("4", -0.1, (("4", -0.1), ("5", -2.0)))),
            id="openai",
        ),
        pytest.param(
            {"content": [place("4", 0, ("5", float("-inf")), ("3", -9999.0))]},
            (TokenLogprob("4", 0.0, (("3", -9999.0),)),),
            id="what is impossible is left out",
        ),
        pytest.param(
            {"content": [{"token": "a\ud800", "logprob": -1}]},
            (TokenLogprob("a?", -1.0),),
            id="halves of characters, no others",
        ),
        pytest.param(None, None, id="nothing"),
        pytest.param({"content": None}, None, id="no content"),
        pytest.param({"content": []}, None, id="empty content"),
        pytest.param({"tokens": ["4"], "token_logprobs": [-1]}, None, id="the older form"),
        pytest.param({"content": [place("4", None)]}, None, id="no number"),
        pytest.param({"content": [place("4", float("nan"))]}, None, id="not a number"),
        pytest.param({"content": [place(4, -1)]}, None, id="no token"),
    ],
)
def test_log_probabilities_are_read_or_not_there(reported: object, expected: object):
    """Whatever is odd about them, the answer itself stays good."""
    found = completion_of(body(logprobs=reported), REQUEST)
    assert (found.text, found.logprobs) == ("ok", expected)


def test_an_echoed_key_takes_the_tokens_with_it():
    """They hold it in pieces."""
    said = body("sk-12", logprobs={"content": [place("sk-", -0.1), place("12", -0.1)]})

    def answer(key: str | None) -> tuple[str, object]:
        got = OpenAIServer("https://x/v1", key).completion(said, REQUEST)
        return got.text, got.logprobs

    tokens = (TokenLogprob("sk-", -0.1), TokenLogprob("12", -0.1))
    assert answer("sk-12") == ("[key]", None)
    assert answer("other") == answer(None) == ("sk-12", tokens)


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param({"finish_reason": "error"}, id="openrouter"),
        pytest.param({"error": {"code": 502, "message": "upstream"}}, id="openrouter's choice"),
        pytest.param({"finish_reason": "abort"}, id="vllm"),
        pytest.param({"finish_reason": "insufficient_system_resource"}, id="deepseek"),
    ],
)
def test_a_generation_that_was_broken_off_is_no_answer(choice: dict[str, Any]):
    """Its text may look whole; it is asked for again."""
    with pytest.raises(TransientError, match="broke its answer off") as caught:
        completion_of(body(**choice), REQUEST)
    assert caught.value.kind == "body"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({"prompt_tokens": 11, "completion_tokens": 3}, Usage(11, 3), id="both"),
        pytest.param(
            {
                "prompt_tokens": 2000,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 1920},
            },
            Usage(2000, 3, 1920),
            id="cached",
        ),
        pytest.param(
            {"prompt_tokens": 11, "prompt_tokens_details": {"cached_tokens": 12}},
            Usage(11),
            id="more cached than there are",
        ),
        pytest.param({"prompt_tokens_details": {"cached_tokens": 1}}, Usage(), id="of nothing"),
        pytest.param({"prompt_tokens": 1, "prompt_tokens_details": None}, Usage(1), id="null"),
        pytest.param({"prompt_tokens": True, "completion_tokens": -1}, Usage(), id="no counts"),
        pytest.param("x", Usage(), id="text"),
        pytest.param(None, Usage(), id="none"),
    ],
)
def test_usage_as_far_as_it_can_be_used(usage: object, expected: Usage):
    """What is no count is unknown, never zero."""
    assert completion_of(body(usage=usage), REQUEST).usage == expected


def test_limits_go_along():
    """For the limiter, not for the cache."""
    limits = RateLimits()
    assert completion_of(body(), REQUEST, limits).limits is limits
    with pytest.raises(TransientError) as caught:
        completion_of({}, REQUEST, limits)
    assert caught.value.limits is limits


def test_half_characters_do_not_get_into_a_table():
    """JSON can hold them, UTF-8 cannot."""
    said = json.loads(r'{"content": "a\ud800b \ud83d\ude00"}')["content"]
    assert completion_of(body(said), REQUEST).text == "a?b 😀"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "usage", "model", "error", "data", "id"]
            ),
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
    assert isinstance(models_instead(json.dumps(value).encode(), "m"), list)


# -- lists of models


def listed(*names: str, **fields: Any) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": n} for n in names], **fields}).encode()


def test_models_are_named_instead_the_likest_first():
    """A typo sees what was meant."""
    names = ["whisper-1", "gpt-5", "gpt-5-mini", "o9", "dall-e-3", "tts-1", "gpt-4o"]
    instead = models_instead(listed(*names), "gtp-5-mini")
    assert instead[:2] == ["gpt-5-mini", "gpt-5"]
    assert len(instead) == 5


@pytest.mark.parametrize(
    ("model", "names"),
    [
        pytest.param("m", ["m", "other"], id="itself"),
        pytest.param("M", ["m", "other"], id="in other letters"),
        pytest.param("llama3", ["llama3:latest", "other"], id="ollama's tag"),
        pytest.param("a/m:nitro", ["a/m", "b/n"], id="openrouter's variant"),
        pytest.param("gemini-3", ["models/gemini-3", "models/other"], id="google's folder"),
        pytest.param("claude-5", ["claude-5-20260101", "other"], id="an alias of a date"),
        pytest.param("claude-5-latest", ["claude-5-20260101", "other"], id="latest"),
        pytest.param("gpt", ["openai/*", "other"], id="wildcards"),
        pytest.param("m", ["../models/x.gguf"], id="one only: llama.cpp takes any name"),
        pytest.param("m", [], id="none"),
        pytest.param("m", [f"x{i}" for i in range(2001)], id="very many"),
    ],
)
def test_a_list_that_may_have_it_is_no_proof(model: str, names: list[str]):
    """A run is not stopped for a name that the server would have understood."""
    assert models_instead(listed(*names), model) == []


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"data": {"a": 1}}', id="no list"),
        pytest.param(b'{"data": [{"id": "a"}, {"name": "b"}]}', id="no ids"),
        pytest.param(b'{"data": [{"id": "a"}, {"id": 7}]}', id="ids that are none"),
        pytest.param(b'["a", "b"]', id="names alone"),
        pytest.param(listed("a", "b", has_more=True), id="a page"),
        pytest.param(listed("a", "b", next="?page=2"), id="a page with a link"),
    ],
)
def test_an_odd_list_is_no_proof(raw: bytes):
    """Only what looks like a whole list of models is one."""
    assert models_instead(raw, "m") == []
    assert sorted(models_instead(listed("a", "b"), "m")) == ["a", "b"]
