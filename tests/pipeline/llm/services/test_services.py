"""Several engines, one `Services`: what one engine guarantees, all of them do together."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.config import LLMConfig
from claimscore.errors import (
    AuthenticationError,
    BudgetError,
    ConfigError,
    RejectedError,
    StoppedEarly,
    TooManyFailures,
)
from claimscore.pipeline.llm.money import spent_so_far
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.services.letters import Letter
from claimscore.types import Completion, Request
from tests.loopback import Loopback, text_answer
from tests.pipeline.llm.fakes import FakeProvider, Gate, completion
from tests.pipeline.llm.services.post import Killed, Run, ask

pytestmark = pytest.mark.anyio

PRICED: dict[str, Any] = {"input_price": 1000.0, "output_price": 1000.0}


def asked(*providers: FakeProvider) -> Counter[str]:
    """How often each question was sent."""
    return Counter(r.messages[-1].content for provider in providers for r in provider.asked)


async def together(run: Run, providers: dict[str, Any], numbers: dict[str, range]) -> list[Any]:
    """Engines that ask at the same time; what they got, or what stopped them, by name."""
    outcomes: dict[str, Any] = {}

    async def work(name: str) -> None:
        try:
            async with run.engine(name, providers[name]) as engine:
                outcomes[name] = await ask(engine, numbers[name])
        except (StoppedEarly, ConfigError) as exc:
            outcomes[name] = exc

    async with anyio.create_task_group() as engines:
        for name in providers:
            engines.start_soon(work, name)
    return [outcomes[name] for name in providers]


async def test_what_several_engines_want_is_asked_once(tmp_path: Path) -> None:
    """By the server's count; everybody has all answers, and the letters are few."""
    with Loopback(answer=text_answer("yes"), latency_s=0.01) as server:
        llm = LLMConfig(model="openai:m", base_url=server.base_url, max_concurrency=32)
        run = Run(tmp_path, llm, server.base_url)
        services = run.start()
        providers = {name: load_provider(llm) for name in ("a", "b")}
        numbers = {"a": range(60), "b": range(30, 90)}
        found = await together(run, providers, numbers)
        assert [len([o for o in each if isinstance(o, Answer)]) for each in found] == [60, 60]
        assert server.contents.total() == len(server.contents) == 90
        assert services.stats().answered == services.spent().requests == 90
        assert services.stats().in_flight == 0
        assert services.n_letters < 180
        run.end()
    assert spent_so_far(run.spend_file).requests == 90


async def test_answers_are_stored_before_they_are_used(tmp_path: Path) -> None:
    """Whoever has an answer finds it in the cache of the services."""
    run = Run(tmp_path, LLMConfig(max_concurrency=4))
    services, provider = run.start(), FakeProvider()
    stored: list[bool] = []
    async with run.engine("a", provider) as engine, anyio.create_task_group() as tasks:

        async def look(number: int) -> None:
            (found,) = await ask(engine, range(number, number + 1))
            stored.append(found.key in services._cache.get_many([found.key]))

        for number in range(20):
            tasks.start_soon(look, number)
    run.end()
    assert stored == [True] * 20


async def test_questions_are_looked_up_while_others_are_asked(tmp_path: Path) -> None:
    """More are begun than may be sent, so that a slot need not wait for a letter."""
    run = Run(tmp_path, LLMConfig(max_concurrency=4))
    run.start()
    gate = Gate(n_expected=4)
    provider = FakeProvider(gate)
    async with run.engine("a", provider) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, engine, range(20))
        await gate.full.wait()
        assert run.post.ops["begin"] == 8
        gate.open.set()
    run.end()
    assert provider.most_busy == 4


async def test_a_limit_holds_over_all_engines(tmp_path: Path) -> None:
    """The server refuses what exceeds a second of the limit, and refuses nothing."""
    with Loopback(answer=text_answer("yes"), rpm=6000, depth_s=1.0, headers="none") as server:
        llm = LLMConfig(model="openai:m", base_url=server.base_url, rpm=6000)
        run = Run(tmp_path, llm, server.base_url)
        run.start()
        providers = {name: load_provider(llm) for name in ("a", "b", "c")}
        await together(run, providers, {"a": range(50), "b": range(50, 100), "c": range(100, 150)})
        run.end()
        assert server.counts.outcomes["limit"] == 0
        assert server.counts.paid.total() == 150
        assert server.counts.received_at[-1] > 1.0


@pytest.mark.parametrize(
    ("cap", "sent"),
    [
        pytest.param({"max_requests": 37}, 37, id="requests"),
        pytest.param({"max_cost": 3.0}, None, id="dollars"),
    ],
)
async def test_a_cap_is_kept_exactly(tmp_path: Path, cap: dict[str, Any], sent: int | None) -> None:
    """By what all of them sent and were billed; everybody hears of it."""
    run = Run(tmp_path, LLMConfig(max_concurrency=8, **PRICED, **cap))
    run.start()
    providers = {name: FakeProvider() for name in ("a", "b", "c")}
    found = await together(
        run, providers, {n: range(k * 200, k * 200 + 200) for k, n in enumerate("abc")}
    )
    run.end()
    assert all(isinstance(each, BudgetError) for each in found), found
    total, spent = asked(*providers.values()).total(), spent_so_far(run.spend_file)
    assert spent.requests == total
    assert spent.possibly_billed_usd == 0.0
    assert spent.usd == pytest.approx(total * 15 / 1000)
    if sent is not None:
        assert total == sent
    else:
        assert 3.0 - 0.54 < spent.usd <= 3.0  # what one request may cost


async def test_a_dead_member_loses_its_claims_and_nothing_else(tmp_path: Path) -> None:
    """What it had in flight is asked again and may be billed; all else is there."""
    run = Run(tmp_path, LLMConfig(max_concurrency=4, max_requests=1000, **PRICED))
    run.options = {"silent_s": 0.2}
    services = run.start()
    gate, first, second = Gate(n_expected=4), FakeProvider(), FakeProvider()

    process = anyio.CancelScope()

    async def die() -> None:
        with process, contextlib.suppress(Killed):
            async with run.engine("a", first) as engine:
                await ask(engine, range(20))
                first._answer = gate
                await ask(engine, range(100))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(die)
        await gate.full.wait()
        run.post.dead.add("a")
        process.cancel()
    async with run.engine("b", second) as engine:
        found = await ask(engine, range(100))
    assert all(isinstance(outcome, Answer) for outcome in found)
    twice = {question for question, times in asked(first, second).items() if times > 1}
    assert twice == {str(n) for n in range(20, 24)}
    assert ("member lost", {"member": "a"}) in run.events
    spent = services._purse.account.earlier
    assert spent.requests == 4
    assert spent.possibly_billed_usd > 4 * 0.256
    run.end()
    stored = spent_so_far(run.spend_file)
    assert stored.requests == 104
    assert stored.possibly_billed_usd == pytest.approx(spent.possibly_billed_usd)


async def test_services_that_are_killed_and_started_again(tmp_path: Path) -> None:
    """In the middle, twice: engines wait and go on; nothing is lost or asked twice, the cap
    and the spending are right to the request."""
    run = Run(tmp_path, LLMConfig(max_concurrency=8, max_requests=200, **PRICED))
    run.start()

    async def answer(request: Request) -> Completion:
        await anyio.sleep(0.01)
        return completion(request.messages[-1].content)

    providers = {name: FakeProvider(answer) for name in ("a", "b")}

    async def restart() -> None:
        for at in (30, 90):
            while asked(*providers.values()).total() < at:
                await anyio.sleep(0.005)
            run.kill()
            await anyio.sleep(0.05)
            run.start()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(restart)
        numbers = {"a": range(120), "b": range(60, 200)}
        found = await together(run, providers, numbers)
    assert [len(each) for each in found] == [120, 140]
    assert set(asked(*providers.values()).values()) == {1}
    assert run.post.services is not None
    stats = run.post.services.stats()
    assert (stats.answered, stats.usd) == (200, pytest.approx(200 * 15 / 1000))
    run.end()
    spent = spent_so_far(run.spend_file)
    assert (spent.requests, spent.possibly_billed_usd) == (200, 0.0)
    assert spent.usd == pytest.approx(200 * 15 / 1000)


async def test_lost_replies_change_nothing(tmp_path: Path) -> None:
    """A letter that comes again is answered again, and obeyed once."""
    run = Run(tmp_path, LLMConfig(max_concurrency=8, max_requests=100, **PRICED))
    services = run.start()
    lost: set[Any] = set()

    def lose(letter: Letter) -> bool:
        new = letter[:3] not in lost
        lost.add(letter[:3])
        return new

    run.post.lose = lose
    provider = FakeProvider()
    async with run.engine("a", provider) as engine:
        await ask(engine, range(60))
    assert services.spent().requests == 60
    run.end()
    assert spent_so_far(run.spend_file).usd == pytest.approx(60 * 15 / 1000)


async def test_services_that_stay_away_stop_the_engine(tmp_path: Path) -> None:
    """After `max_outage_s`, in words that say what was not reached."""
    run = Run(tmp_path, LLMConfig(max_concurrency=4))
    run.start()
    async with run.engine("a", FakeProvider(), max_outage_s=0.1) as engine:
        await ask(engine, range(5))
        run.end()
        with pytest.raises(StoppedEarly, match=r"was not reached for"):
            await ask(engine, range(10))
    with pytest.raises(StoppedEarly, match=r"was not reached for"):
        async with run.engine("b", FakeProvider(), max_outage_s=0.1):
            pass


async def test_a_fault_of_the_transport_is_not_waited_for(tmp_path: Path) -> None:
    """It is raised as what it is, and an answer that had no other way is an error, not a wait."""
    run = Run(tmp_path, LLMConfig(max_concurrency=4))
    run.start()
    gate = Gate(n_expected=4)

    async def work() -> None:
        with pytest.raises(Killed, match="a"):
            async with run.engine("a", FakeProvider(gate)) as engine:
                await ask(engine, range(10))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await gate.full.wait()
        run.post.dead.add("a")
        gate.open.set()
    run.end()


class TestStop:
    """What stops one stops all."""

    async def test_the_services_say_stop(self, tmp_path: Path) -> None:
        """Requests in flight still land in the cache; the reason is the one that was given."""
        run = Run(tmp_path, LLMConfig(max_concurrency=4))
        run.options = {"silent_s": 0.2}
        services, gate = run.start(), Gate(n_expected=4)

        async def interrupt() -> None:
            await gate.full.wait()
            services.stop()
            await anyio.sleep(0.1)
            gate.open.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interrupt)
            (found,) = await together(run, {"a": FakeProvider(gate)}, {"a": range(50)})
        assert isinstance(found, StoppedEarly)
        assert str(found) == "interrupted"
        assert services._cache.stats().entries == 4
        assert services.reason == ("StoppedEarly", "interrupted")
        run.end()

    async def test_a_wrong_key_stops_everybody(self, tmp_path: Path) -> None:
        """With the same class of error, so that the exit code is the same."""

        async def refuse(request: Request) -> Completion:
            raise AuthenticationError("the key was refused")

        run = Run(tmp_path, LLMConfig(max_concurrency=4))
        run.options = {"silent_s": 0.2}
        run.start()
        providers = {"a": FakeProvider(refuse), "b": FakeProvider(Gate())}

        async def let_go() -> None:
            await anyio.sleep(0.3)
            providers["b"]._answer.open.set()  # type: ignore[attr-defined]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(let_go)
            found = await together(run, providers, {"a": range(9), "b": range(9, 50)})
        assert [(type(each), str(each)) for each in found] == [
            (AuthenticationError, "the key was refused")
        ] * 2
        run.end()

    async def test_failures_are_counted_over_all(self, tmp_path: Path) -> None:
        """None of them has more than are allowed; together they have."""

        async def refuse(request: Request) -> Completion:
            await anyio.sleep(0.002)
            if int(request.messages[-1].content) % 5 == 0:
                raise RejectedError("not this one", "content_filter")
            return completion("yes")

        run = Run(tmp_path, LLMConfig(max_concurrency=4, max_failures="12"))
        run.start()
        providers = {name: FakeProvider(refuse) for name in ("a", "b")}
        found = await together(run, providers, {"a": range(50), "b": range(50, 1000)})
        assert isinstance(found[1], TooManyFailures), found
        assert "content_filter" in str(found[1])
        assert asked(providers["b"]).total() < 200
        run.end()

    async def test_an_engine_that_is_done_stops_nobody(self, tmp_path: Path) -> None:
        """It leaves, and its numbers stay."""
        run = Run(tmp_path, LLMConfig())
        services = run.start()
        for name in ("a", "b"):
            async with run.engine(name, FakeProvider()) as engine:
                await ask(engine, range(5))
        assert services.reason is None
        stats = services.stats()
        assert (stats.answered, stats.hits, stats.sent) == (5, 5, 5)
        run.end()


async def test_a_damaged_answer_is_asked_again(tmp_path: Path) -> None:
    """The engine that reads it finds it, and the services say so."""
    run = Run(tmp_path, LLMConfig())
    services, provider = run.start(), FakeProvider()
    async with run.engine("a", provider) as engine:
        (found,) = await ask(engine, range(1))
        services._cache.write(
            lambda connection: connection.execute("UPDATE Cache SET value = CAST('x' AS BLOB)")
        )
        (again,) = await ask(engine, range(1))
    assert isinstance(again, Answer)
    assert not again.cached
    assert again.key == found.key
    assert services._cache.get_many([found.key])
    assert [kind for kind, _ in run.events] == ["cache"]
    run.end()


async def test_a_batch_provider_is_refused(tmp_path: Path) -> None:
    """Its journal is one process's."""
    llm = LLMConfig(model="openai-batch:m", base_url="http://127.0.0.1:1/v1")
    run = Run(tmp_path, llm, llm.base_url)
    run.start()
    with pytest.raises(ConfigError, match="one engine alone"):
        async with run.engine("a", load_provider(llm)):
            pass
    run.end()
