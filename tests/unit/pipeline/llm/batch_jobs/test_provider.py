"""The batch provider: what is sent and when, and to whom the key goes."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import anyio
import pytest

from claimscore.cache.key import request_key
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.types import Completion, Usage
from tests.support.batch_server import BatchServer, Machine, ask, error, question, texts

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"


async def test_requests_asked_together_are_one_batch(server: BatchServer, machine: Machine):
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
    outcomes = await ask(machine.provider(**limits), [question(str(i)) for i in range(5)])
    assert texts(outcomes) == [f"re {i}" for i in range(5)]
    assert server.sizes == sizes
    inputs = [content for about, content in server.files.values() if "claim" in about["filename"]]
    assert all(len(content) <= limits.get("max_bytes", 9999) for content in inputs)


async def test_a_request_larger_than_a_batch_fails_alone(machine: Machine):
    requests = [question("x" * 900), question("b")]
    big, small = await ask(machine.provider(max_bytes=800), requests)
    assert isinstance(big, RejectedError)
    assert big.kind == "too_large"
    assert texts([small]) == ["re b"]


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


def test_the_provider_is_made_of_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
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
