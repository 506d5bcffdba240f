"""Runs that stop and go on, and two at once: nothing is lost, nothing is paid twice."""

import anyio
import pytest

from claimscore.cache.key import request_key
from claimscore.types import Completion
from tests.support.batch_server import BatchServer, Machine, ask, ask_each, error, fine, texts

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("call", ["", "upload", "create", "look", "download"])
async def test_a_stop_ends_the_waiting_and_loses_nothing(
    call: str, server: BatchServer, machine: Machine
):
    """Wherever the batch is: no step that costs money is taken, the next run has all answers."""
    if call == "upload" and server.family != "openai":
        return  # there is no such step
    requests = [machine.question("a"), machine.question("b")]
    provider, was_created = machine.provider(), call not in ("", "upload")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, provider, requests)
        server.faults[call] = [tasks.cancel_scope.cancel]
        if not call:
            await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert was_created == len(server.batches)
    assert bool(provider.under_way()[0]) == was_created
    await provider.aclose()
    provider = machine.provider()
    await ask(provider, machine.missing(requests))
    assert texts([machine.cache[request_key(one)] for one in requests]) == ["re a", "re b"]
    assert len(server.batches) == 1


@pytest.mark.parametrize("cancelled", [{0}, {0, 3}, {0, 1, 2}])
async def test_the_tasks_that_are_left_get_their_answers(
    cancelled: set[int], server: BatchServer, machine: Machine
):
    server.n_looks = 5
    provider, outcomes = machine.provider(), []
    scopes = [anyio.CancelScope() for _ in range(4)]

    async def complete(number: int) -> None:
        with scopes[number]:
            outcomes.append(await provider.complete(machine.question(str(number))))

    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for number in range(4):
            tasks.start_soon(complete, number)
        while "look" not in server.calls:
            await anyio.sleep(0.01)
        for number in cancelled:
            scopes[number].cancel()
    assert sorted(texts(outcomes)) == [f"re {i}" for i in range(4) if i not in cancelled]
    assert server.sizes == [4]


@pytest.mark.parametrize("failing", [False, True], ids=["answered", "failed once"])
async def test_two_processes_send_a_request_once(
    failing: bool, server: BatchServer, machine: Machine
):
    server.n_looks = 4
    server.line = lambda body, n: error(500) if failing and n == 1 else fine(body, n)
    first, second = machine.provider(), machine.provider()
    requests = [machine.question(str(i)) for i in range(6)]
    both = await ask_each((first, requests[:4]), (second, requests[2:]))
    assert texts(both[0]) == [f"re {i}" for i in range(4)]
    assert texts(both[1]) == [f"re {i}" for i in range(2, 6)]
    server.finish()
    assert set(server.paid.values()) == {1}
    assert sum(server.sizes) == (12 if failing else 6)


async def test_what_another_process_has_bought_is_not_sent(server: BatchServer, machine: Machine):
    """Its batch may be done and forgotten by the time that ours is made."""
    provider = machine.provider()
    requests = [machine.question("a"), machine.question("b")]
    machine.cache[request_key(requests[0])] = Completion("from elsewhere", "m")
    assert texts(await ask(provider, requests)) == ["from elsewhere", "re b"]
    assert server.sizes == [1]
