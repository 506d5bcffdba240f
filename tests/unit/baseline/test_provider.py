"""The builtin provider: the four tasks by rules, behind the interface of a model."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claimscore.baseline import parser
from claimscore.baseline.provider import PARSER, RULES, BuiltinProvider, input_text
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.types import Completion, Message, OutputSchema, Request, Usage


def request(content: str, task: str | None, **settings: Any) -> Request:
    output = None if task is None else OutputSchema(task, {"type": "object"})
    messages = (
        Message("system", "You break a text into claims."),
        Message("user", "An example, and it is long."),
        Message("assistant", '{"claims": []}'),
        Message("user", content),
    )
    return Request("builtin", "builtin", RULES, messages, output=output, **settings)


def complete(asked: Request, model: str = RULES) -> Completion:
    return anyio.run(BuiltinProvider(model).complete, asked)


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        (
            "decompose",
            "The bar is loud and dark.",
            {"claims": ["The bar is loud.", "The bar is dark."]},
        ),
        ("decompose", "The bar is loud. We left.", {"claims": ["The bar is loud.", "We left."]}),
        ("decompose", "", {"claims": []}),
        ("paraphrase", "Paraphrase this:\nThey offer tea.", {"paraphrase": "They provide tea."}),
        ("negate", "The bar is open.", {"negation": "The bar is closed."}),
        ("facts", "The bar is not open.", {"facts": [{"subject": "bar", "description": "closed"}]}),
    ],
)
def test_each_task_is_answered_as_its_prompt_asks(task: str, text: str, answer: Any) -> None:
    """The JSON object of the task's output schema; no tokens are claimed."""
    completion = complete(request(text, task))
    assert json.loads(completion.text) == answer
    assert completion.model == RULES
    assert completion.finish_reason == "stop"
    assert completion.usage == Usage(None, None)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("  plain ", "plain"),
        ("Do it:\n<text>\nhere\n</text>\nThanks", "here"),
        ("<text>a </text> b</text>", "a </text> b"),
        ("<text>open", "<text>open"),
    ],
)
def test_the_text_is_found_in_the_last_user_message(content: str, text: str) -> None:
    """A `<text>` block counts where there is one, up to its last closing tag."""
    assert input_text(request(content, "negate")) == text


@pytest.mark.parametrize("task", [None, "summarise"])
def test_an_unknown_task_is_refused_with_the_known_ones(task: str | None) -> None:
    """The message says what builtin can do and what to use for the rest."""
    with pytest.raises(ConfigError, match=r"decompose, paraphrase, negate, facts.*openai:MODEL"):
        complete(request("Text.", task))


def test_the_parser_makes_the_claims_of_each_numbered_text() -> None:
    asked = request("1. Ann, a doctor, left.\n2. Bob slept.", "decompose")
    schema = {"type": "object", "properties": {"answers": {}}}
    asked = dataclasses.replace(asked, output=OutputSchema("decompose", schema))
    completion = complete(asked, PARSER)
    assert completion.model == PARSER
    assert json.loads(completion.text)["answers"] == [
        {"text": 1, "claims": ["Ann left.", "Ann was a doctor."]},
        {"text": 2, "claims": ["Bob slept."]},
    ]


def test_requests_at_the_same_time_get_their_own_claims() -> None:
    """Also where those are cancelled that were asked first."""
    sentences = [f"Bob, {k}, slept." for k in range(70, 30, -1)]
    provider = BuiltinProvider(PARSER)
    answers: dict[str, Any] = {}

    async def ask(sentence: str) -> None:
        answers[sentence] = json.loads(
            (await provider.complete(request(sentence, "decompose"))).text
        )

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            cancelled = await group.start(_first, provider)
            for sentence in sentences:
                group.start_soon(ask, sentence)
            await anyio.lowlevel.checkpoint()
            cancelled.cancel()

    anyio.run(ask_all)
    assert answers == {s: {"claims": ["Bob slept.", f"Bob was {s[5:7]}."]} for s in sentences}


async def _first(provider: BuiltinProvider, *, task_status: Any) -> None:
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        async with anyio.create_task_group() as group:
            for k in range(10):
                group.start_soon(provider.complete, request(f"Ann, {k}, left.", "decompose"))


def test_without_the_backbone_the_message_names_both_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parser, "BACKBONE", "not_installed")
    with pytest.raises(ConfigError, match=r"claimscore\[offline\].*builtin-rules"):
        parser.find_backbone()


def test_an_unknown_builtin_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="builtin"):
        BuiltinProvider.from_config(LLMConfig(model="builtin:other"))
