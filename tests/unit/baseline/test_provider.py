"""The builtin provider: claims and facts by the parser, behind the interface of a model."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claimscore.baseline.provider import MODEL, BuiltinProvider, texts_of
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.runs import RunDirectory
from claimscore.types import Completion, Message, OutputSchema, Request, Usage
from tests.support.command_line import Command


def request(content: str, task: str | None, **settings: Any) -> Request:
    output = None if task is None else OutputSchema(task, {"type": "object"})
    messages = (
        Message("system", "You break a text into claims."),
        Message("user", "An example, and it is long."),
        Message("assistant", '{"claims": []}'),
        Message("user", content),
    )
    return Request("builtin", "builtin", MODEL, messages, output=output, **settings)


def complete(asked: Request) -> Completion:
    return anyio.run(BuiltinProvider().complete, asked)


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        ("decompose", "Ann, a doctor, left.", {"claims": ["Ann left.", "Ann was a doctor."]}),
        ("decompose", "The bar is loud. We left.", {"claims": ["The bar is loud.", "We left."]}),
        ("decompose", "", {"claims": []}),
        ("facts", "The bar is not open.", {"facts": [{"subject": "bar", "description": "closed"}]}),
    ],
)
def test_each_task_is_answered_as_its_prompt_asks(task: str, text: str, answer: Any) -> None:
    """The JSON object of the task's output schema; no tokens are claimed."""
    completion = complete(request(text, task))
    assert json.loads(completion.text) == answer
    assert completion.model == MODEL
    assert completion.finish_reason == "stop"
    assert completion.usage == Usage(None, None)


@pytest.mark.parametrize(
    ("texts", "passage"),
    [
        ({}, ("all of it", "")),
        ({"text": "here\n", "before": "One.", "after": ""}, ("here", "One.")),
        ({"text": "a</before><text>b", "before": "c"}, ("a</before><text>b", "c")),
        ({"comment": "here"}, ("here", "")),
        ({"comment": "here", "topic": "there"}, ("all of it", "")),
    ],
)
def test_the_text_is_what_stands_for_the_placeholder(
    texts: dict[str, str], passage: tuple[str, str]
) -> None:
    """Tags that a text has in it move nothing."""
    assert texts_of(request(" all of it\n", "facts", texts=texts)) == [passage]


def test_a_run_shows_what_stands_before_a_sentence(cli: Command, tmp_path: Path) -> None:
    text = "Ann Lee</before><text>Bob Stone is old. Ann Lee was born in Oslo. She moved."
    records = tmp_path / "in.jsonl"
    records.write_text(json.dumps({"id": "1", "summary": text}))
    call = ("run", records, "--metrics", "", "--tasks", "decompose", "--out", tmp_path / "out")
    assert cli(*call, "--quiet").status == 0
    claims = RunDirectory.reader(tmp_path / "out").scan("claims").collect()["text"].to_list()
    assert claims[-1] == "Ann Lee moved."


@pytest.mark.parametrize("task", [None, "paraphrase", "negate"])
def test_another_task_is_refused_with_what_does_it(task: str | None) -> None:
    with pytest.raises(ConfigError, match=r"can only do decompose and facts; .*openai:MODEL"):
        complete(request("Text.", task))


def test_a_run_is_refused_before_anything_is_made(cli: Command, tmp_path: Path) -> None:
    records = tmp_path / "in.jsonl"
    records.write_text('{"id": "1", "summary_a": "It is old.", "summary_b": "It is new."}\n')
    for tasks in ("paraphrase", "decompose,negate"):
        call = ("run", records, "--metrics", "", "--tasks", tasks, "--quiet")
        refused = cli(*call, "--out", tmp_path / "out")
        assert (refused.status, refused.out) == (2, "")
        (line,) = refused.err.splitlines()
        assert f"{tasks.split(',')[-1]}: --llm builtin can only do" in line
        assert "--llm openai:MODEL" in line
    assert not (tmp_path / "out").exists()


def test_each_of_several_numbered_texts_gets_its_answer() -> None:
    asked = request("1. Ann, a doctor, left.\n2. Bob slept.", "decompose")
    schema = {"type": "object", "properties": {"answers": {}}}
    asked = dataclasses.replace(asked, output=OutputSchema("decompose", schema))
    assert json.loads(complete(asked).text)["answers"] == [
        {"text": 1, "claims": ["Ann left.", "Ann was a doctor."]},
        {"text": 2, "claims": ["Bob slept."]},
    ]


def test_requests_at_the_same_time_get_their_own_answers() -> None:
    """Of both tasks, also where those are cancelled that were asked first."""
    ages = [str(age) for age in range(70, 30, -1)]
    provider = BuiltinProvider()
    answers: dict[tuple[str, str], Any] = {}

    async def ask(task: str, age: str) -> None:
        text = f"Bob, {age}, slept." if task == "decompose" else f"Room{age} is clean."
        answers[task, age] = json.loads((await provider.complete(request(text, task))).text)

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            cancelled = await group.start(_first, provider)
            for age in ages:
                for task in ("decompose", "facts"):
                    group.start_soon(ask, task, age)
            await anyio.lowlevel.checkpoint()
            cancelled.cancel()

    anyio.run(ask_all)
    for age in ages:
        assert answers["decompose", age] == {"claims": ["Bob slept.", f"Bob was {age}."]}
        fact = {"subject": f"room{age}", "description": "clean"}
        assert answers["facts", age] == {"facts": [fact]}


async def _first(provider: BuiltinProvider, *, task_status: Any) -> None:
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        async with anyio.create_task_group() as group:
            for k in range(10):
                group.start_soon(provider.complete, request(f"Ann, {k}, left.", "decompose"))


@pytest.mark.parametrize("model", ["builtin:other", "builtin-rules"])
def test_an_unknown_builtin_model_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"it is builtin alone|known: builtin, openai:MODEL"):
        load_provider(LLMConfig(model=model))


def test_options_of_a_server_are_refused() -> None:
    with pytest.raises(ConfigError, match="--llm-param is for a server"):
        load_provider(LLMConfig(params={"seed": 1}))
