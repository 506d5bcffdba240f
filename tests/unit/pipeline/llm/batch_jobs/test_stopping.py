"""Runs that stop and go on, and two at once: nothing is lost, nothing is paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import httpx2
import pytest
from anyio import from_thread

from claimscore.cache.key import request_key
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal, paid_twice_online
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.types import Completion, Request
from tests.support.batch_server import (
    BatchServer,
    Machine,
    ask,
    error,
    fine,
    question,
    texts,
)

pytestmark = pytest.mark.anyio

# -- stopping and going on


async def test_what_was_not_sent_when_stopped_is_not_sent(server: BatchServer, machine: Machine):
    """Cancelled while it is collected: nothing was spent, nothing is said."""
    provider = machine.provider(sleep=anyio.sleep)
    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        with anyio.move_on_after(0.05):
            await provider.complete(question("a"))
    await provider.aclose()
    assert server.calls == []
    assert provider.notice() is None


@pytest.mark.parametrize("call", ["", "upload", "create", "look", "download"])
async def test_a_stop_ends_the_waiting_and_loses_nothing(
    call: str, server: BatchServer, machine: Machine
):
    """Wherever the batch is: no step that costs money is taken, the next run has all answers."""
    requests = [question("a"), question("b")]
    provider = machine.provider()
    await provider.recover(machine.keep, machine.find)
    serve = server._reply

    def stopping(name: str, path: str, request: httpx2.Request) -> httpx2.Response:
        if name == call:
            tasks.cancel_scope.cancel()
        return serve(name, path, request)

    server._reply = stopping  # type: ignore[method-assign]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, provider, requests)
        if not call:
            while not provider.under_way()[0]:
                await anyio.sleep(0)
            assert provider.under_way()[0].endswith(" requests are put together")
            tasks.cancel_scope.cancel()
    assert (provider.notice() is not None) == (call not in ("", "upload"))
    await provider.aclose()
    assert len(server.batches) == (call not in ("", "upload"))
    server._reply = serve  # type: ignore[method-assign]
    provider = machine.provider()
    await provider.recover(machine.keep, machine.find)
    assert texts(await ask(provider, machine.missing(requests)))[:1] in ([], ["re a"])
    assert [machine.cache[request_key(request)].text for request in requests] == ["re a", "re b"]
    assert len(server.batches) == 1
    await provider.aclose()


async def test_what_was_sent_when_stopped_is_collected_by_the_next_run(
    server: BatchServer, machine: Machine
):
    """The notice says so; the batch is not sent again."""
    server.n_looks = 10**9
    provider = machine.provider()
    requests = [question("a"), question("b")]
    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for request in requests:
            tasks.start_soon(provider.complete, request)
        while server.calls.count("look") < 3:
            await anyio.sleep(0)
        words, seconds = provider.under_way()
        tasks.cancel_scope.cancel()
    await provider.aclose()
    assert provider.notice() == (
        "2 requests are in batch batch_1, which goes on; "
        "run the same command to collect the answers"
    )
    assert words == "2 requests are in batch batch_1 (in_progress, 0 answered)"
    assert seconds > 5
    assert provider.under_way() == ("", 0.0)
    online = paid_twice_online(machine.state, "m")
    assert online is not None
    assert "2 requests to m are in batch batch_1" in online
    assert "--llm openai-batch:m" in online
    assert paid_twice_online(machine.state, "other") is None
    server.finish()
    provider = machine.provider()
    await provider.recover(machine.keep, machine.find)
    assert [machine.cache[request_key(r)].text for r in requests] == ["re a", "re b"]
    assert provider.notice() is None
    assert paid_twice_online(machine.state, "m") is None
    assert server.sizes == [2]


@pytest.mark.parametrize("cancelled", [{0}, {3}, {0, 3}, {0, 2, 3}, {0, 1, 2}])
async def test_the_tasks_that_are_left_get_their_answers(
    cancelled: set[int], server: BatchServer, machine: Machine
):
    """Whichever of the tasks that wait are cancelled."""
    server.n_looks = 5
    provider, outcomes = machine.provider(), []
    scopes = [anyio.CancelScope() for _ in range(4)]

    async def complete(number: int) -> None:
        with scopes[number]:
            outcomes.append(await provider.complete(question(str(number))))

    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for number in range(4):
            tasks.start_soon(complete, number)
        while "look" not in server.calls:
            await anyio.sleep(0)
        for number in cancelled:
            scopes[number].cancel()
    assert sorted(texts(outcomes)) == [f"re {i}" for i in range(4) if i not in cancelled]
    assert server.sizes == [4]


async def test_answers_are_kept_before_any_task_has_them(server: BatchServer, machine: Machine):
    """A kill between the two loses none."""
    provider, seen = machine.provider(), []
    await provider.recover(machine.keep, machine.find)

    async def complete(text: str) -> None:
        await provider.complete(question(text))
        seen.append(len(machine.cache))

    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for text in "abc":
            tasks.start_soon(complete, text)
    assert seen == [3, 3, 3]


async def test_recovery_keeps_quiet_where_the_server_is_not_there(
    server: BatchServer, machine: Machine
):
    """A run whose answers are all in the cache needs no server."""
    await stopped_while_waiting(server, machine)
    server.faults["look"] = [httpx2.ConnectError("down")]
    provider = machine.provider()
    await provider.recover(machine.keep, machine.find)
    assert provider.under_way() == ("", 0.0)
    server.n_looks = 2
    assert texts(await ask(provider, [question("a")])) == ["re a"]
    assert server.sizes == [1]


async def stopped_while_waiting(server: BatchServer, machine: Machine) -> None:
    """A run that was stopped while its batch was under way."""
    server.n_looks = 10**9
    provider = machine.provider()
    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        tasks.start_soon(provider.complete, question("a"))
        while "look" not in server.calls:
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    await provider.aclose()


async def test_a_first_run_asks_no_server(server: BatchServer, machine: Machine):
    """Nothing to recover: nothing on the wire, no folder."""
    provider = machine.provider()
    await provider.recover(machine.keep)
    assert server.calls == []
    assert not machine.state.exists()


# -- two processes


async def test_two_processes_send_a_request_once(server: BatchServer, machine: Machine):
    """Both get all answers; the second waits for the first one's batch."""
    server.n_looks = 4
    first, second = machine.provider(), machine.provider()
    for provider in (first, second):
        await provider.recover(machine.keep, machine.find)
    both: list[list[Any]] = [[], []]

    async def run(number: int, provider: OpenAIBatchProvider, requests: list[Request]) -> None:
        both[number] = await ask(provider, requests)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, 0, first, [question(str(i)) for i in range(4)])
        tasks.start_soon(run, 1, second, [question(str(i)) for i in range(2, 6)])
    assert texts(both[0]) == [f"re {i}" for i in range(4)]
    assert texts(both[1]) == [f"re {i}" for i in range(2, 6)]
    server.finish()
    assert set(server.paid.values()) == {1}
    assert sum(server.sizes) == 6


async def test_what_another_process_has_bought_is_not_sent(server: BatchServer, machine: Machine):
    """Its batch may be done and forgotten by the time that ours is made."""
    provider = machine.provider()
    await provider.recover(machine.keep, machine.find)
    bought = Completion("from elsewhere", "m")
    machine.cache[request_key(question("a"))] = bought
    outcomes = await ask(provider, [question("a"), question("b")])
    assert texts(outcomes) == ["from elsewhere", "re b"]
    assert server.sizes == [1]


async def test_a_request_that_comes_in_the_last_moment_is_not_sent_twice(
    server: BatchServer, machine: Machine
):
    """It is in a batch of an earlier run, and joins while the next one is put together."""
    await stopped_while_waiting(server, machine)
    provider, answers = machine.provider(), []

    async def complete(text: str) -> None:
        answers.append(await provider.complete(question(text)))

    async def join() -> None:
        tasks.start_soon(complete, "a")
        await anyio.sleep(0.01)

    def find(keys: Sequence[str]) -> dict[str, Completion]:
        if server.sizes == [1] and not answers and request_key(question("a")) not in keys:
            from_thread.run(join)
        return {}

    await provider.recover(machine.keep, find)
    server.n_looks = 2
    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        tasks.start_soon(complete, "b")
    assert sorted(texts(answers)) == ["re a", "re b"]
    server.finish()
    assert set(server.paid.values()) == {1}
    assert server.sizes == [1, 1]


async def test_failed_lines_of_a_shared_batch_are_sent_again_once(
    server: BatchServer, machine: Machine
):
    """Both processes want them; one of them sends them."""
    server.line = lambda body, n: error(500) if n == 1 else fine(body, n)
    first, second = machine.provider(), machine.provider()
    for provider in (first, second):
        await provider.recover(machine.keep, machine.find)
    requests = [question(str(i)) for i in range(4)]
    both: list[list[Any]] = [[], []]

    async def run(number: int, provider: OpenAIBatchProvider) -> None:
        both[number] = await ask(provider, requests)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, 0, first)
        tasks.start_soon(run, 1, second)
    assert texts(both[0]) == texts(both[1]) == [f"re {i}" for i in range(4)]
    assert set(server.paid.values()) == {1}
    assert server.sizes == [4, 4]


async def test_sending_is_left_to_the_process_that_does_it(server: BatchServer, machine: Machine):
    """While it lives; when it has gone, the next one takes over."""
    provider, request = machine.provider(), question("a")
    lock = JobJournal(machine.state).lock()
    assert lock is not None
    await provider.recover(machine.keep, machine.find)
    outcomes: list[Any] = []

    async def run() -> None:
        outcomes.extend(await ask(provider, [request]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while len(machine.clock.slept) < 20:
            await anyio.sleep(0)
        assert server.calls == []
        lock.release()
    assert texts(outcomes) == ["re a"]
    assert server.sizes == [1]


async def test_a_batch_that_another_process_has_collected_is_forgotten(
    server: BatchServer, machine: Machine
):
    """Nothing of it is under way here any more."""
    await stopped_while_waiting(server, machine)
    second = machine.provider()
    await second.recover(machine.keep, machine.find)
    assert second.notice() is not None
    server.finish()
    await machine.provider().recover(machine.keep, machine.find)
    assert texts(await ask(second, [question("a")])) == ["re a"]
    assert second.notice() is None
    assert set(server.paid.values()) == {1}
