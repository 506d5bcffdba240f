"""The batch provider: what is sent and when, and to whom the key goes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from tests.support.batch_server import BatchServer, Machine, ask, error, question, texts

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"


async def test_keys_are_those_of_online_requests(machine: Machine):
    """A run may begin as a batch and end online: family and namespace are the same."""
    batch, online = machine.provider(), OpenAIProvider("m", base_url="https://api.example/v1")
    assert (batch.family, batch.namespace) == (online.family, online.namespace)


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


async def test_a_request_is_one_line_for_every_program(server: BatchServer, machine: Machine):
    text = "a\r\n\u2028\u2029\x85\x0b\x0c\x1cb"
    assert texts(await ask(machine.provider(), [question(text)])) == [f"re {text}"]
    inputs = [content for about, content in server.files.values() if "claim" in about["filename"]]
    assert [len(content.decode().splitlines()) for content in inputs] == [1]


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
