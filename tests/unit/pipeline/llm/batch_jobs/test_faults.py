"""Batches whose calls fail, that are refused, or that leave requests without an answer."""

from typing import Any

import anyio
import httpx2
import pytest

from claimscore.errors import (
    AuthenticationError,
    ConfigError,
    OutageError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from claimscore.pipeline.llm.batch_jobs.server import NoSuchJobError, QueueFullError
from tests.fake_server import Body
from tests.support.batch_server import (
    BatchServer,
    FileServer,
    Machine,
    MessageServer,
    ask,
    error,
    fine,
    texts,
)

pytestmark = pytest.mark.anyio

OPENAI = pytest.mark.parametrize("server", [FileServer], indirect=True, ids=["openai"])
ANTHROPIC = pytest.mark.parametrize("server", [MessageServer], indirect=True, ids=["anthropic"])


def text_of(body: Body) -> str:
    return str(body["messages"][-1]["content"])


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
        pytest.param(httpx2.Response(200, text="<html>\n"), id="a page in lines"),
        pytest.param(httpx2.Response(200, json={}), id="an empty object"),
        pytest.param(httpx2.Response(200, json={"id": 7, "status": []}), id="odd fields"),
        pytest.param(httpx2.Response(200, content=b'{"custom_id": "x", "resp'), id="half a file"),
        pytest.param(httpx2.Response(200), id="nothing"),
    ],
)
async def test_a_call_that_fails_is_repeated_and_nothing_is_paid_twice(
    call: str, fault: Any, server: BatchServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    """Whether a batch was made is looked up, never guessed."""
    server.faults[call] = [fault]
    slept, sleep = list[float](), anyio.sleep

    async def sleeping(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(anyio, "sleep", sleeping)
    outcomes = await ask(machine.provider(), [machine.question("a"), machine.question("b")])
    assert texts(outcomes) == ["re a", "re b"]
    server.finish()
    assert set(server.paid.values()) == {1}
    assert server.sizes == [2]
    is_429 = getattr(fault, "status_code", 0) == 429
    if call == "create" and not isinstance(fault, httpx2.ConnectError):
        assert ("list batches" in server.calls) != is_429
    if is_429 and call in server.calls:
        assert any(7.0 <= seconds < 8.75 for seconds in slept)


@OPENAI
async def test_a_lost_batch_is_looked_for_after_a_while_and_on_all_pages(
    server: BatchServer, machine: Machine
):
    """The server's list may be behind, and others may have made batches since."""
    server.faults["create"] = ["lost"]
    created_at = 0.0

    def created(batch: Body) -> None:
        nonlocal created_at
        created_at = anyio.current_time()
        for _ in range(5):
            name = f"batch_{len(server.batches) + 100}"
            server.batches[name] = {**batch, "id": name, "metadata": None, "status": "cancelled"}

    server.created = created  # type: ignore[method-assign]
    assert texts(await ask(machine.provider(), [machine.question("a")])) == ["re a"]
    assert server.calls == ["upload", "create", *["list batches"] * 3, "look", "look", "download"]
    assert anyio.current_time() - created_at >= 15.0


@ANTHROPIC
async def test_a_lost_batch_without_a_name_is_the_one_with_as_many_requests(
    server: BatchServer, machine: Machine
):
    """Of those that were made since; one that turns out to be another's is no loss."""
    server.faults["create"] = ["lost"]
    before = {"request_counts": {"succeeded": 2}, "created_at": "1969-12-31T23:00:00Z"}
    server.batches["msgbatch_50"] = {"id": "msgbatch_50", "processing_status": "ended", **before}

    def created(batch: Body) -> None:
        for name in ("msgbatch_60", "msgbatch_70"):
            server.batches[name] = {**batch, "id": name, "request_counts": {"processing": 7}}

    server.created = created  # type: ignore[method-assign]
    requests = [machine.question("a"), machine.question("b")]
    assert texts(await ask(machine.provider(), requests)) == ["re a", "re b"]
    assert server.calls[:3] == ["create", "list batches", "list batches"]
    assert server.calls.count("create") == 1


@ANTHROPIC
@pytest.mark.parametrize(
    "odd", [{"created_at": "soon"}, {"request_counts": {"succeeded": "one"}}], ids=["time", "count"]
)
async def test_an_odd_list_is_fetched_again(odd: Body, server: BatchServer, machine: Machine):
    server.faults["create"] = ["lost"]
    server.faults["list batches"] = [httpx2.Response(200, json={"data": [odd]})]
    assert texts(await ask(machine.provider(), [machine.question("a")])) == ["re a"]
    assert server.sizes == [1]


@ANTHROPIC
async def test_another_batch_with_as_many_requests_is_no_loss(
    server: BatchServer, machine: Machine
):
    """It is taken for the lost one, its answers are passed by, and ours are asked for."""
    await ask(machine.provider(), [machine.question("of another program")])
    machine.cache.clear()
    server.faults["create"] = [httpx2.ReadTimeout("slow")]
    assert texts(await ask(machine.provider(), [machine.question("a")])) == ["re a"]
    assert [outcome.text for outcome in machine.cache.values()] == ["re a"]
    assert server.calls.count("create") == 3
    assert set(server.paid.values()) == {1}


@ANTHROPIC
async def test_two_batches_that_may_be_the_lost_one_stop_the_run(
    server: BatchServer, machine: Machine
):
    """One line says which, and what to do; nothing is bought twice."""
    server.faults["create"] = ["lost"]

    def created(batch: Body) -> None:
        server.batches["msgbatch_9"] = {**batch, "id": "msgbatch_9"}

    server.created = created  # type: ignore[method-assign]
    (outcome,) = await ask(machine.provider(), [machine.question("a")])
    (record,) = JobJournal(machine.state).read()
    assert isinstance(outcome, ConfigError)
    assert "may be msgbatch_9 or msgbatch_1" in str(outcome)
    assert str(machine.state / record.name) in str(outcome)


async def test_an_outage_is_waited_out_and_then_ends_the_run(server: BatchServer, machine: Machine):
    """`max_outage_s` bounds it; the batch stays and the next run collects it."""
    provider = machine.provider(max_outage_s=300.0)
    server.faults["look"] = [httpx2.ConnectError("down")] * 50
    (outcome,) = await ask(provider, [machine.question("a")])
    assert isinstance(outcome, OutageError)
    assert "down" in str(outcome)
    assert 150 < anyio.current_time() < 400
    server.faults.clear()
    assert texts(await ask(machine.provider(), [machine.question("a")])) == ["re a"]
    assert server.calls.count("create") == 1


def refused(status: int, **fields: str) -> httpx2.Response:
    headers = {"location": "https://b/v1"} if status == 307 else None
    return httpx2.Response(status, json={"error": fields}, headers=headers)


def judged(code: str) -> list[Body]:
    return [{"code": code, "message": "line 3"}]


NO_REASON = httpx2.Response(200, json={"id": "b", "status": "failed", "errors": {"data": []}})


@pytest.mark.parametrize(
    ("call", "fault", "expected", "words"),
    [
        ("upload", refused(401), AuthenticationError, "OPENAI_API_KEY"),
        ("create", refused(429, code="insufficient_quota"), QuotaError, "fill the account"),
        ("upload", refused(404), NoSuchJobError, "no Batch API there"),
        ("create", refused(400, message="window?"), ConfigError, "window"),
        ("upload", refused(307), ConfigError, "b/v1"),
        ("batch", judged("model_not_found"), UnknownModelError, "line 3"),
        ("batch", judged("billing_hard_limit_reached"), QuotaError, "line 3"),
        ("batch", judged("invalid_json_line"), ConfigError, "line 3"),
        ("look", NO_REASON, ConfigError, "no reason given"),
    ],
    ids=["key", "quota", "no API", "refused", "redirect", "model", "billing", "line", "no reason"],
)
@OPENAI
async def test_a_refused_call_or_batch_stops_the_run(
    call: str,
    fault: Any,
    expected: type[Exception],
    words: str,
    server: BatchServer,
    machine: Machine,
):
    """At once, in the server's words, for all who wait; nothing stays behind, as nothing was
    paid."""
    if call == "batch":
        server.judge = lambda items: fault
    else:
        server.faults[call] = [fault]
    outcomes = await ask(machine.provider(), [machine.question("a"), machine.question("b")])
    assert {type(outcome) for outcome in outcomes} == {expected}
    assert words in str(outcomes[0])
    assert JobJournal(machine.state).read() == []


async def test_a_batch_that_the_server_does_not_know_is_explained(
    server: BatchServer, machine: Machine
):
    """Another key, or deleted: it is not bought again without being asked to."""
    server.faults["look"] = [httpx2.Response(404, json={"error": {"message": "No such batch"}})]
    (outcome,) = await ask(machine.provider(), [machine.question("a")])
    (record,) = JobJournal(machine.state).read()
    assert isinstance(outcome, ConfigError)
    assert f"delete {machine.state / record.name}.json" in str(outcome)
    assert record.batch_id in str(outcome)


# -- lines that are no answers


OF_OPENAI: list[tuple[Any, type[Exception], str | None]] = [
    (error(400, code="content_filter"), RejectedError, "content_filter"),
    (error(400, "bad role"), RejectedError, "rejected"),
    (error(404, code="model_not_found"), UnknownModelError, None),
    (error(401), AuthenticationError, None),
    (error(429), RateLimitError, "rate_limit"),
    (error(429, "Too low", code="insufficient_quota"), QuotaError, None),
    (error(429, "Enqueued token limit reached"), QueueFullError, "rate_limit"),
    (error(500), TransientError, "status"),
    ((502, "<html>"), TransientError, "status"),
    ((200, None), TransientError, "body"),
    ("batch_expired", TransientError, "status"),
    ({"choices": []}, TransientError, "body"),
    (None, TransientError, "status"),
]
OF_ANTHROPIC: list[tuple[Any, type[Exception], str | None]] = [
    (error(400, "max_tokens: 9 > 8"), RejectedError, "rejected"),
    (error(401, "invalid x-api-key"), AuthenticationError, None),
    (error(404, "model: m"), UnknownModelError, None),
    (error(529, "Overloaded"), TransientError, "status"),
    ("expired", TransientError, "status"),
    ((200, None), TransientError, "body"),
]


@pytest.mark.parametrize(
    ("server", "outcome", "expected", "kind"),
    [(FileServer, *line) for line in OF_OPENAI] + [(MessageServer, *line) for line in OF_ANTHROPIC],
    indirect=["server"],
    ids=lambda value: str(value)[:50],
)
async def test_failed_lines_become_our_errors(
    outcome: Any, expected: type[Exception], kind: str | None, server: BatchServer, machine: Machine
):
    """By the rules for online errors; what may pass has been asked three times."""
    server.line = lambda body, n: outcome if text_of(body) == "bad" else fine(body, n)
    bad, good = await ask(machine.provider(), [machine.question("bad"), machine.question("good")])
    assert type(bad) is expected
    assert getattr(bad, "kind", None) == kind
    assert texts([good]) == ["re good"]
    n_tries = 3 if isinstance(bad, TransientError) else 1
    assert server.sizes == [2, 1, 1][:n_tries]


# -- dialects


@OPENAI
async def test_a_batch_refused_for_how_it_asks_is_asked_otherwise(
    server: BatchServer, machine: Machine
):
    """Each complaint teaches once, and counts as no failure; what was learnt is remembered."""

    def line(body: Body, n_asked: int) -> Any:
        for name in ("max_tokens", "temperature", "top_p"):
            if name in body:
                return error(400, f"Unsupported parameter: '{name}'", param=name)
        return fine(body, n_asked)

    server.line = line
    provider = machine.provider()
    outcomes = await ask(provider, [machine.question("a"), machine.question("b")])
    assert texts(outcomes) == ["re a", "re b"]
    assert texts(await ask(provider, [machine.question("c")])) == ["re c"]
    assert server.sizes == [2, 2, 2, 2, 1]
    assert server.bodies(3)[0].keys() == {"model", "messages", "max_completion_tokens"}


async def test_a_line_that_cannot_be_read_is_an_unanswered_request(
    server: BatchServer, machine: Machine
):
    """A file with a good end is not fetched again."""
    respond = server.respond

    def damaged(call: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        status, content = respond(call, path, query, body)
        if call == "download" and len(server.batches) == 1:
            first, _, rest = content.partition(b"\n")
            content = first[:-9] + b"\n" + rest
        return status, content

    server.respond = damaged  # type: ignore[method-assign]
    requests = [machine.question(text) for text in "abc"]
    assert texts(await ask(machine.provider(), requests)) == ["re a", "re b", "re c"]
    assert server.sizes == [3, 1]


# -- batches that are refused


def enqueued(n_allowed: int, server: BatchServer) -> None:
    """Let no more than so many requests wait, as a token limit would."""

    def judge(bodies: list[Body]) -> list[Body]:
        jobs = [job for job in server.batches.values() if job["status"] == "in_progress"]
        waiting = sum(len(server.items(job)) for job in jobs)
        if waiting + len(bodies) <= n_allowed:
            return []
        message = f"Enqueued token limit reached for m. Limit: {n_allowed} enqueued tokens."
        return [{"code": "token_limit_exceeded", "message": message, "line": None}]

    server.judge = judge


@OPENAI
async def test_a_batch_too_large_for_the_queue_is_halved(server: BatchServer, machine: Machine):
    """Until it fits; meanwhile it says why it waits."""
    server.n_looks = 4
    enqueued(2, server)
    provider, waits = machine.provider(), set[str]()
    respond = server.respond

    def seen(*call: Any) -> tuple[int, Any]:
        waits.add(provider.under_way()[0])
        return respond(*call)

    server.respond = seen  # type: ignore[method-assign]
    outcomes = await ask(provider, [machine.question(str(i)) for i in range(8)])
    assert texts(outcomes) == [f"re {i}" for i in range(8)]
    assert server.sizes[:2] == [8, 4]
    assert set(server.paid.values()) == {1}
    assert any("HTTP 400: Enqueued token limit" in words for words in waits)
