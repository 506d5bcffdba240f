"""The OpenAI provider on the fake server: faults, keys, answers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from claimscore.cache.base import MemoryCache
from claimscore.errors import (
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.question import Answer
from claimscore.types import (
    Message,
    OutputSchema,
    Request,
)
from tests.fake_server import FakeServer, text_answer
from tests.unit.pipeline.llm.providers.test_openai import REQUEST

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"

SCHEMA = OutputSchema("claims", {"type": "object", "properties": {"claims": {"type": "array"}}})


async def test_faults_of_a_real_server_lose_nothing():
    """500, 429, a reset, broken and cut-off bodies: each request is answered in the end."""
    script = {2: "500", 4: "429:0.01", 6: "reset", 8: "malformed", 10: "truncated"}

    async def no_sleep(seconds: float) -> None:
        pass

    ask: Callable[[Engine], list[Request]] = lambda engine: [  # noqa: E731
        engine.request([Message("user", str(i))]) for i in range(30)
    ]
    with FakeServer(answer=text_answer("fine"), script=script) as server:
        provider = OpenAIProvider("m", base_url=server.base_url, key=KEY)
        async with Engine(provider, MemoryCache(), max_concurrency=4, sleep=no_sleep) as engine:
            outcomes = await engine.answer_all(ask(engine), lambda answer: answer.text)
            again = await engine.answer_all(ask(engine), lambda answer: answer.text)
        await provider.aclose()
    assert [o.value for o in outcomes if isinstance(o, Answer)] == ["fine"] * 30
    assert all(isinstance(o, Answer) and o.cached for o in again)
    assert server.n_requests == 35
    assert engine.stats.retries == {"status": 1, "rate_limit": 1, "dropped": 1, "body": 2}
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {KEY}"}


async def test_a_server_without_a_key_works_without_one():
    """No Authorization header at all."""
    with FakeServer(answer=text_answer("fine")) as server:
        provider = OpenAIProvider("m", base_url=server.base_url)
        got = await provider.complete(REQUEST)
        await provider.aclose()
    assert got.text == "fine"
    assert "authorization" not in server.headers[0]


async def test_the_loopback_answers_by_the_rules_and_keeps_a_log(tmp_path: Path):
    """End-to-end tests of other parts rest on it: real answers, every request on record."""
    request = dataclasses.replace(
        REQUEST,
        messages=(Message("user", "<text>The staff was kind and the room was clean.</text>"),),
        output=dataclasses.replace(SCHEMA, name="decompose"),
    )
    with FakeServer(log=tmp_path / "log.jsonl") as server:
        provider = OpenAIProvider("m", base_url=server.base_url)
        got = await provider.complete(request)
        await provider.complete(request)
        with pytest.raises(RejectedError, match="free text"):
            await provider.complete(dataclasses.replace(request, output=None))
        await provider.aclose()
    assert json.loads(got.text) == {"claims": ["The staff was kind.", "The room was clean."]}
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["200", "200", "400"]
    assert list(server.paid.values()) == [2]


async def test_a_server_that_is_not_there_is_transient():
    """It may come back; the engine decides how long to hope."""
    with FakeServer() as server:
        url = server.base_url
    with pytest.raises(TransientError, match="cannot be reached"):
        await OpenAIProvider("m", base_url=url).complete(REQUEST)
