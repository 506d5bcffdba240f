"""The engine when things go wrong: outages, poison, too many failures, spent budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.base import MemoryCache
from claimscore.config import FailureLimit
from claimscore.errors import (
    BudgetError,
    ConfigError,
    OutageError,
    ParseError,
    QuotaError,
    RejectedError,
    StoppedEarly,
    TooManyFailures,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm import circuit_breaker
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, completion, text
from tests.unit.pipeline.llm.test_engine import ask, make, values

pytestmark = pytest.mark.anyio

AnswerFunction = Callable[[Request], Awaitable[Completion]]


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outages of milliseconds instead of minutes."""
    monkeypatch.setattr(circuit_breaker, "FIRST_PROBE_S", 0.001)
    monkeypatch.setattr(circuit_breaker, "PROBE_GROWTH", 1.0)


def down_between(first: int, last: int, error: TransientError) -> AnswerFunction:
    """Requests number `first` to `last` meet the error."""
    n_asked = 0

    async def answer(request: Request) -> Completion:
        nonlocal n_asked
        n_asked += 1
        number = n_asked
        await lowlevel.checkpoint()
        if first <= number <= last:
            raise error
        return completion(request.messages[0].content)

    return answer


@pytest.mark.parametrize("kind", ["connect", "dropped", "status", "body"])
async def test_an_outage_loses_no_row(kind: Any) -> None:
    """However long it lasts (here far longer than `max_attempts` of any row), all are answered,
    and beyond those in flight only the probes were sent in vain."""
    provider = FakeProvider(down_between(40, 40 + 8 + 60, TransientError("down", kind)))
    events: list[str] = []
    async with make(
        provider,
        max_concurrency=8,
        max_attempts=3,
        on_event=lambda kind, **fields: events.append(kind),
    ) as engine:
        outcomes = await engine.answer_all(ask(engine, *map(str, range(100))), text)
    assert values(outcomes) == [str(i) for i in range(100)]
    assert len(provider.asked) == 100 + 8 + 61
    assert [event for event in events if "outage" in event] == ["outage began", "outage ended"]


async def test_an_outage_that_does_not_end_stops_the_run() -> None:
    """After `max_outage_s`, with the server's last words; nothing becomes a failure row."""
    provider = FakeProvider(down_between(10, 10**9, TransientError("HTTP 503: down")))
    async with make(provider, max_concurrency=4, max_outage_s=0.05) as engine:
        with pytest.raises(OutageError, match="HTTP 503: down"):
            await engine.answer_all(ask(engine, *map(str, range(30))), text)
    assert engine.stats.failed == 0


async def test_a_poisonous_request_is_one_failure_and_no_outage() -> None:
    """It is given up after `max_attempts` while the others go on."""

    async def answer(request: Request) -> Completion:
        await lowlevel.checkpoint()
        if request.messages[0].content.startswith("poison"):
            raise TransientError("HTTP 500: boom")
        return completion("good")

    provider = FakeProvider(answer)
    texts = [f"poison {i}" if i % 25 == 0 else str(i) for i in range(100)]
    async with make(provider, max_concurrency=8, max_attempts=5) as engine:
        outcomes = await engine.answer_all(ask(engine, *texts), text)
    assert values(outcomes) == ["transient!" if "poison" in name else "good" for name in texts]
    assert len(provider.asked) == 96 + 4 * 5


class KnowsWhy(FakeProvider):
    """A provider that can say why nothing comes."""

    n_diagnosed = 0

    async def diagnose(self) -> None:
        self.n_diagnosed += 1
        raise UnknownModelError("the server has no such model; it has: other-1")


async def test_an_outage_at_the_start_is_looked_into() -> None:
    """A server that answers 500 to an unknown model is found out at once, not after an hour."""
    provider = KnowsWhy(down_between(1, 10**9, TransientError("HTTP 500: KeyError")))
    async with make(provider, max_concurrency=4) as engine:
        with pytest.raises(UnknownModelError, match="other-1"):
            await engine.answer_all(ask(engine, *map(str, range(30))), text)
    assert provider.n_diagnosed == 1


async def test_an_outage_after_answers_is_not_looked_into() -> None:
    """What answered before knows the model."""
    provider = KnowsWhy(down_between(10, 30, TransientError("down", "connect")))
    async with make(provider, max_concurrency=2) as engine:
        outcomes = await engine.answer_all(ask(engine, *map(str, range(30))), text)
    assert values(outcomes) == [str(i) for i in range(30)]
    assert provider.n_diagnosed == 0


async def test_a_spent_quota_is_met_by_those_in_flight_and_nobody_else() -> None:
    """Everything answered before is kept."""
    n_asked = 0

    async def answer(request: Request) -> Completion:
        nonlocal n_asked
        n_asked += 1
        number = n_asked
        await lowlevel.checkpoint()
        if number > 50:
            raise QuotaError("insufficient_quota")
        return completion("good")

    cache = MemoryCache()
    async with make(FakeProvider(answer), cache, max_concurrency=8) as engine:
        with pytest.raises(QuotaError):
            await engine.answer_all(ask(engine, *map(str, range(500))), text)
    assert len(cache.entries) == 50
    assert n_asked <= 50 + 8


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        pytest.param(FailureLimit(rows=10), 11, id="count"),
        pytest.param(FailureLimit(rows=0), 1, id="none at all"),
        pytest.param(FailureLimit(share=0.5), 50, id="share, once it says something"),
    ],
)
async def test_too_many_failures_stop_the_run(limit: FailureLimit, asked: int) -> None:
    """Before the rest of the rows cost anything; the message says what failed most."""
    provider = FakeProvider(down_between(1, 0, TransientError("never")))

    def parse(answer: Completion) -> str:
        raise ParseError("no JSON")

    async with make(provider, max_concurrency=1, max_samples=1, failure_limit=limit) as engine:
        with pytest.raises(TooManyFailures, match="parse"):
            await engine.answer_all(ask(engine, *map(str, range(500))), parse)
    assert len(provider.asked) == asked


async def test_failures_below_the_limit_stop_nobody() -> None:
    """A share is a share of the rows that have an outcome."""

    async def answer(request: Request) -> Completion:
        await lowlevel.checkpoint()
        number = int(request.messages[0].content)
        return completion("bad" if number % 20 == 0 else "good")

    limit = FailureLimit(share=0.06)
    async with make(FakeProvider(answer), failure_limit=limit, max_samples=1) as engine:
        outcomes = await engine.answer_all(ask(engine, *map(str, range(1, 501))), text)
    assert values(outcomes).count("parse!") == 25


async def test_requests_all_too_long_stop_the_run_as_a_wrong_setting() -> None:
    """Ten of ten: the model is too small for these texts, and the rest need not be tried."""

    async def answer(request: Request) -> Completion:
        await lowlevel.checkpoint()
        raise RejectedError("maximum context length is 16 tokens", "context_length")

    provider = FakeProvider(answer)
    async with make(provider, max_concurrency=1) as engine:
        with pytest.raises(ConfigError, match=r"every request is too long.*16 tokens"):
            await engine.answer_all(ask(engine, *map(str, range(500))), text)
    assert len(provider.asked) == 10


async def test_some_requests_too_long_are_failure_rows() -> None:
    """One that fits shows that the model is right."""

    async def answer(request: Request) -> Completion:
        await lowlevel.checkpoint()
        if request.messages[0].content == "0":
            return completion("good")
        raise RejectedError("maximum context length is 16 tokens", "context_length")

    async with make(FakeProvider(answer), max_concurrency=1) as engine:
        outcomes = await engine.answer_all(ask(engine, *map(str, range(30))), text)
    assert values(outcomes) == ["good"] + ["context_length!"] * 29
    assert not engine.stats.all_too_long


async def test_a_budget_of_requests_is_kept_to_the_last_one() -> None:
    """Attempts that fail count too; what was answered is kept, the run can be taken up again."""
    provider = FakeProvider(down_between(5, 7, TransientError("HTTP 500")))
    cache, spending = MemoryCache(), Budget(price=None, max_requests=20)
    async with make(provider, cache, max_concurrency=4, spending=spending) as engine:
        with pytest.raises(BudgetError):
            await engine.answer_all(ask(engine, *map(str, range(100))), text)
    assert len(provider.asked) == 20
    assert len(cache.entries) == 17


async def test_waiting_at_the_gate_ends_with_the_run() -> None:
    """Ctrl-C in an outage does not wait for its end."""
    provider = FakeProvider(down_between(1, 10**9, TransientError("down", "connect")))
    async with make(provider, max_concurrency=2) as engine, anyio.create_task_group() as tasks:
        errors: list[Exception] = []

        async def run() -> None:
            try:
                await engine.answer_all(ask(engine, *map(str, range(10))), text)
            except StoppedEarly as exc:
                errors.append(exc)

        tasks.start_soon(run)
        while not engine.observe().why:
            await anyio.sleep(0)
        assert "nothing has answered yet; is --base-url right?" in engine.waiting_for()
        engine.stats.answered = 1
        assert "no answers: down" in engine.waiting_for()
        engine.stop()
    assert [str(error) for error in errors] == ["interrupted"]
