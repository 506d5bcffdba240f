"""The engine when things go wrong, and how it ends early. No task is left waiting."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.store import MemoryCache
from claimscore.errors import (
    AuthenticationError,
    ConfigError,
    ParseError,
    QuotaError,
    RejectedError,
    StoppedEarly,
    TooManyFailures,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.engine import Engine
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, Gate, completion, make, text
from tests.unit.pipeline.llm.conftest import SlowDisk
from tests.unit.pipeline.llm.test_engine import ask, asked, settle, values

pytestmark = pytest.mark.anyio

AnswerFunction = Callable[[Request], Awaitable[Completion]]


def failing(fault: Callable[[int, str], Exception | None]) -> AnswerFunction:
    """Answers a request with its text, or raises what `fault` makes of its number and text."""
    n_asked = 0

    async def answer(request: Request) -> Completion:
        nonlocal n_asked
        n_asked += 1
        number, words = n_asked, request.messages[0].content
        await lowlevel.checkpoint()
        error = fault(number, words)
        if error is not None:
            raise error
        return completion(words)

    return answer


def down_between(first: int, last: float, error: Exception) -> AnswerFunction:
    """Requests number `first` to `last` meet the error."""
    return failing(lambda number, _: error if first <= number <= last else None)


def numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


# -- limits of failures and requests


async def test_a_spent_quota_is_met_by_those_in_flight_and_nobody_else() -> None:
    provider, cache = FakeProvider(down_between(51, 10**9, QuotaError("spent"))), MemoryCache()
    with pytest.raises(QuotaError):
        await asked(provider, *numbers(500), cache=cache, max_concurrency=8)
    assert len(cache.answers) == 50
    assert len(provider.asked) <= 50 + 8


@pytest.mark.parametrize(
    ("limit", "n_asked"),
    [
        pytest.param("10", 11, id="count"),
        pytest.param("0", 1, id="none at all"),
        pytest.param("50%", 50, id="share, once it says something"),
    ],
)
async def test_too_many_failures_stop_the_run(limit: str, n_asked: int) -> None:
    provider = FakeProvider()

    def parse(answer: Completion) -> str:
        raise ParseError("no JSON")

    with pytest.raises(TooManyFailures, match="parse"):
        await asked(
            provider,
            *numbers(500),
            parse=parse,
            max_concurrency=1,
            max_samples=1,
            max_failures=limit,
        )
    assert len(provider.asked) == n_asked


@pytest.mark.parametrize("n_fitting", [0, 1])
async def test_requests_all_too_long_stop_the_run_as_a_wrong_setting(n_fitting: int) -> None:
    """Ten of ten: the model is too small for these texts. One that fits shows that it is not."""
    long = RejectedError("maximum context length is 16 tokens", "context_length")
    provider = FakeProvider(down_between(1 + n_fitting, 10**9, long))
    if n_fitting:
        outcomes, _ = await asked(provider, *numbers(30), max_concurrency=1)
        assert values(outcomes) == ["0"] + ["context_length!"] * 29
        return
    with pytest.raises(ConfigError, match=r"first requests are all refused.*16 tokens"):
        await asked(provider, *numbers(500), max_concurrency=1)
    assert len(provider.asked) == 10


REFUSED = RejectedError("https://x/v1: HTTP 400: Not now (request 81f2a)")


@pytest.mark.parametrize(
    "error",
    [REFUSED, TransientError("HTTP 500: Internal Server Error", status=500)],
    ids=["400", "500"],
)
async def test_refusals_of_the_first_requests_stop_the_run(error: Exception) -> None:
    """Not each row by itself, nor an hour of probes."""
    provider = FakeProvider(failing(lambda _, words: error))
    with pytest.raises(ConfigError, match="first requests are all refused"):
        await asked(provider, *numbers(500), max_concurrency=4)
    assert 10 <= len(provider.asked) < 10 + 4
    at_once = FakeProvider(failing(lambda _, words: error))
    with pytest.raises(ConfigError, match="first requests are all refused"):
        await asked(at_once, *numbers(12), max_concurrency=64)


async def test_refusals_after_an_earlier_answer_are_those_of_their_rows() -> None:
    cache = MemoryCache()
    await asked(FakeProvider(), "0", cache=cache)
    provider = FakeProvider(failing(lambda _, words: REFUSED))
    outcomes, _ = await asked(provider, *numbers(30), cache=cache)
    assert values(outcomes)[1:] == ["rejected!"] * 29


@pytest.mark.parametrize(
    "fault",
    [
        lambda number, words: None if number == 9 else REFUSED,
        lambda number, words: RejectedError("HTTP 400: filtered", "content_filter"),
    ],
    ids=["one is accepted", "about the text"],
)
async def test_other_refusals_are_those_of_their_rows(fault: Any) -> None:
    texts = [f"row {'abcdefghij'[i % 10]}{'abc'[i // 10]}" for i in range(30)]
    outcomes, _ = await asked(FakeProvider(failing(fault)), *texts, max_concurrency=1)
    assert len(values(outcomes)) == 30


async def test_refused_connections_are_no_requests() -> None:
    provider = FakeProvider(down_between(11, 40, TransientError("refused", "connect")))
    spending = Budget(max_requests=20)
    outcomes, engine = await asked(provider, *numbers(20), max_concurrency=4, spending=spending)
    assert values(outcomes) == numbers(20)
    assert (len(provider.asked), engine.stats.sent, spending.ledger.now.requests) == (50, 20, 20)


# -- cancelled


async def test_a_cancelled_call_sends_nothing_more_and_keeps_what_it_sent() -> None:
    """Those that want the same answers get them, or ask for what was not sent."""
    gate, got = Gate(2), list[Any]()
    provider, cache = FakeProvider(gate), MemoryCache()
    async with make(provider, cache, max_concurrency=2) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.answer_all, ask(engine, *"abcdef"), text)
            await gate.full.wait()
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                got.extend(await engine.answer_all(ask(engine, *"acg"), text))

            tasks.start_soon(follow)
            await settle()
            gate.open.set()
        assert engine.stats.in_flight == 0
    assert values(got) == ["a", "c", "g"]
    assert sorted(request.messages[0].content for request in provider.asked) == [*"abcg"]
    assert len(cache.answers) == 4


@pytest.mark.parametrize("what", ["call", "engine"])
async def test_an_answer_that_arrived_is_kept_despite_cancellation(
    what: str, slow_disk: SlowDisk
) -> None:
    cache = MemoryCache()
    engine = make(FakeProvider(), cache)
    async with anyio.create_task_group() as outer:

        async def run() -> None:
            async with engine, anyio.create_task_group() as inner:
                inner.start_soon(engine.answer_all, ask(engine, "a"), text)
                await settle()
                assert engine.stats.in_flight == 1
                (inner if what == "call" else outer).cancel_scope.cancel()
                slow_disk.allowed.set()

        outer.start_soon(run)
    assert len(cache.answers) == 1
    assert engine.stats.in_flight == 0


# -- stopped


async def stopped(engine: Engine, texts: str, errors: list[str]) -> None:
    """Ask, and note what the call is stopped by."""
    try:
        await engine.answer_all(ask(engine, *texts), text)
    except StoppedEarly as exc:
        errors.append(str(exc))


async def test_stop_lets_requests_in_flight_finish() -> None:
    """Nothing more is sent, what was sent is kept, later calls say at once that it is over, and
    no task waits for rows that will never be begun."""
    gate = Gate(2)
    provider, cache = FakeProvider(gate), MemoryCache()
    errors: list[str] = []
    async with (
        make(provider, cache, max_concurrency=2) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stopped, engine, "abcdef", errors)
        await gate.full.wait()
        engine.stop()
        await settle()
        assert errors == []
        await stopped(engine, "g", errors)
        assert errors == ["interrupted"]
        gate.open.set()
        with anyio.fail_after(60):
            await engine.runs_short()
    assert errors == ["interrupted"] * 2
    assert (len(provider.asked), len(cache.answers)) == (2, 2)


async def test_stop_wakes_those_who_sleep_and_wait() -> None:
    """Back-off, pause and slot: none of them is waited out."""
    provider = FakeProvider(down_between(1, 10**9, TransientError("x")))
    errors: list[str] = []
    with anyio.fail_after(60):
        async with make(provider, max_concurrency=2) as engine, anyio.create_task_group() as tasks:
            tasks.start_soon(stopped, engine, "abcdef", errors)
            await settle()
            engine.stop()
    assert errors == ["interrupted"]


@pytest.mark.parametrize("fatal", [AuthenticationError, UnknownModelError, ConfigError, QuotaError])
async def test_a_fatal_error_wakes_all_calls(fatal: type[Exception]) -> None:
    hanging, told = Gate(), anyio.Event()
    errors: list[Exception] = []

    async def answer(request: Request) -> Completion:
        if request.messages[0].content == "fatal":
            await told.wait()
            raise fatal("no more")
        return await hanging(request)

    provider = FakeProvider(answer)
    with anyio.fail_after(60):
        async with make(provider, max_concurrency=2) as engine, anyio.create_task_group() as tasks:

            async def run(*texts: str) -> None:
                try:
                    await engine.answer_all(ask(engine, *texts), text)
                except fatal as exc:
                    errors.append(exc)

            for texts in (("a", "fatal", "b"), ("a",), ("c",), ("fatal",)):
                tasks.start_soon(run, *texts)
                await settle()
            told.set()
    assert [str(error) for error in errors] == ["no more"] * 4
    assert len(provider.asked) == 2


async def test_after_a_fatal_error_answers_in_flight_are_kept() -> None:
    """What was sent before and is answered within the grace is not paid for twice."""
    gate, cache = Gate(), MemoryCache()

    async def answer(request: Request) -> Completion:
        if request.messages[0].content != "fatal":
            return await gate(request)
        await gate.full.wait()
        gate.open.set()
        raise QuotaError("spent")

    with pytest.raises(QuotaError):
        await asked(FakeProvider(answer), "a", "fatal", cache=cache)
    assert [answer.text for answer in cache.answers.values()] == ["a"]


async def test_a_bug_in_the_provider_is_raised_as_itself() -> None:
    provider = FakeProvider(down_between(1, 10**9, KeyError("bug")))
    with pytest.raises(KeyError, match="bug"), anyio.fail_after(60):
        await asked(provider, *"abc")


async def test_a_cache_that_cannot_be_written_stops_the_run() -> None:
    class FullCache(MemoryCache):
        def put_many(self, answers: Mapping[str, Completion]) -> None:
            raise StoppedEarly("disk full")

    provider = FakeProvider()
    with pytest.raises(StoppedEarly, match="disk full"):
        await asked(provider, *numbers(20), cache=FullCache(), max_concurrency=2)
    assert len(provider.asked) <= 4
