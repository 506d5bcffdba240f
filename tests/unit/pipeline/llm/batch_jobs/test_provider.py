"""The batch provider: what is sent and when, and to whom the key goes."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import anyio
import httpx2
import pytest

from claimscore.cache.key import request_key
from claimscore.config import LLMConfig
from claimscore.errors import (
    AuthenticationError,
    ConfigError,
    OutageError,
    RejectedError,
)
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.types import Completion, Usage
from tests.support.batch_server import BatchServer, Machine, ask, error, question, texts

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"


# -- asking


async def test_requests_asked_together_are_one_batch(server: BatchServer, machine: Machine):
    """Each asks like an online request, and a request that is asked twice is in it once."""
    requests = [question("a \u2028 b"), question("b"), question("b")]
    outcomes = await ask(machine.provider(), requests)
    assert outcomes == [
        Completion("re a \u2028 b", "m-2026", "stop", Usage(7, 2)),
        *[Completion("re b", "m-2026", "stop", Usage(7, 2))] * 2,
    ]
    assert server.calls == ["upload", "create", "look", "look", "download"]
    (batch,) = server.batches.values()
    about, content = server.files[batch["input_file_id"]]
    assert about["filename"] == f"claimscore-{batch['metadata']['claimscore']}.jsonl"
    assert "\u2028" not in content.decode()
    first, second = map(json.loads, content.splitlines())
    assert [first["custom_id"], second["custom_id"]] == list(map(request_key, requests[:2]))
    assert first["body"] == {
        "model": "m",
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 256,
        "messages": [{"role": "user", "content": "a \u2028 b"}],
    }


async def test_keys_are_those_of_online_requests(machine: Machine):
    """A run may begin as a batch and end online: family and namespace are the same."""
    batch, online = machine.provider(), OpenAIProvider("m", base_url="https://api.example/v1")
    assert (batch.family, batch.namespace) == (online.family, online.namespace)


async def test_requests_that_come_while_others_are_collected_go_along(
    server: BatchServer, machine: Machine
):
    """A batch is sent when no new request has come for `linger_s`."""
    provider, outcomes = machine.provider(linger_s=2.0), []

    async def late(n_sleeps: int) -> None:
        for _ in range(n_sleeps):
            await machine.clock.sleep(0.5)
        outcomes.append(await provider.complete(question(str(n_sleeps))))

    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for n_sleeps in (0, 1, 2):
            tasks.start_soon(late, n_sleeps)
    assert server.sizes == [3]


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
    inputs = [content for about, content in server.files.values() if "claim" in about["filename"]]
    assert all(len(content) <= limits.get("max_bytes", 9999) for content in inputs)


async def test_a_request_larger_than_a_batch_fails_alone(machine: Machine):
    """It is a failure of its own; the others are answered."""
    requests = [question("x" * 900), question("b")]
    big, small = await ask(machine.provider(max_bytes=800), requests)
    assert isinstance(big, RejectedError)
    assert big.kind == "too_large"
    assert texts([small]) == ["re b"]


# -- keys and settings


@pytest.mark.parametrize("key", [f"{KEY}\n", None])
async def test_the_key_goes_to_the_server_and_nowhere_else(
    key: str | None,
    server: BatchServer,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """As a bearer; not into files, logs, answers or errors. Without a key there is no header.

    The SDK would send what the environment names.
    """
    for name in ("ADMIN_KEY", "API_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", "of-the-environment")
    caplog.set_level(logging.DEBUG)
    answer = {"choices": [{"message": {"content": f"Bearer {KEY}"}}], "model": KEY}
    refused = error(400, f"bad key {KEY}, Bearer {KEY}")
    server.line = lambda body, n: refused if "bad" in str(body) else answer
    kept: list[bytes] = []
    provider = machine.provider(key=key)
    provider.on_event = lambda kind, **fields: kept.extend(
        path.read_bytes() for path in machine.state.rglob("*") if path.is_file()
    )
    bad, good = await ask(provider, [question("bad"), question("good")])
    sent = {headers.get("authorization") for headers in server.headers}
    assert sent == ({f"Bearer {KEY}"} if key else {None})
    assert "of-the-environment" not in str([headers.raw for headers in server.headers])
    assert kept
    for words in (repr(provider), caplog.text, str(kept), *((str(bad), str(good)) if key else ())):
        assert KEY not in words


@pytest.mark.parametrize("key", [KEY, "a-word"])
async def test_the_key_is_in_no_error_of_a_call(key: str, server: BatchServer, machine: Machine):
    """Also where the server, or the transport, quotes it."""
    said = f"{key} (sk-proj-****mnop)"
    for fault in (httpx2.Response(403, json={"error": {"message": said}}), httpx2.ReadError(said)):
        server.faults["upload"] = [fault] * 99
        (outcome,) = await ask(machine.provider(key=key, max_outage_s=60.0), [question("a")])
        assert isinstance(outcome, AuthenticationError | OutageError)
        assert key not in str(outcome)
        assert "mnop" not in str(outcome)
        assert outcome.__suppress_context__ or outcome.__context__ is None


def test_a_key_is_not_sent_in_the_clear(machine: Machine):
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
    with pytest.raises(ConfigError, match="a batch is one server's"):
        load_provider(LLMConfig(model="openai-batch:m", base_url=["http://a", "http://b"]))


async def test_an_error_raised_for_many_grows_no_traceback(server: BatchServer, machine: Machine):
    """All who wait raise the same object."""
    server.faults["upload"] = [httpx2.Response(401)]
    first, *others = await ask(machine.provider(), [question(str(i)) for i in range(50)])
    assert all(other is first for other in others)
    assert len(traceback.extract_tb(first.__traceback__)) < 10
