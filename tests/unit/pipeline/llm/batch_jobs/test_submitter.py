"""A batch comes to the server and to its end, though calls fail."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from claimscore.errors import AuthenticationError, ConfigError, OutageError, QuotaError
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from tests.fake_server import Body
from tests.support.batch_server import BatchServer, Machine, ask, question, texts

pytestmark = pytest.mark.anyio


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
        pytest.param(httpx2.Response(200, content=b'{"custom_id": "x", "resp'), id="half a file"),
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
    assert server.sizes == [2]
    if call == "create":
        assert "list batches" in server.calls
    if getattr(fault, "status_code", 0) == 429:
        assert any(7.0 <= slept < 8.0 for slept in machine.clock.slept)


async def test_a_lost_batch_is_looked_for_after_a_while_and_on_all_pages(
    server: BatchServer, machine: Machine
):
    """The server's list may be behind, and others may have made batches since."""
    server.faults["create"] = ["lost"]
    created_at = 0.0

    def created(batch: Body) -> None:
        nonlocal created_at
        created_at = machine.clock.now
        for _ in range(5):
            name = f"batch_{len(server.batches) + 100}"
            server.batches[name] = {**batch, "id": name, "metadata": None, "status": "cancelled"}

    server.created = created  # type: ignore[method-assign]
    assert texts(await ask(machine.provider(), [question("a")])) == ["re a"]
    assert server.calls == ["upload", "create", *["list batches"] * 3, "look", "look", "download"]
    assert machine.clock.now - created_at >= 15.0


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


def refused(status: int, **fields: str) -> httpx2.Response:
    headers = {"location": "https://b/v1"} if status == 307 else None
    return httpx2.Response(status, json={"error": fields}, headers=headers)


@pytest.mark.parametrize(
    ("call", "fault", "expected", "words"),
    [
        ("upload", refused(401), AuthenticationError, "OPENAI_API_KEY"),
        ("create", refused(429, code="insufficient_quota"), QuotaError, "fill the account"),
        ("upload", refused(404), ConfigError, "--llm openai:MODEL"),
        ("create", refused(400, message="window?"), ConfigError, "window"),
        ("upload", refused(307), ConfigError, "b/v1"),
    ],
    ids=["key", "quota", "no API", "refused", "redirect"],
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
    assert "batch_2" in str(outcome)


async def test_polling_slows_down(server: BatchServer, machine: Machine):
    """From five seconds to a minute."""
    server.n_looks = 12
    await ask(machine.provider(linger_s=0.0), [question("a")])
    polls = [slept for slept in machine.clock.slept if slept]
    assert polls[0] == 5.0
    assert polls == sorted(polls)
    assert polls[-1] == 60.0
