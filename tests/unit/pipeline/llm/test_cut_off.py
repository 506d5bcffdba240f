"""Answers that are cut off at `max_tokens` are asked for again with more of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from anyio import lowlevel

from claimscore.cache.base import MemoryCache
from claimscore.errors import RejectedError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.question import Answer, token_steps
from claimscore.types import Completion, Failure, Request
from tests.support.batch_server import BatchServer, Machine, fine
from tests.support.engine_doubles import FakeProvider, completion, text
from tests.unit.pipeline.llm.test_engine import ask, make, values

pytestmark = pytest.mark.anyio


def long(n_tokens: int, answer: str = "whole") -> Callable[[Request], Awaitable[Completion]]:
    """An answer of so many tokens, which fewer `max_tokens` cut off."""

    async def reply(request: Request) -> Completion:
        await lowlevel.checkpoint()
        if request.max_tokens < n_tokens:
            return completion(f"cut at {request.max_tokens}", "length")
        return completion(answer)

    return reply


def asked(provider: FakeProvider) -> list[tuple[int, int]]:
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
    """The limit is four times `max_tokens` unless it is given."""
    assert list(token_steps(max_tokens, limit)) == steps


async def test_a_cut_off_answer_is_asked_for_again_with_more_tokens() -> None:
    """The larger request is one of its own, of the same sample; its key is the answer's."""
    provider, cache = FakeProvider(long(1000)), MemoryCache()
    async with make(provider, cache) as engine:
        answer = await engine.answer(ask(engine, "a")[0], text)
    assert asked(provider) == [(256, 0), (512, 0), (1024, 0)]
    assert isinstance(answer, Answer)
    assert cache.entries[answer.key].completion.text == answer.value == "whole"
    rejected = [entry.rejected for entry in cache.entries.values()]
    assert rejected == ["the answer was cut off at max_tokens"] * 2 + [None]
    assert (engine.stats.sent, engine.stats.rejected, engine.stats.failed) == (3, 2, 0)


async def test_going_on_goes_straight_to_the_larger_request() -> None:
    """What was cut off is in the cache, and is not asked again."""
    provider, cache = FakeProvider(long(300)), MemoryCache()
    async with make(provider, cache) as engine:
        requests = ask(engine, "a")
        await engine.answer_all(requests, text, max_tokens_limit=256)
    assert asked(provider) == [(256, 0)]
    for n_hits in (0, 1):
        async with make(provider, cache) as engine:
            assert values(await engine.answer_all(requests, text)) == ["whole"]
        assert engine.stats.hits == n_hits
    assert asked(provider) == [(256, 0), (512, 0)]


async def test_still_cut_off_is_one_failure_that_names_the_numbers_and_the_setting() -> None:
    """No further sample is bought; a later run buys nothing, `retry_failed` one sample more."""
    provider, cache = FakeProvider(long(9999)), MemoryCache()
    for retry_failed, n_sent in ((False, 3), (False, 3), (True, 4)):
        async with make(provider, cache, retry_failed=retry_failed) as engine:
            (outcome,) = await engine.answer_all(ask(engine, "a"), text)
        assert len(provider.asked) == n_sent
        assert isinstance(outcome, Failure)
        assert (outcome.kind, outcome.attempts, outcome.raw) == ("length", n_sent, "cut at 1024")
        for words in ("1,024", "max_tokens is 256", "max_tokens_limit", "[settings]"):
            assert words in outcome.message
    assert asked(provider)[-1] == (1024, 1)


@pytest.mark.parametrize("max_samples", [1, 2])
async def test_larger_requests_are_no_samples(max_samples: int) -> None:
    """However few samples are allowed: these bound answers that are wrong, not short ones."""
    provider = FakeProvider(long(1000))
    async with make(provider, max_samples=max_samples) as engine:
        assert values(await engine.answer_all(ask(engine, "a"), text)) == ["whole"]


async def test_the_sample_after_a_larger_answer_may_be_as_large() -> None:
    """The next sample of a question whose answers are long begins with what was needed."""
    provider = FakeProvider(long(300, "bad"))
    async with make(provider, max_samples=2) as engine:
        outcomes = await engine.answer_all(ask(engine, "a"), text)
    assert values(outcomes) == ["parse!"]
    assert asked(provider) == [(256, 0), (512, 0), (512, 1)]


async def test_samples_of_one_question_have_their_own_larger_requests() -> None:
    """None is the other's."""
    provider = FakeProvider(long(300))
    async with make(provider) as engine:
        requests = [*ask(engine, "a"), *ask(engine, "a", sample_index=1)]
        outcomes = await engine.answer_all(requests, text, step=2)
    assert values(outcomes) == ["whole", "whole"]
    assert sorted(asked(provider)) == [(256, 0), (256, 1), (512, 0), (512, 1)]


async def test_a_server_that_refuses_more_tokens_ends_the_question() -> None:
    """As a failure for its length, with the server's words: the model has no more."""

    async def reply(request: Request) -> Completion:
        await lowlevel.checkpoint()
        if request.max_tokens > 256:
            raise RejectedError("HTTP 400: max_tokens is too large", "context_length")
        return completion("cut", "length")

    provider = FakeProvider(reply)
    async with make(provider) as engine:
        (outcome,) = await engine.answer_all(ask(engine, "a"), text)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.attempts, outcome.raw) == ("length", 2, "cut")
    for words in ("cut off at max_tokens", "512", "max_tokens is too large"):
        assert words in outcome.message


async def test_where_the_context_ends_no_more_tokens_are_asked_for() -> None:
    """Mistral's `model_length`: they would not fit, so it is a new sample as before."""

    async def reply(request: Request) -> Completion:
        await lowlevel.checkpoint()
        return completion("cut", "model_length")

    provider = FakeProvider(reply)
    async with make(provider) as engine:
        assert values(await engine.answer_all(ask(engine, "a"), text)) == ["length!"]
    assert asked(provider) == [(256, 0), (256, 1), (256, 2)]


async def test_a_batch_job_has_it_in_the_next_one(tmp_path: Path) -> None:
    """With the others that are asked again, not by itself at once."""

    def line(body: dict, n_asked: int) -> dict:  # type: ignore[type-arg]
        answer = fine(body, n_asked)
        if body["max_tokens"] < 300 and body["messages"][-1]["content"] != "short":
            answer["choices"][0]["finish_reason"] = "length"
        return answer

    server = BatchServer(line)
    machine = Machine(server, tmp_path / "batches")
    engine = Engine(machine.provider(), MemoryCache(), timeout_s=None, max_attempts=1)
    async with engine:
        outcomes = await engine.answer_all(ask(engine, "a", "short", "b"), text)
    assert values(outcomes) == ["re a", "re short", "re b"]
    assert server.sizes == [3, 2]
    assert {body["max_tokens"] for body in server.bodies(1)} == {512}
