"""Kills at every step: nothing is lost, and nothing is paid for twice."""

from __future__ import annotations

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
from tests.support.batch_server import BatchServer, Machine, ask, fine, question
from tests.support.virtual_time import VIRTUAL_TIME

pytestmark = pytest.mark.anyio

REQUESTS = [question(text) for text in "abc"]

#: Calls of the server and writes to the disk that a run makes, before and after each.
N_STEPS = 20


async def live(
    machine: Machine, requests: list[Request], kill_at: int | None = None, **options: Any
) -> None:
    """One process, from its start to its end or its kill."""
    with machine.switched_on(kill_at):
        provider = machine.provider(**options)
        await provider.recover(machine.keep, machine.find)
        await ask(provider, machine.missing(requests))
        await provider.aclose()


def check(machine: Machine, requests: list[Request]) -> None:
    """Everything has arrived, was paid for once, and nothing is left behind."""
    for request in requests:
        text = request.messages[0].content
        assert machine.cache[request_key(request)].text == f"re {text}"
    machine.server.finish()
    assert machine.server.paid == dict.fromkeys(map(request_key, requests), 1)
    assert {path.name for path in machine.state.iterdir()} <= {"lock"}


@pytest.mark.parametrize("is_called", [True, False], ids=["by the same run", "without a caller"])
@pytest.mark.parametrize("step", range(N_STEPS))
async def test_a_kill_loses_nothing_and_pays_nothing_twice(
    step: int, is_called: bool, tmp_path: Path
):
    """Without a caller what was created is collected; nothing else is bought behind a run's back,
    and no text lies around."""
    machine = Machine(BatchServer(), tmp_path / "s")
    await live(machine, REQUESTS, kill_at=step)
    assert machine.dead
    if not is_called:
        machine.server.finish()
        was_created = bool(machine.server.batches)
        await live(machine, [])
        assert len(machine.server.batches) == was_created
        check(machine, REQUESTS if was_created else [])
    await live(machine, REQUESTS)
    check(machine, REQUESTS)
    assert len(machine.server.batches) == 1


async def test_a_run_takes_no_more_steps(tmp_path: Path):
    machine = Machine(BatchServer(), tmp_path / "s")
    await live(machine, REQUESTS)
    assert len(machine.steps) == N_STEPS
    check(machine, REQUESTS)


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_batch_that_may_be_there_outlives_a_refusal(status: int, tmp_path: Path):
    """Killed while it was created; then a run that the server would not talk to."""
    machine = Machine(BatchServer(), tmp_path / "s")
    await live(machine, REQUESTS, kill_at=7)
    assert machine.steps[7] == "after create"
    machine.server.faults["list batches"] = [httpx2.Response(status)] * 2
    with machine.switched_on():
        provider = machine.provider()
        await provider.recover(machine.keep, machine.find)
        outcomes = await ask(provider, REQUESTS)
        await provider.aclose()
    assert {isinstance(outcome, ConfigError) for outcome in outcomes} == {True}
    await live(machine, REQUESTS)
    check(machine, REQUESTS)
    assert len(machine.server.batches) == 1


@settings(max_examples=40)
@given(
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
    kills: list[int],
    n_requests: int,
    max_requests: int,
    faults: list[tuple[str, str]],
    expire: set[int],
    ends: list[str],
    full: int,
):
    """Every line is executed once, unless it failed or expired; every answer arrives."""
    requests = [question(str(number)) for number in range(n_requests)]

    def line(body: Body, n_asked: int) -> Any:
        late = n_asked == 1 and int(body["messages"][0]["content"]) in expire
        return "batch_expired" if late else fine(body, n_asked)

    async def scenario(folder: Path) -> None:
        machine = Machine(BatchServer(line), folder / "s")
        machine.server.ends = list(ends)
        refusals = [{"code": "token_limit_exceeded", "message": "Enqueued"}] * full
        machine.server.judge = lambda items: [refusals.pop()] if refusals else []
        for call, fault in faults:
            machine.server.faults[call].append(
                {"500": httpx2.Response(500), "429": httpx2.Response(429)}.get(fault)
                or (httpx2.Response(200, text="<html>") if fault == "page" else "lost")
            )
        for kill_at in kills:
            await live(machine, requests, kill_at=kill_at, max_requests=max_requests)
        await live(machine, requests, max_requests=max_requests)
        check(machine, requests)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(scenario, Path(folder), backend_options=VIRTUAL_TIME[1])
