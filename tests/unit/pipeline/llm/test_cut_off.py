"""Answers that are cut off at `max_tokens` are asked for again with more of them."""

import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from anyio import lowlevel

from claimscore.cache.store import MemoryCache
from claimscore.errors import RejectedError
from claimscore.pipeline.llm.question import Answer, token_steps
from claimscore.types import Completion, Failure, Request
from tests.support.engine_doubles import FakeProvider, completion, make, text
from tests.unit.pipeline.llm.test_engine import ask, asked, values

pytestmark = pytest.mark.anyio


def long(n_tokens: int) -> Callable[[Request], Awaitable[Completion]]:
    """An answer of so many tokens, which fewer `max_tokens` cut off."""

    async def reply(request: Request) -> Completion:
        await lowlevel.checkpoint()
        if request.max_tokens < n_tokens:
            return completion(f"cut at {request.max_tokens}", "length")
        return completion("whole")

    return reply


def sent(provider: FakeProvider) -> list[tuple[int, int]]:
    return [(request.max_tokens, request.sample_index) for request in provider.asked]


@pytest.mark.parametrize(
    ("max_tokens", "limit", "steps"),
    [
        pytest.param(256, None, [256, 512, 1024], id="twice, then four times"),
        pytest.param(100, 300, [100, 200, 300], id="no more than the limit"),
        pytest.param(100, 1000, [100, 200, 400, 800, 1000], id="as long as the limit allows"),
        pytest.param(100, 100, [100], id="never more"),
    ],
)
def test_each_is_asked_with_twice_as_many_up_to_the_limit(
    max_tokens: int, limit: int | None, steps: list[int]
) -> None:
    assert list(token_steps(max_tokens, limit)) == steps


async def test_a_cut_off_answer_is_asked_for_again_with_more_tokens() -> None:
    provider, cache = FakeProvider(long(1000)), MemoryCache()
    (answer,), engine = await asked(provider, "a", cache=cache)
    assert sent(provider) == [(256, 0), (512, 0), (1024, 0)]
    assert isinstance(answer, Answer)
    assert cache.answers[answer.key].text == answer.value == "whole"
    assert len(cache.answers) == 3
    assert (engine.stats.sent, engine.stats.rejected, engine.stats.failed) == (3, 2, 0)


async def test_a_failure_says_that_reasoning_left_no_room() -> None:
    async def reason(request: Request) -> Completion:
        await lowlevel.checkpoint()
        return dataclasses.replace(completion("", "length"), reasoning="Let me think")

    (failure,), _ = await asked(FakeProvider(reason), "a")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.raw) == ("length", "Let me think")
    assert "still reasoning at 1,024 tokens, which is max_tokens_limit" in failure.message


async def test_going_on_goes_straight_to_the_larger_request() -> None:
    provider, cache = FakeProvider(long(300)), MemoryCache()
    async with make(provider, cache) as engine:
        await engine.answer_all(ask(engine, "a"), text, max_tokens_limit=256)
    assert sent(provider) == [(256, 0)]
    for n_hits in (0, 1):
        outcomes, engine = await asked(provider, "a", cache=cache)
        assert (values(outcomes), engine.stats.hits) == (["whole"], n_hits)
    assert sent(provider) == [(256, 0), (512, 0)]


async def test_a_server_that_refuses_more_tokens_ends_the_question() -> None:
    async def reply(request: Request) -> Completion:
        await lowlevel.checkpoint()
        if request.max_tokens > 256:
            raise RejectedError("HTTP 400: max_tokens is too large", "context_length")
        return completion("cut", "length")

    provider = FakeProvider(reply)
    (outcome,), _ = await asked(provider, "a")
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.attempts) == ("context_length", 1)
    assert "max_tokens is too large" in outcome.message
