"""A batch comes to the server and to its end, though calls fail."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from claimscore.errors import (
    AuthenticationError,
    ConfigError,
    OutageError,
    QuotaError,
)
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from tests.support.batch_server import (
    BatchServer,
    Machine,
    ask,
    question,
    texts,
)

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"


@pytest.mark.parametrize("call", ["upload", "create", "look", "download"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("lost", id="answer lost"),
        pytest.param(httpx2.ConnectError("refused"), id="not reached"),
        pytest.param(httpx2.ReadTimeout("slow"), id="timeout"),
        pytest.param(httpx2.Response(500, json={}), id="500"),
        pytest.param(httpx2.Response(429, headers={"retry-after": "7"}, json={}), id="429"),
        pytest.param(httpx2.Response(200, text="<html>"), id="a page"),
        pytest.param(httpx2.Response(200, json={}), id="an empty object"),
    ],
)
async def test_a_call_that_fails_is_repeated_and_nothing_is_paid_twice(
    call: str, fault: Any, server: BatchServer, machine: Machine
):
    """Whether a batch was made is looked up, never guessed."""
    server.faults[call] = [fault]
    outcomes = await ask(machine.provider(), [question("a"), question("b")])
    assert texts(outcomes) == ["re a", "re b"]
    server.finish()
    assert set(server.paid.values()) == {1}
    if call == "create":
        assert "list batches" in server.calls
    if getattr(fault, "status_code", 0) == 429:
        assert any(7.0 <= slept < 8.0 for slept in machine.clock.slept)


async def test_a_lost_batch_is_looked_for_after_a_while_and_on_all_pages(
    server: BatchServer, machine: Machine
):
    """The server's list may be behind, and others may have made batches since."""
    server.faults["create"] = ["lost"]
    reply, waited = server._reply, 0.0

    def crowded(call: str, path: str, request: httpx2.Request) -> httpx2.Response:
        nonlocal waited
        answer = reply(call, path, request)
        if call == "create":
            for _ in range(5):
                other = server._create(
                    {"input_file_id": "file-1", "endpoint": "e", "metadata": None}
                )
                other["status"] = "cancelled"
            waited = -machine.clock.now
        if call == "list batches" and waited < 0:
            waited += machine.clock.now
        return answer

    server._reply = crowded  # type: ignore[method-assign]
    assert texts(await ask(machine.provider(), [question("a")])) == ["re a"]
    assert server.calls.count("create") == 1
    assert server.calls.count("list batches") == 3
    assert waited >= 15.0


async def test_an_outage_is_waited_out_and_then_ends_the_run(server: BatchServer, machine: Machine):
    """`max_outage_s` bounds it; the batch stays and the next run collects it."""
    provider = machine.provider(max_outage_s=300.0)
    server.faults["look"] = [httpx2.ConnectError("down")] * 50
    (outcome,) = await ask(provider, [question("a")])
    assert isinstance(outcome, OutageError)
    assert "down" in str(outcome)
    assert 150 < machine.clock.elapsed < 400
    server.faults.clear()
    assert texts(await ask(machine.provider(), [question("a")])) == ["re a"]
    assert server.calls.count("create") == 1


@pytest.mark.parametrize(
    ("call", "fault", "expected", "words"),
    [
        pytest.param(
            "upload", httpx2.Response(401), AuthenticationError, "OPENAI_API_KEY", id="401"
        ),
        pytest.param(
            "create",
            httpx2.Response(429, json={"error": {"code": "insufficient_quota", "message": "x"}}),
            QuotaError,
            "fill the account",
            id="quota",
        ),
        pytest.param(
            "upload", httpx2.Response(404), ConfigError, "--llm openai:MODEL", id="no API"
        ),
        pytest.param(
            "create",
            httpx2.Response(400, json={"error": {"message": "window?"}}),
            ConfigError,
            "window",
            id="refused",
        ),
        pytest.param(
            "upload",
            httpx2.Response(307, headers={"location": "https://b/v1"}),
            ConfigError,
            "b/v1",
            id="redirect",
        ),
    ],
)
async def test_a_refusal_to_take_a_batch_stops_the_run(
    call: str,
    fault: httpx2.Response,
    expected: type[Exception],
    words: str,
    server: BatchServer,
    machine: Machine,
):
    """At once, for all who wait; nothing stays behind, as nothing was paid."""
    server.faults[call] = [fault]
    outcomes = await ask(machine.provider(), [question("a"), question("b")])
    assert {type(outcome) for outcome in outcomes} == {expected}
    assert words in str(outcomes[0])
    assert JobJournal(machine.state).names() == []


async def test_a_batch_that_the_server_does_not_know_is_explained(
    server: BatchServer, machine: Machine
):
    """Another key, or deleted: it is not bought again without being asked to."""
    server.faults["look"] = [httpx2.Response(404, json={"error": {"message": "No such batch"}})]
    (outcome,) = await ask(machine.provider(), [question("a")])
    (name,) = JobJournal(machine.state).names()
    assert isinstance(outcome, ConfigError)
    assert f"delete {machine.state / name}" in str(outcome)
    assert "batch_1" in str(outcome)


async def test_a_broken_answer_file_is_fetched_again(server: BatchServer, machine: Machine):
    """A line that is none means that the file was not read whole."""
    server.faults["download"] = [httpx2.Response(200, content=b'{"custom_id": "x", "resp')]
    assert texts(await ask(machine.provider(), [question("a")])) == ["re a"]
    assert server.calls.count("download") == 2
    assert server.sizes == [1]


async def test_polling_slows_down(server: BatchServer, machine: Machine):
    """From five seconds to a minute."""
    server.n_looks = 12
    await ask(machine.provider(linger_s=0.0), [question("a")])
    polls = [slept for slept in machine.clock.slept if slept]
    assert polls[0] == 5.0
    assert polls == sorted(polls)
    assert polls[-1] == 60.0
