"""What a server's answers must not undo: declared limits, waits that it asks for, one row's end.

The whole engine asks the real provider of OpenAI's protocol, whose server is a function. In virtual
time: a minute takes a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest

from claimscore.errors import OutageError
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.question import Answer
from claimscore.types import Completion, Failure, Message, OutputSchema
from tests.support.engine_doubles import make

pytestmark = pytest.mark.anyio

Body = dict[str, Any]
KEY = "sk-0123456789"
SCHEMA = OutputSchema("answer", {"type": "object"})


class Server:
    """Replies to a body by a function; `arrivals` are the seconds at which requests came."""

    def __init__(self, reply: Callable[[Body], httpx2.Response], *, latency_s: float = 0.1) -> None:
        self.arrivals: list[float] = []
        self._reply = reply
        self._latency_s = latency_s

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.arrivals.append(anyio.current_time())
        body = json.loads(request.content)
        reply = self._reply(body)
        await anyio.sleep(self._latency_s)
        return reply

    def n_between(self, from_s: float, to_s: float) -> int:
        return sum(from_s <= moment < to_s for moment in self.arrivals)


def answer(body: Body, completion_tokens: int = 5) -> httpx2.Response:
    """The question as the answer."""
    choice = {"message": {"content": body["messages"][-1]["content"]}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": completion_tokens}
    return httpx2.Response(200, json={"choices": [choice], "usage": usage, "model": "m"})


def refusal(status: int, message: str, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, json={"error": {"message": message}}, headers=headers)


async def ask(
    server: Server, n: int, *, within_s: float, max_tokens: int = 256, **options: Any
) -> list[Answer[str] | Failure]:
    """The outcomes of the questions "0", "1", ...; `TimeoutError` where it takes longer."""
    provider = OpenAIProvider(
        "m", transport=httpx2.MockTransport(server.handle), key="sk-0123456789"
    )
    async with make(provider, **options) as engine:
        requests = [
            engine.request([Message("user", f"row {i}")], max_tokens=max_tokens, output=SCHEMA)
            for i in range(n)
        ]
        with anyio.fail_after(within_s):
            return await engine.answer_all(requests, text)


def text(completion: Completion) -> str:
    return completion.text


def wants_plain_text(body: Body) -> httpx2.Response:
    """A server that takes neither a response format nor `max_tokens` nor a temperature."""
    for name in ("response_format", "max_tokens", "temperature", "top_p"):
        if name in body:
            return refusal(400, f"Unsupported parameter: '{name}' is not supported")
    return answer(body)


async def test_every_request_that_asks_for_the_dialect_is_paced() -> None:
    """`--rpm 60`: one request a second, and a quarter of a second's worth to begin with."""
    server = Server(wants_plain_text, latency_s=2)
    await ask(server, 20, within_s=600, rpm=60)
    assert server.n_between(0, 6) <= 7


@pytest.mark.parametrize("completion_tokens", [600, 300, 30])
async def test_no_minute_passes_tpm_by_what_was_used(completion_tokens: int) -> None:
    """Answers are up to as long as they may be, and come after most of a minute."""
    server = Server(lambda body: answer(body, completion_tokens=completion_tokens), latency_s=58)
    await ask(server, 60, within_s=7200, tpm=10_000, max_tokens=600)
    used = 10 + completion_tokens
    for start in server.arrivals:
        assert used * server.n_between(start, start + 60) <= 10_000


async def test_a_low_limit_that_nothing_declares_loses_no_row() -> None:
    """Though others are answered between the refusals of a row."""
    level = at = 0.0

    def reply(body: Body) -> httpx2.Response:
        nonlocal level, at
        now = anyio.current_time()
        level, at = min(2.0, level + (now - at) / 2), now
        if level < 1:
            return refusal(429, "slow down")
        level -= 1
        return answer(body)

    outcomes = await ask(Server(reply), 200, within_s=3600)
    assert all(isinstance(outcome, Answer) for outcome in outcomes)


@pytest.mark.parametrize("status", [503, 529])
async def test_a_server_that_is_down_is_not_probed_before_it_said(status: int) -> None:
    down = refusal(status, "overloaded", **{"retry-after": "30"})
    server = Server(lambda body: answer(body) if anyio.current_time() >= 30 else down)
    outcomes = await ask(server, 20, within_s=600, max_concurrency=8)
    assert server.n_between(0, 0.15) == 8
    assert server.n_between(0.15, 30) == 0
    assert all(isinstance(outcome, Answer) for outcome in outcomes)


@pytest.mark.parametrize("n", [1, 3, 6, 200])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_wait_that_a_server_asks_for_ends_with_max_outage_s(status: int, n: int) -> None:
    """Also with so few rows that it is not taken to be down."""
    server = Server(lambda _: refusal(status, "come back later", **{"retry-after": "500"}))
    with pytest.raises(OutageError, match=r"max-outage-s 3\).*come back later.*500 s"):
        await ask(server, n, within_s=4, max_concurrency=8, max_outage_s=3)
    assert max(server.arrivals) < 3


async def test_a_row_that_is_to_wait_longer_while_others_are_answered_is_no_outage() -> None:
    def reply(body: Body) -> httpx2.Response:
        waits = body["messages"][-1]["content"] == "row 0" and anyio.current_time() < 8
        return refusal(503, "later", **{"retry-after": "8"}) if waits else answer(body)

    outcomes = await ask(Server(reply), 200, within_s=600, max_concurrency=2, max_outage_s=3)
    assert all(isinstance(outcome, Answer) for outcome in outcomes)


async def test_a_row_that_is_always_refused_is_one_failure() -> None:
    """While others are answered, so the limit is not the reason."""

    def reply(body: Body) -> httpx2.Response:
        is_bad = body["messages"][-1]["content"] == "row 3"
        return refusal(429, "slow down") if is_bad else answer(body)

    outcomes = await ask(Server(reply), 40, within_s=1800, max_concurrency=2)
    (failure,) = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert outcomes[3] is failure
    assert "429" in failure.message
    assert "slow down" in failure.message


async def test_one_wild_figure_of_tokens_does_not_stop_all_sending() -> None:
    """`completion_tokens` of 2**32 - 1 for an answer of at most 256."""

    def reply(body: Body) -> httpx2.Response:
        is_wild = body["messages"][-1]["content"] == "row 0"
        return answer(body, completion_tokens=4_294_967_295 if is_wild else 5)

    outcomes = await ask(Server(reply), 20, within_s=600, tpm=10_000)
    assert all(isinstance(outcome, Answer) for outcome in outcomes)
