"""The OpenAI provider on the fake server: faults, keys, answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from claimscore.cache.base import MemoryCache
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.question import Answer
from claimscore.types import Message, Request
from tests.fake_server import FakeServer, text_answer
from tests.unit.pipeline.llm.providers.test_openai import REQUEST

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"


async def test_faults_of_a_real_server_lose_nothing():
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
    with FakeServer(answer=text_answer("fine")) as server:
        provider = OpenAIProvider("m", base_url=server.base_url)
        got = await provider.complete(REQUEST)
        await provider.aclose()
    assert got.text == "fine"
    assert "authorization" not in server.headers[0]
