"""The batch provider: what is sent and when, and what becomes of the answers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from claimscore.cache.key import request_key
from claimscore.config import LLMConfig
from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    OutageError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.providers.batch.files import BatchFolder, paid_twice_online
from claimscore.pipeline.llm.providers.batch.lines import input_line
from claimscore.pipeline.llm.providers.dialect import Dialect
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.providers.openai_batch import OpenAIBatchProvider
from claimscore.types import Completion, Request, Usage
from tests.pipeline.llm.providers.batch_server import (
    BatchServer,
    Body,
    Machine,
    ask,
    fine,
    question,
    texts,
)

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> BatchServer:
    return BatchServer()


@pytest.fixture
def machine(server: BatchServer, tmp_path: Path) -> Machine:
    return Machine(server, tmp_path / "batches")


def error(status: int, message: str = "no", **fields: Any) -> tuple[int, Body]:
    return status, {"error": {"message": message, **fields}}


# -- asking


async def test_requests_asked_together_are_one_batch(server: BatchServer, machine: Machine):
    """One file, one batch; every answer whole and with its usage."""
    provider = machine.provider()
    outcomes = await ask(provider, [question("a"), question("b")])
    assert outcomes == [
        Completion("re a", "m-2026", "stop", Usage(7, 2)),
        Completion("re b", "m-2026", "stop", Usage(7, 2)),
    ]
    assert server.calls == ["upload", "create", "look", "look", "download"]
    await provider.aclose()


async def test_a_line_asks_like_an_online_request(server: BatchServer, machine: Machine):
    """The body is that of the online provider; the request's key is the line's name."""
    request = question("a \u2028 b")
    await ask(machine.provider(), [request])
    ((name, content), *_) = server.files.values()
    assert content.count(b"\n") == 1
    assert "\u2028" not in content.decode()
    assert json.loads(content) == {
        "custom_id": request_key(request),
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "m",
            "temperature": 0.0,
            "top_p": 1.0,
            "max_tokens": 256,
            "messages": [{"role": "user", "content": "a \u2028 b"}],
        },
    }
    (batch,) = server.batches.values()
    assert batch["endpoint"] == "/v1/chat/completions"
    assert name == f"claimscore-{batch['metadata']['claimscore']}.jsonl"


async def test_keys_are_those_of_online_requests(machine: Machine):
    """A run may begin as a batch and end online: family and namespace are the same."""
    batch, online = machine.provider(), OpenAIProvider("m", base_url="https://api.example/v1")
    assert (batch.family, batch.namespace) == (online.family, online.namespace)


async def test_a_request_asked_twice_is_sent_once(server: BatchServer, machine: Machine):
    """Both get the answer."""
    outcomes = await ask(machine.provider(), [question("a"), question("a")])
    assert texts(outcomes) == ["re a", "re a"]
    assert server.sizes == [1]


async def test_those_who_come_while_others_are_collected_go_along(
    server: BatchServer, machine: Machine
):
    """A batch is sent when nobody new has come for `linger_s`."""
    provider, outcomes = machine.provider(linger_s=2.0), []

    async def late(n_sleeps: int) -> None:
        for _ in range(n_sleeps):
            await machine.clock.sleep(0.5)
        outcomes.append(await provider.complete(question(str(n_sleeps))))

    async with anyio.create_task_group() as tasks:
        for n_sleeps in (0, 1, 2):
            tasks.start_soon(late, n_sleeps)
    assert server.sizes == [3]
    assert machine.clock.slept[:1] != [0.0]


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        pytest.param({"max_requests": 2}, [2, 2, 1], id="requests"),
        pytest.param({"max_bytes": 800}, [3, 2], id="bytes"),
        pytest.param({}, [5], id="none reached"),
    ],
)
async def test_a_batch_keeps_the_servers_limits(
    limits: dict[str, int], sizes: list[int], server: BatchServer, machine: Machine
):
    """What does not fit goes into the next; nothing is lost or asked twice."""
    outcomes = await ask(machine.provider(**limits), [question(str(i)) for i in range(5)])
    assert texts(outcomes) == [f"re {i}" for i in range(5)]
    assert server.sizes == sizes
    assert all(len(content) <= limits.get("max_bytes", 9999) for _, content in inputs(server))


def inputs(server: BatchServer) -> list[tuple[str, bytes]]:
    return [file for file in server.files.values() if file[0].startswith("claimscore-")]


async def test_a_request_larger_than_a_batch_fails_alone(machine: Machine):
    """It is a failure of its own; the others are answered."""
    requests = [question("x" * 900), question("b")]
    big, small = await ask(machine.provider(max_bytes=800), requests)
    assert isinstance(big, RejectedError)
    assert big.kind == "too_large"
    assert texts([small]) == ["re b"]


# -- lines that are no answers


@pytest.mark.parametrize(
    ("outcome", "expected", "kind"),
    [
        pytest.param(error(400, code="context_length_exceeded"), RejectedError, "context_length"),
        pytest.param(error(400, code="content_filter"), RejectedError, "content_filter"),
        pytest.param(error(400, "bad role"), RejectedError, "rejected"),
        pytest.param(error(429, code="insufficient_quota"), QuotaError, None),
        pytest.param(error(400, code="billing_hard_limit_reached"), QuotaError, None),
        pytest.param(error(404, code="model_not_found"), UnknownModelError, None),
        pytest.param(error(401), AuthenticationError, None),
        pytest.param(error(403, "region"), AuthenticationError, None),
        pytest.param(error(429), RateLimitError, "rate_limit"),
        pytest.param(error(500), TransientError, "status"),
        pytest.param("request_timeout", TransientError, "timeout"),
        pytest.param("batch_expired", TransientError, "status"),
        pytest.param({"choices": []}, TransientError, "body"),
        pytest.param(None, TransientError, "status"),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_failed_lines_become_our_errors(
    outcome: Any, expected: type[Exception], kind: str | None, server: BatchServer, machine: Machine
):
    """By the rules for online errors; what may pass has been asked three times."""
    server.line = lambda body, n: (
        outcome if body["messages"][0]["content"] == "bad" else fine(body, n)
    )
    bad, good = await ask(machine.provider(), [question("bad"), question("good")])
    assert type(bad) is expected
    assert getattr(bad, "kind", None) == kind
    assert texts([good]) == ["re good"]
    n_tries = 3 if isinstance(bad, TransientError) else 1
    assert server.sizes == [2, 1, 1][:n_tries]


async def test_a_failed_line_is_tried_again_in_the_next_batch(
    server: BatchServer, machine: Machine
):
    """The others are not asked again."""
    server.line = lambda body, n: error(500) if n == 1 else fine(body, n)
    first = server.line
    server.line = lambda body, n: (first if body["messages"][0]["content"] == "a" else fine)(
        body, n
    )
    assert texts(await ask(machine.provider(), [question("a"), question("b")])) == ["re a", "re b"]
    assert server.sizes == [2, 1]
    assert set(server.paid.values()) == {1}


@pytest.mark.parametrize("end", ["expired", "cancelled"])
async def test_a_batch_that_ends_early_keeps_its_answers(
    end: str, server: BatchServer, machine: Machine
):
    """What it has is used, the rest is sent again."""
    server.ends = [end]
    server.line = lambda body, n: (
        f"batch_{end}" if n == 1 and body["messages"][0]["content"] > "2" else fine(body, n)
    )
    outcomes = await ask(machine.provider(), [question(str(i)) for i in range(6)])
    assert texts(outcomes) == [f"re {i}" for i in range(6)]
    assert server.sizes == [6, 3]
    assert set(server.paid.values()) == {1}


async def test_a_spent_quota_loses_no_answer_and_sends_nothing_more(
    server: BatchServer, machine: Machine
):
    """The answers of the batch arrive; who asks from then on gets the reason at once."""
    server.line = lambda body, n: (
        error(429, code="insufficient_quota")
        if body["messages"][0]["content"] == "b"
        else (error(500) if body["messages"][0]["content"] == "c" else fine(body, n))
    )
    provider = machine.provider()
    good, bad, again = await ask(provider, [question("a"), question("b"), question("c")])
    assert texts([good]) == ["re a"]
    assert isinstance(bad, QuotaError)
    assert isinstance(again, QuotaError)
    with pytest.raises(QuotaError):
        await provider.complete(question("d"))
    assert server.sizes == [3]


async def test_after_a_stop_nothing_is_sent_again(server: BatchServer, machine: Machine):
    """A batch that ends later gives out its answers, and its failures get the reason."""
    server.looks = {1: 9}
    server.line = lambda body, n: (
        error(429, code="insufficient_quota")
        if "a" in body["messages"][0]["content"]
        else error(500)
    )
    outcomes = await ask(machine.provider(max_requests=1), [question("a"), question("b")])
    assert [type(outcome) for outcome in outcomes] == [QuotaError, QuotaError]
    assert server.sizes == [1, 1]


# -- dialects


async def test_a_batch_refused_for_how_it_asks_is_asked_otherwise(
    server: BatchServer, machine: Machine
):
    """Each complaint teaches once; what was learnt is remembered and told."""

    def line(body: Body, n_asked: int) -> Any:
        for name in ("max_tokens", "temperature"):
            if name in body:
                return error(400, f"Unsupported parameter: '{name}'", param=name)
        return fine(body, n_asked)

    server.line = line
    told: list[Dialect] = []
    provider = machine.provider()
    provider.on_dialect = told.append
    outcomes = await ask(provider, [question("a"), question("b")])
    assert texts(outcomes) == ["re a", "re b"]
    assert server.sizes == [2, 2, 2]
    assert server.bodies(2)[0]["max_completion_tokens"] == 256
    assert told == [
        Dialect(limit_field="max_completion_tokens"),
        Dialect(limit_field="max_completion_tokens", omitted=frozenset({"temperature"})),
    ]
    assert provider.dialect == told[-1]


async def test_one_complaint_among_answers_teaches_nothing(server: BatchServer, machine: Machine):
    """The others were answered in this dialect: it is that request's own fault."""
    complaint = error(400, "Unsupported parameter: 'max_tokens'", param="max_tokens")
    server.line = lambda body, n: complaint if "bad" in str(body) else fine(body, n)
    provider = machine.provider()
    bad, _ = await ask(provider, [question("bad"), question("good")])
    assert isinstance(bad, RejectedError)
    assert provider.dialect == Dialect()


async def test_a_known_dialect_is_used_from_the_start(server: BatchServer, machine: Machine):
    """What was learnt online need not be learnt again."""
    provider = machine.provider()
    provider.dialect = Dialect(limit_field="max_completion_tokens")
    await ask(provider, [question("a")])
    assert "max_completion_tokens" in server.bodies(0)[0]


# -- batches that are refused


def enqueued(n_allowed: int, server: BatchServer) -> None:
    """Let no more than so many requests wait, as a token limit would."""

    def judge(items: list[Body]) -> list[Body]:
        waiting = sum(
            len(server._items(batch))
            for batch in server.batches.values()
            if batch["status"] == "in_progress"
        )
        if waiting + len(items) <= n_allowed:
            return []
        message = f"Enqueued token limit reached for m. Limit: {n_allowed} enqueued tokens."
        return [{"code": "token_limit_exceeded", "message": message, "line": None}]

    server.judge = judge


async def test_a_batch_too_large_for_the_queue_is_halved(server: BatchServer, machine: Machine):
    """Until it fits; meanwhile it says why it waits."""
    server.n_looks = 4
    enqueued(2, server)
    events: list[tuple[str, dict[str, Any]]] = []
    provider = machine.provider()
    troubles: set[str] = set()

    def on_event(kind: str, **fields: Any) -> None:
        events.append((kind, fields))
        troubles.add(provider.progress().trouble)

    provider.on_event = on_event
    outcomes = await ask(provider, [question(str(i)) for i in range(8)])
    assert texts(outcomes) == [f"re {i}" for i in range(8)]
    assert server.sizes[:3] == [8, 4, 2]
    assert set(server.paid.values()) == {1}
    assert any("Enqueued token limit" in trouble for trouble in troubles)
    refused = [fields for kind, fields in events if kind == "batch refused"]
    assert "Enqueued token limit" in refused[0]["reason"]
    assert max(machine.clock.slept) <= 60.0


async def test_a_full_queue_is_waited_for_while_ours_is_in_it(
    server: BatchServer, machine: Machine
):
    """The second batch is not made smaller: it is sent when the first one is done."""
    server.n_looks = 4
    enqueued(4, server)
    outcomes = await ask(machine.provider(max_requests=4), [question(str(i)) for i in range(8)])
    assert texts(outcomes) == [f"re {i}" for i in range(8)]
    assert server.sizes == [4, 4, 4]
    assert set(server.paid.values()) == {1}


async def test_a_queue_that_stays_full_ends_the_patience(server: BatchServer, machine: Machine):
    """Not for ever: an hour by default, then the run can be taken up again."""
    enqueued(0, server)
    (outcome,) = await ask(machine.provider(max_outage_s=600.0), [question("a")])
    assert isinstance(outcome, OutageError)
    assert "Enqueued token limit" in str(outcome)
    assert machine.clock.elapsed < 2000
    assert not list(BatchFolder(machine.state).names())


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param({"code": "model_not_found", "message": "no m"}, UnknownModelError, id="model"),
        pytest.param(
            {"code": "billing_hard_limit_reached", "message": "pay"}, QuotaError, id="billing"
        ),
        pytest.param({"code": "invalid_json_line", "message": "line 3"}, ConfigError, id="ours"),
    ],
)
async def test_a_refused_batch_stops_the_run(
    fault: Body, expected: type[Exception], server: BatchServer, machine: Machine
):
    """In the server's words; no request of it is a failure row, and none waits for ever."""
    server.judge = lambda items: [fault]
    outcomes = await ask(machine.provider(), [question("a"), question("b")])
    assert {type(outcome) for outcome in outcomes} == {expected}
    assert fault["message"] in str(outcomes[0])
    assert BatchFolder(machine.state).names() == []


async def test_a_batch_refused_for_the_servers_own_trouble_is_sent_again(
    server: BatchServer, machine: Machine
):
    """Three times at most."""
    server.judge = lambda items: [{"code": "server_error", "message": "try again"}]
    (outcome,) = await ask(machine.provider(), [question("a")])
    assert isinstance(outcome, TransientError)
    assert server.sizes == [1, 1, 1]


# -- calls that fail


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
    assert BatchFolder(machine.state).names() == []


async def test_a_batch_that_the_server_does_not_know_is_explained(
    server: BatchServer, machine: Machine
):
    """Another key, or deleted: it is not bought again without being asked to."""
    server.faults["look"] = [httpx2.Response(404, json={"error": {"message": "No such batch"}})]
    (outcome,) = await ask(machine.provider(), [question("a")])
    (name,) = BatchFolder(machine.state).names()
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


# -- stopping and going on


async def test_what_was_not_sent_when_stopped_is_not_sent(server: BatchServer, machine: Machine):
    """Cancelled while it is collected: nothing was spent, nothing is said."""
    provider = machine.provider(sleep=anyio.sleep)
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
            while not provider.progress().collecting:
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
        for request in requests:
            tasks.start_soon(provider.complete, request)
        while server.calls.count("look") < 3:
            await anyio.sleep(0)
        progress, (words, seconds) = provider.progress(), provider.under_way()
        tasks.cancel_scope.cancel()
    await provider.aclose()
    assert provider.notice() == (
        "2 requests are in batch batch_1, which goes on; "
        "run the same command to collect the answers"
    )
    assert (progress.batches, progress.requests, progress.collecting) == (1, 2, 0)
    assert progress.oldest_s > 5
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
async def test_whoever_is_left_takes_over(
    cancelled: set[int], server: BatchServer, machine: Machine
):
    """The task that does the work for all may be cancelled, and its heir at the same time."""
    server.n_looks = 5
    provider, outcomes = machine.provider(), []
    scopes = [anyio.CancelScope() for _ in range(4)]

    async def complete(number: int) -> None:
        with scopes[number]:
            outcomes.append(await provider.complete(question(str(number))))

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(complete, number)
        while "look" not in server.calls:
            await anyio.sleep(0)
        for number in cancelled:
            scopes[number].cancel()
    assert sorted(texts(outcomes)) == [f"re {i}" for i in range(4) if i not in cancelled]
    assert server.sizes == [4]


async def test_answers_are_kept_before_anybody_has_them(server: BatchServer, machine: Machine):
    """A kill between the two loses none."""
    provider, seen = machine.provider(), []
    await provider.recover(machine.keep, machine.find)

    async def complete(text: str) -> None:
        await provider.complete(question(text))
        seen.append(len(machine.cache))

    async with anyio.create_task_group() as tasks:
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
    assert "down" in provider.progress().trouble
    server.n_looks = 2
    assert texts(await ask(provider, [question("a")])) == ["re a"]
    assert server.sizes == [1]


async def stopped_while_waiting(server: BatchServer, machine: Machine) -> None:
    """A run that was stopped while its batch was under way."""
    server.n_looks = 10**9
    provider = machine.provider()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.complete, question("a"))
        while "look" not in server.calls:
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    await provider.aclose()


async def test_a_first_run_asks_nobody(server: BatchServer, machine: Machine):
    """Nothing to recover: nothing on the wire, no SDK, no folder."""
    provider = machine.provider()
    await provider.recover(machine.keep)
    assert server.calls == []
    assert provider._lazy_api is None
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


async def test_a_batch_is_left_to_the_process_that_sends_it(server: BatchServer, machine: Machine):
    """While it lives; when it has gone, whoever needs the batch takes over."""
    second = machine.provider()
    folder = BatchFolder(machine.state, now=machine.clock)
    folder.make()
    request = question("a")
    lines = [(request_key(request), input_line(request_key(request), request, Dialect()))]
    prepared = folder.prepare(lines, model="m", dialect={}, max_bytes=9999)
    assert prepared is not None
    outcomes: list[Any] = []
    folder.moved(prepared.state, "creating")
    await second.recover(machine.keep, machine.find)
    assert server.calls == []
    folder.moved(prepared.state, "prepared")

    async def run() -> None:
        outcomes.extend(await ask(second, [request]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while len(machine.clock.slept) < 20:
            await anyio.sleep(0)
        assert server.calls == []
        prepared.lock.release()
    assert texts(outcomes) == ["re a"]
    assert server.sizes == [1]


# -- keys and settings


async def test_the_key_goes_to_the_server_and_nowhere_else(
    server: BatchServer,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """As a bearer; not into files, logs, answers or errors; the environment's names stay there."""
    for name in ("OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-the-environment")
    caplog.set_level(logging.DEBUG)
    server.n_looks = 3
    server.line = lambda body, n: (
        error(400, f"bad key {KEY}, Bearer {KEY}")
        if "bad" in str(body)
        else {"choices": [{"message": {"content": f"Bearer {KEY}"}}], "model": KEY}
    )
    kept: list[bytes] = []
    provider = machine.provider(key=f"{KEY}\n")
    provider.on_event = lambda kind, **fields: kept.extend(
        path.read_bytes() for path in machine.state.rglob("*") if path.is_file()
    )
    bad, good = await ask(provider, [question("bad"), question("good")])
    assert isinstance(good, Completion)
    assert (good.text, good.model) == ("Bearer [key]", "[key]")
    assert {headers.get("authorization") for headers in server.headers} == {f"Bearer {KEY}"}
    assert not any("of-the-environment" in str(headers.raw) for headers in server.headers)
    assert kept
    for words in (str(bad), repr(provider), caplog.text, str(kept)):
        assert KEY not in words


def quoting(key: str) -> list[Any]:
    said = {"error": {"message": f"{key} (sk-proj-****mnop)"}}
    return [
        httpx2.Response(403, json=said),
        httpx2.ConnectError(f"no route: {key} sk-proj-****mnop"),
    ]


@pytest.mark.parametrize("fault", [0, 1], ids=["refused", "down"])
@pytest.mark.parametrize("key", [KEY, "a-word"])
async def test_the_key_is_in_no_error_of_a_call(
    fault: int, key: str, server: BatchServer, machine: Machine
):
    """Also where the server, or the transport, quotes it."""
    server.faults["upload"] = [quoting(key)[fault]] * 99
    (outcome,) = await ask(machine.provider(key=key, max_outage_s=60.0), [question("a")])
    assert isinstance(outcome, AuthenticationError | OutageError)
    assert "[key]" in str(outcome)
    assert key not in str(outcome)
    assert "mnop" not in str(outcome)
    assert outcome.__suppress_context__


async def test_a_server_without_a_key_works_without_one(
    server: BatchServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    """No Authorization header at all, whatever the environment has."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", KEY)
    assert texts(await ask(machine.provider(), [question("a")])) == ["re a"]
    assert all("authorization" not in headers for headers in server.headers)
    assert not any(KEY in str(headers.raw) for headers in server.headers)


def test_a_key_is_not_sent_in_the_clear(machine: Machine):
    """The rule of online requests."""
    with pytest.raises(ConfigError, match="--allow-http-key"):
        machine.provider(base_url="http://example.org/v1", key=KEY)


def test_the_provider_is_made_of_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Like the online one; its state lies in the cache's folder."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path))
    made = load_provider(LLMConfig(model="openai-batch:m", base_url="https://x.example/v1"))
    assert isinstance(made, OpenAIBatchProvider)
    assert (made.family, made.model, made.namespace) == ("openai", "m", "https://x.example/v1")
    assert made.state.parent == tmp_path / "batches"
    made.state = tmp_path / "elsewhere"
    assert made.state == tmp_path / "elsewhere"
    for bare in ("openai-batch", "openai-batch:"):
        with pytest.raises(ConfigError, match="openai-batch:"):
            load_provider(LLMConfig(model=bare))


async def test_state_is_private(server: BatchServer, machine: Machine):
    """It holds people's texts."""
    await ask(machine.provider(), [question("a")])
    assert machine.state.stat().st_mode & 0o777 == 0o700


async def test_an_error_raised_for_many_grows_no_traceback(server: BatchServer, machine: Machine):
    """All who wait raise the same object."""
    server.faults["upload"] = [httpx2.Response(401)]
    outcomes = await ask(machine.provider(), [question(str(i)) for i in range(50)])
    assert len({id(outcome) for outcome in outcomes}) == 1
    (one,) = {id(outcome): outcome for outcome in outcomes}.values()
    assert isinstance(one, ClaimscoreError)
    depth, traceback = 0, one.__traceback__
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 10
