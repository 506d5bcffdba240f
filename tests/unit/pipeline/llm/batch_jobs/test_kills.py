"""Kills at every step: nothing is lost, and nothing is paid for twice."""

import tempfile
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.cache.key import request_key
from claimscore.errors import ConfigError
from claimscore.types import Request
from tests.fake_server import Body
from tests.support.batch_server import BatchServer, FileServer, Machine, MessageServer, ask, fine
from tests.support.virtual_time import VIRTUAL_TIME

pytestmark = pytest.mark.anyio

#: Calls of the server and writes to the disk that a run makes, before and after each.
N_STEPS = {"openai": 18, "anthropic": 16}


def three(machine: Machine) -> list[Request]:
    return [machine.question(text) for text in "abc"]


async def live(
    machine: Machine, requests: list[Request], kill_at: int | None = None, **options: Any
) -> list[Any]:
    """One process, from its start to its end or its kill; what it got for the missing requests."""
    outcomes = list[Any]()
    with machine.switched_on(kill_at):
        provider = machine.provider(**options)
        outcomes.extend(await ask(provider, machine.missing(requests)))
        await provider.aclose()
    return outcomes


def check(machine: Machine, requests: list[Request]) -> None:
    """Everything has arrived, was paid for once, and nothing is left behind."""
    for request in requests:
        text = request.messages[0].content
        assert machine.cache[request_key(request)].text == f"re {text}"
    machine.server.finish()
    assert machine.server.paid == dict.fromkeys(map(request_key, requests), 1)
    assert {path.name for path in machine.state.iterdir()} <= {"lock"}


@pytest.mark.parametrize("step", range(max(N_STEPS.values())))
async def test_a_kill_loses_nothing_and_pays_nothing_twice(
    step: int, server: BatchServer, machine: Machine
):
    if step >= N_STEPS[server.family]:
        return
    requests = three(machine)
    await live(machine, requests, kill_at=step)
    assert machine.dead
    await live(machine, requests)
    check(machine, requests)
    assert len(machine.server.batches) == 1


async def test_a_run_takes_no_more_steps(server: BatchServer, machine: Machine):
    requests = three(machine)
    await live(machine, requests)
    assert len(machine.steps) == N_STEPS[server.family]
    check(machine, requests)


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_batch_that_may_be_there_outlives_a_refusal(
    status: int, server: BatchServer, machine: Machine
):
    """Killed while it was created; then a run that the server would not talk to."""
    step, requests = N_STEPS[server.family] - 13, three(machine)
    await live(machine, requests, kill_at=step)
    assert machine.steps[step] == "after create"
    server.faults["list batches"] = [httpx2.Response(status)]
    with machine.switched_on():
        provider = machine.provider()
        outcomes = await ask(provider, requests)
        await provider.aclose()
    assert {isinstance(outcome, ConfigError) for outcome in outcomes} == {True}
    await live(machine, requests)
    check(machine, requests)
    assert len(server.batches) == 1


@settings(max_examples=40)
@given(
    kind=st.sampled_from([FileServer, MessageServer]),
    kills=st.lists(st.integers(0, 60), max_size=6),
    n_requests=st.integers(1, 5),
    max_requests=st.integers(1, 5),
    faults=st.lists(
        st.tuples(
            st.sampled_from(["upload", "create", "look", "download", "list batches"]),
            st.sampled_from(["lost", "500", "429", "page"]),
        ),
        max_size=5,
    ),
    expire=st.sets(st.integers(0, 4)),
    ends=st.lists(st.sampled_from(["completed", "expired", "cancelled"]), max_size=3),
    full=st.integers(0, 2),
)
def test_no_sequence_of_kills_and_faults_pays_twice(
    kind: type[BatchServer],
    kills: list[int],
    n_requests: int,
    max_requests: int,
    faults: list[tuple[str, str]],
    expire: set[int],
    ends: list[str],
    full: int,
):
    """Every line is executed once, unless it failed or expired; every answer arrives."""

    def line(body: Body, n_asked: int) -> Any:
        late = n_asked == 1 and int(body["messages"][0]["content"]) in expire
        return "batch_expired" if late else fine(body, n_asked)

    async def scenario(folder: Path) -> None:
        machine = Machine(kind(line), folder / "s")
        requests = [machine.question(str(number)) for number in range(n_requests)]
        machine.server.ends = list(ends)
        refusals = [{"code": "token_limit_exceeded", "message": "Enqueued"}] * full
        machine.server.judge = lambda bodies: [refusals.pop()] if refusals else []
        for call, fault in faults:
            machine.server.faults[call].append(
                {"500": httpx2.Response(500), "429": httpx2.Response(429)}.get(fault)
                or (httpx2.Response(200, text="<html>") if fault == "page" else "lost")
            )
        for kill_at in kills:
            await live(machine, requests, kill_at=kill_at, max_requests=max_requests)
        outcomes = await live(machine, requests, max_requests=max_requests)
        if "; delete the file to buy them again" in str(outcomes):
            assert set(machine.server.paid.values()) <= {1}  # several jobs may be the lost one
        else:
            check(machine, requests)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(scenario, Path(folder), backend_options=VIRTUAL_TIME[1])
