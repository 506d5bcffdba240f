"""How an engine ends early: cancellation, `stop`, fatal errors, bugs. No task is left waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.base import MemoryCache
from claimscore.cache.entry import Entry
from claimscore.errors import (
    AuthenticationError,
    ConfigError,
    QuotaError,
    StoppedEarly,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm import stopping
from claimscore.pipeline.llm.engine import Engine
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider, Gate, completion, text
from tests.unit.pipeline.llm.test_engine import SlowCache, ask, make, settle, values

pytestmark = pytest.mark.anyio


async def test_cancel_while_waiting_for_a_slot():
    """The cancelled call leaves the queue; the one before it is not disturbed."""
    gate = Gate()
    provider, got = FakeProvider(gate), []
    async with make(provider, max_concurrency=1) as engine, anyio.create_task_group() as tasks:

        async def run() -> None:
            got.extend(await engine.answer_all(ask(engine, "a"), text))

        tasks.start_soon(run)
        await gate.full.wait()
        with anyio.move_on_after(0.01) as scope:
            await engine.answer_all(ask(engine, "b"), text)
        assert scope.cancelled_caught
        gate.open.set()
    assert values(got) == ["a"]
    assert len(provider.asked) == 1


async def test_cancel_in_flight_releases_the_slot():
    """After a cancelled request, the only slot is free again."""
    gate = Gate()
    provider = FakeProvider(gate)
    async with make(provider, max_concurrency=1) as engine:
        with anyio.move_on_after(0.01):
            await engine.answer_all(ask(engine, "a"), text)
        assert engine.stats.in_flight == 0
        gate.open.set()
        assert values(await engine.answer_all(ask(engine, "b"), text)) == ["b"]


async def test_a_follower_takes_over_when_the_leader_is_cancelled():
    """Another task that waits for the same answer asks for it instead."""
    gate = Gate()
    provider, got = FakeProvider(gate), []
    async with make(provider) as engine, anyio.create_task_group() as tasks:
        leader = anyio.CancelScope()

        async def lead() -> None:
            with leader:
                await engine.answer_all(ask(engine, "a"), text)

        async def follow() -> None:
            got.extend(await engine.answer_all(ask(engine, "a"), text))

        tasks.start_soon(lead)
        await gate.full.wait()
        tasks.start_soon(follow)
        await settle()
        leader.cancel()
        gate.open.set()
    assert values(got) == ["a"]
    assert len(provider.asked) == 2


async def test_an_answer_that_arrived_is_kept_despite_cancellation():
    """Cancelled while its commit is on the way: the paid answer reaches the cache."""
    cache = SlowCache()
    async with make(FakeProvider(), cache) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(engine.answer_all, ask(engine, "a"), text)
        await settle()
        assert engine.stats.in_flight == 1
        tasks.cancel_scope.cancel()
        cache.allowed.set()
    assert len(cache.entries) == 1
    assert engine.stats.in_flight == 0


async def test_leaving_the_engine_by_cancellation_keeps_answers():
    """The same where the engine itself is inside what is cancelled."""
    cache = SlowCache()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            async with make(FakeProvider(), cache) as engine:
                await engine.answer_all(ask(engine, "a"), text)

        tasks.start_soon(run)
        await settle()
        tasks.cancel_scope.cancel()
        cache.allowed.set()
    assert len(cache.entries) == 1


async def test_stop_lets_requests_in_flight_finish():
    """Nothing more is sent, what was sent is kept, and the call says that it stopped."""
    gate = Gate(2)
    provider, cache, errors = FakeProvider(gate), MemoryCache(), []
    async with (
        make(provider, cache, max_concurrency=2) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def run() -> None:
            try:
                await engine.answer_all(ask(engine, *"abcdef"), text)
            except StoppedEarly as exc:
                errors.append(str(exc))

        tasks.start_soon(run)
        await gate.full.wait()
        engine.stop()
        await settle()
        assert errors == []
        gate.open.set()
    assert errors == ["interrupted"]
    assert (len(provider.asked), len(cache.entries)) == (2, 2)


async def test_stop_wakes_those_who_sleep_and_wait():
    """Back-off, pause and slot: none of them is waited out."""

    async def refuse(request: Request) -> Completion:
        await lowlevel.checkpoint()
        raise TransientError("x")

    async with (
        Engine(
            FakeProvider(refuse),
            MemoryCache(),
            max_concurrency=2,
            sleep=lambda _: anyio.sleep(3600),
        ) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stop_soon, engine)
        with pytest.raises(StoppedEarly), anyio.fail_after(5):
            await engine.answer_all(ask(engine, *"abcdef"), text)


async def stop_soon(engine: Engine) -> None:
    await settle()
    engine.stop()


async def test_a_stopped_engine_takes_no_calls():
    """Later calls say at once that it is over."""
    async with make(FakeProvider()) as engine:
        engine.stop()
        with pytest.raises(StoppedEarly):
            await engine.answer_all(ask(engine, "a"), text)


@pytest.mark.parametrize("fatal", [AuthenticationError, UnknownModelError, ConfigError, QuotaError])
async def test_a_fatal_error_wakes_all_calls(fatal: type[Exception], monkeypatch: Any):
    """All calls raise it, whether they wait for a slot, an answer or another's flight."""
    monkeypatch.setattr(stopping, "GRACE_S", 0.01)
    monkeypatch.setattr(stopping, "STOP_GRACE_S", 0.01)
    hanging, told = Gate(), anyio.Event()
    errors: list[Exception] = []

    async def answer(request: Request) -> Completion:
        if request.messages[0].content == "fatal":
            await told.wait()
            raise fatal("no more")
        return await hanging(request)

    provider = FakeProvider(answer)
    with anyio.fail_after(5):
        async with (
            make(provider, max_concurrency=2) as engine,
            anyio.create_task_group() as tasks,
        ):

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


async def test_after_a_fatal_error_answers_in_flight_are_kept():
    """What was sent before and is answered within the grace is not paid for twice."""
    gate, cache = Gate(), MemoryCache()

    async def answer(request: Request) -> Completion:
        if request.messages[0].content != "fatal":
            return await gate(request)
        await gate.full.wait()
        gate.open.set()
        raise QuotaError("spent")

    async with make(FakeProvider(answer), cache) as engine:
        with pytest.raises(QuotaError):
            await engine.answer_all(ask(engine, "a", "fatal"), text)
    assert [entry.completion.text for entry in cache.entries.values()] == ["a"]


async def test_a_bug_in_the_provider_propagates():
    """As itself, neither swallowed nor wrapped in a group, and without a hang."""

    async def broken(request: Request) -> Completion:
        raise KeyError("bug")

    async with make(FakeProvider(broken)) as engine:
        with pytest.raises(KeyError, match="bug"), anyio.fail_after(1):
            await engine.answer_all(ask(engine, *"abc"), text)


async def test_a_cache_that_cannot_be_written_stops_the_run():
    """No more answers are bought that could not be kept."""

    class FullCache(MemoryCache):
        def put_many(self, entries: Mapping[str, Entry]) -> None:
            raise StoppedEarly("disk full")

    provider = FakeProvider()
    async with make(provider, FullCache(), max_concurrency=2) as engine:
        with pytest.raises(StoppedEarly, match="disk full"):
            await engine.answer_all(ask(engine, *map(str, range(20))), text)
    assert len(provider.asked) <= 4


async def test_race_of_stop_and_slots_leaks_none():
    """Stopping at any moment leaves every slot free."""
    for n_steps in range(25):

        async def answer(request: Request) -> Completion:
            await lowlevel.checkpoint()
            return completion("x")

        async with make(FakeProvider(answer), max_concurrency=2) as engine:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(swallow_stop, engine)
                for _ in range(n_steps):
                    await lowlevel.checkpoint()
                engine.stop()
            assert engine._dispatcher.endpoints[0].n_free == 2
            assert engine.stats.in_flight == 0
            assert len(engine._single_flight) == 0


async def swallow_stop(engine: Engine) -> None:
    with contextlib.suppress(StoppedEarly):
        await engine.answer_all(ask(engine, *"abcdef"), text)


async def test_after_a_stop_no_task_waits_for_it_to_run_short():
    """Rows that a stop leaves will never be begun."""
    gate = Gate()
    async with (
        make(FakeProvider(gate), max_concurrency=1) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def run() -> None:
            with contextlib.suppress(StoppedEarly):
                await engine.answer_all(ask(engine, *"abcd"), text)

        tasks.start_soon(run)
        await gate.full.wait()
        engine.stop()
        gate.open.set()
        with anyio.fail_after(5):
            await engine.runs_short()
