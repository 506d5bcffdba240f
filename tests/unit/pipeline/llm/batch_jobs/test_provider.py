"""The batch provider: what is sent and when, and to whom the key goes."""

import dataclasses
import logging

import pytest

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.llm.batch_jobs import provider as provider_module
from claimscore.pipeline.llm.batch_jobs.provider import BatchProvider
from claimscore.pipeline.llm.providers.base import load_provider
from tests.support.batch_server import BASE_URL, BatchServer, FileServer, Machine, ask, error, texts

pytestmark = pytest.mark.anyio

OPENAI = pytest.mark.parametrize("server", [FileServer], indirect=True, ids=["openai"])

KEY = "sk-proj-abcdefghijklmnop"


async def test_keys_are_those_of_online_requests(server: BatchServer, machine: Machine):
    """A run may begin as a batch and end online: family and namespace are the same."""
    batch, online = machine.provider(), server.online("m", base_url=BASE_URL)
    assert (batch.family, batch.namespace) == (online.family, online.namespace)


@pytest.mark.parametrize(
    ("max_requests", "max_bytes", "sizes"),
    [
        pytest.param(2, 9999, [2, 2, 1], id="requests"),
        pytest.param(9, 4000, [3, 2], id="bytes"),
        pytest.param(9, 9999, [5], id="none reached"),
    ],
)
async def test_a_batch_keeps_the_servers_limits(
    max_requests: int,
    max_bytes: int,
    sizes: list[int],
    server: BatchServer,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(provider_module, "MAX_BYTES", max_bytes)
    requests = [machine.question(str(i).zfill(999)) for i in range(5)]
    outcomes = await ask(machine.provider(max_requests=max_requests), requests)
    assert texts(outcomes) == [f"re {i:0999}" for i in range(5)]
    assert server.sizes == sizes


async def test_a_batch_is_for_one_model(server: BatchServer, machine: Machine):
    requests = [machine.question("a"), machine.question("b")]
    requests.append(dataclasses.replace(requests[0], model="another"))
    assert texts(await ask(machine.provider(), requests)) == ["re a", "re b", "re a"]
    assert [{body["model"] for body in server.bodies(n)} for n in (0, 1)] == [{"m"}, {"another"}]


@OPENAI
async def test_a_request_is_one_line_for_every_program(server: FileServer, machine: Machine):
    text = "a\r\n\u2028\u2029\x85\x0b\x0c\x1cb"
    assert texts(await ask(machine.provider(), [machine.question(text)])) == [f"re {text}"]
    inputs = [content for about, content in server.files.values() if "claim" in about["filename"]]
    assert [len(content.decode().splitlines()) for content in inputs] == [1]


async def test_a_request_larger_than_a_batch_fails_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(provider_module, "MAX_BYTES", 800)
    requests = [machine.question("x" * 900), machine.question("b")]
    big, small = await ask(machine.provider(), requests)
    assert isinstance(big, RejectedError)
    assert big.kind == "too_large"
    assert texts([small]) == ["re b"]


@OPENAI
@pytest.mark.parametrize("key", [f"{KEY}\n", None])
async def test_the_key_goes_to_the_server_and_nowhere_else(
    key: str | None, server: BatchServer, machine: Machine, caplog: pytest.LogCaptureFixture
):
    """As a bearer; not into files, logs, answers or errors. Without a key there is no header."""
    caplog.set_level(logging.DEBUG)
    answer = {"choices": [{"message": {"content": f"Bearer {KEY}"}}], "model": KEY}
    refused = error(400, f"bad key {KEY}, Bearer {KEY}")
    server.line = lambda body, n: refused if "bad" in str(body) else answer
    kept: list[bytes] = []
    server.faults["look"] = [
        lambda: kept.extend(path.read_bytes() for path in machine.state.rglob("*.json"))
    ]
    provider = machine.provider(key=key)
    bad, good = await ask(provider, [machine.question("bad"), machine.question("good")])
    sent = {headers.get("authorization") for headers in server.headers}
    assert sent == ({f"Bearer {KEY}"} if key else {None})
    assert kept
    for words in (repr(provider), caplog.text, str(kept), *((str(bad), str(good)) if key else ())):
        assert KEY not in words


def test_the_provider_is_made_of_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    made = load_provider(LLMConfig(model="openai-batch:m", base_url="https://x.example/v1"))
    assert isinstance(made, BatchProvider)
    assert (made.family, made.model, made.namespace) == ("openai", "m", "https://x.example/v1")
    for bare in ("openai-batch", "openai-batch:"):
        with pytest.raises(ConfigError, match="openai-batch:"):
            load_provider(LLMConfig(model=bare))
    with pytest.raises(ConfigError, match="a batch is one server's"):
        load_provider(LLMConfig(model="openai-batch:m", base_url=["http://a", "http://b"]))
    with pytest.raises(ConfigError, match="it is builtin alone"):
        load_provider(LLMConfig(model="builtin-batch:m"))
