"""Anthropic's bodies: what is asked, and what an answer is."""

import dataclasses
from typing import Any

import pytest

from claimscore.errors import TransientError
from claimscore.pipeline.llm.providers.anthropic import message_body, message_completion
from claimscore.pipeline.llm.providers.schema import Dialect
from claimscore.types import Completion, Message, OutputSchema, Request, Usage

RANGE = {"type": "number", "minimum": 0, "maximum": 1}
SCHEMA = {"type": "object", "properties": {"p": RANGE}, "required": ["p"]}
SOURCE = "<source>" + "The pool is warm. " * 300 + "</source>"
REQUEST = Request(
    provider="anthropic",
    namespace="n",
    model="m",
    messages=(Message("system", "Judge."), Message("user", f"{SOURCE} Is it cold?")),
    temperature=0.5,
    max_tokens=64,
    output=OutputSchema("verify", SCHEMA),
    top_logprobs=5,
    shared="</source>",
)


def test_a_request_has_system_schema_and_a_marked_beginning() -> None:
    extra = {"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}}
    body = message_body(dataclasses.replace(REQUEST, extra=extra), Dialect())
    output = body.pop("output_config")
    first = {"type": "text", "text": SOURCE, "cache_control": {"type": "ephemeral"}}
    content = [first, {"type": "text", "text": " Is it cold?"}]
    assert body == {
        "model": "m",
        "max_tokens": 64,
        "system": "Judge.",
        "messages": [{"role": "user", "content": content}],
        "thinking": {"type": "disabled"},
    }
    schema = output["format"]["schema"]
    assert (output["effort"], output["format"]["type"]) == ("low", "json_schema")
    assert (schema["title"], schema["additionalProperties"]) == ("verify", False)
    assert schema["properties"] == {
        "p": {"type": "number", "description": "{minimum: 0, maximum: 1}"}
    }


@pytest.mark.parametrize("text", [SOURCE, f"{SOURCE}\n", "y" * 5000, f"{SOURCE} Is it?"])
def test_only_a_beginning_that_something_follows_is_marked(text: str) -> None:
    request = dataclasses.replace(REQUEST, messages=(Message("user", text),))
    (turn,) = message_body(request, Dialect())["messages"]
    assert isinstance(turn["content"], list) == (text == f"{SOURCE} Is it?")
    (turn,) = message_body(dataclasses.replace(request, shared=""), Dialect())["messages"]
    assert turn["content"] == text


def message(*blocks: dict[str, Any], stop: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"model": "m-1", "content": list(blocks), "stop_reason": stop, "usage": usage}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "citations": None}


THOUGHT = {"type": "thinking", "thinking": "Warm?", "signature": "s"}
HIDDEN = {"type": "redacted_thinking", "data": "x"}


@pytest.mark.parametrize(
    ("body", "completion"),
    [
        (
            message(THOUGHT, HIDDEN, text("Ye"), text("s"), input_tokens=5, output_tokens=2),
            Completion("Yes", "m-1", "stop", Usage(5, 2), reasoning="Warm?"),
        ),
        (message(stop="refusal"), Completion("", "m-1", "content_filter")),
        (message(text("Y"), stop="max_tokens"), Completion("Y", "m-1", "length")),
        (message(text("Y"), stop="stop_sequence"), Completion("Y", "m-1", "stop")),
        (message(text("Y"), stop="pause_turn"), Completion("Y", "m-1", "pause_turn")),
        (
            message(text("Y"), stop="model_context_window_exceeded"),
            Completion("Y", "m-1", "model_length"),
        ),
    ],
)
def test_an_answer_in_our_words(body: dict[str, Any], completion: Completion) -> None:
    assert message_completion(body, REQUEST) == completion


def test_the_tokens_of_a_prompt_are_read_written_and_others_together() -> None:
    usage = {
        "input_tokens": 7,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
        "service_tier": "priority",
    }
    completion = message_completion(message(text("Y"), **usage), REQUEST)
    assert completion.usage == Usage(127, 9, 100, 4, 20, "priority")


@pytest.mark.parametrize(
    "body", [None, "no", {}, {"content": None}, message(stop=None), message({"type": "text"}), []]
)
def test_what_is_no_message_is_asked_for_again(body: object) -> None:
    with pytest.raises(TransientError, match="no message") as caught:
        message_completion(body, REQUEST)
    assert caught.value.kind == "body"
