"""What each provider promises, whatever it asks: the same tests for all of `PROVIDERS`.

The fake server speaks the documented protocol of each vendor.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from claimscore.config import LLMConfig
from claimscore.errors import (
    AskAgain,
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.providers.base import (
    PROVIDERS,
    Collecting,
    Provider,
    load_provider,
    provider_class,
)
from claimscore.pipeline.llm.question import Answer
from claimscore.prompts import load_prompt
from claimscore.types import Completion, Message, OutputSchema, Request, Usage
from tests.fake_server import FakeServer, text_answer
from tests.fake_server.chat import Body
from tests.support.engine_doubles import make

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"
#: Those that ask a server.
VENDORS = [family for family in PROVIDERS if not provider_class(family).is_local]
BATCHES = [f"{family}-batch" for family in VENDORS if provider_class(family).batches]
SCHEMA = OutputSchema(
    "decompose",
    {
        "type": "object",
        "properties": {"claims": {"type": "array", "items": {"type": "string"}}},
        "required": ["claims"],
        "additionalProperties": False,
    },
)

each_vendor = pytest.mark.parametrize("family", VENDORS)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """It and `builtin` make the same claims of this file's sentence."""
    with FakeServer(batch_delay_s=0.0, key=KEY) as server:
        yield server


def made(family: str, base_url: str = "https://example.org/v1", **options: Any) -> Any:
    """A provider for the model `m`."""
    vendor: Any = provider_class(family)
    return vendor("m", base_url=base_url, **{"key": KEY, **options})


def request_to(provider: Provider, **fields: Any) -> Request:
    prompt = load_prompt("decompose", "v1")
    return Request(
        provider=provider.family,
        namespace=provider.namespace,
        model=provider.model,
        messages=prompt.render({"text": "The rooms are large and quiet."}),
        **{"output": SCHEMA, **fields},
    )


async def asked(provider: Any, **fields: Any) -> Completion:
    """The answer to one request; the provider is closed afterwards."""
    try:
        completion: Completion = await provider.complete(request_to(provider, **fields))
    finally:
        await provider.aclose()
    return completion


# -- answers


@pytest.mark.parametrize("family", [*PROVIDERS, *BATCHES])
async def test_the_same_question_has_the_same_answer(
    family: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LLMConfig(model=family)
    if family != "builtin":
        config = LLMConfig(model=f"{family}:m", base_url=server.base_url)
        monkeypatch.setenv(provider_class(config.family).key_variable or "", KEY)
    provider = load_provider(config)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            if isinstance(provider, Collecting):
                provider.start(tasks)
            completion = await provider.complete(request_to(provider))
            await provider.aclose()
            await provider.aclose()
            tasks.cancel_scope.cancel()
    assert "The rooms are large." in completion.text
    assert "The rooms are quiet." in completion.text
    assert completion.finish_reason == "stop"
    assert provider.family in family
    assert provider.namespace
    assert provider.model


@each_vendor
async def test_an_answer_is_told_in_our_words(family: str) -> None:
    reason, usage = "stop", Usage(40, 7)

    async def answer(body: Body) -> Completion:
        return Completion("Yes", body["model"], reason, usage)

    with FakeServer(answer=answer) as server:
        for reason in ("stop", "length", "content_filter"):
            completion = await asked(made(family, server.base_url))
            assert completion == Completion("Yes", "m", reason, completion.usage)
            assert completion.usage[:2] == usage[:2]


@each_vendor
async def test_a_server_that_takes_no_schema_is_told_it_in_words(family: str) -> None:
    with FakeServer(answer=text_answer("{}"), schema="refused") as server:
        provider = made(family, server.base_url)
        with pytest.raises(AskAgain):
            await provider.complete(request_to(provider))
        for _ in range(2):
            assert (await provider.complete(request_to(provider))).text == "{}"
        await provider.aclose()
    order = "Answer with one JSON object and nothing else. Its JSON schema:"
    assert [order in str(body) for body in server.bodies] == [False, True, True]


@each_vendor
async def test_log_probabilities_are_asked_for_where_there_are_any(
    family: str, server: FakeServer
) -> None:
    await asked(made(family, server.base_url), top_logprobs=5)
    assert ("top_logprobs" in server.bodies[0]) == provider_class(family).has_logprobs


@each_vendor
async def test_the_limits_that_headers_tell_come_along(family: str) -> None:
    with FakeServer(answer=text_answer("fine"), rpm=600, tpm=60_000) as server:
        limits = (await asked(made(family, server.base_url))).limits
    assert limits is not None
    assert limits.requests is not None
    assert limits.tokens is not None
    assert (limits.requests.limit, limits.requests.remaining) == (600, 599)
    assert limits.tokens.limit is not None
    assert limits.tokens.limit >= 60_000  # of answers too, where these are limited apart


# -- refusals


@each_vendor
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("401", AuthenticationError("refused the key (HTTP 401); check {variable}")),
        ("403", AuthenticationError("check {variable} and its rights")),
        ("quota", QuotaError("fill the account")),
        ("model", UnknownModelError("has no model 'm'")),
        ("404", ConfigError("HTTP 404: scripted; ")),
        ("filter", RejectedError("HTTP 400: ", "content_filter")),
        ("413", RejectedError("HTTP 413: scripted", "too_large")),
        ("422", RejectedError("HTTP 422: scripted", "rejected")),
        ("429:0.2", RateLimitError("HTTP 429: ", 0.2)),
        ("500", TransientError("HTTP 500: scripted", "status")),
        ("504", TransientError("HTTP 504: scripted", "timeout")),
        ("529", TransientError("HTTP 529: scripted", "status")),
        ("reset", TransientError("hung up without an HTTP answer", "dropped")),
        ("truncated", TransientError("the answer broke off", "body")),
        ("malformed", TransientError("the server's answer is no ", "body")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_refusal_is_the_error_that_decides(
    family: str, fault: str, expected: ClaimscoreError
) -> None:
    with (
        FakeServer(answer=text_answer("fine"), script={1: fault}) as server,
        pytest.raises(type(expected)) as caught,
    ):
        await asked(made(family, server.base_url))
    error, variable = caught.value, str(provider_class(family).key_variable)
    assert type(error) is type(expected)
    assert str(expected).replace("{variable}", variable) in str(error)
    assert vars(error).get("kind") == vars(expected).get("kind")
    assert vars(error).get("retry_after_s") == vars(expected).get("retry_after_s")
    assert server.n_requests == 1


@each_vendor
async def test_faults_lose_nothing(family: str) -> None:
    script = {2: "500", 4: "429:0.01", 6: "reset", 8: "malformed", 10: "truncated"}

    with FakeServer(answer=text_answer("fine"), script=script) as server:
        provider = made(family, server.base_url)
        async with make(provider, max_concurrency=4) as engine:
            requests = [engine.request([Message("user", str(i))]) for i in range(30)]
            outcomes = await engine.answer_all(requests, lambda answer: answer.text)
            again = await engine.answer_all(requests, lambda answer: answer.text)
        await provider.aclose()
    assert [o.value for o in outcomes if isinstance(o, Answer)] == ["fine"] * 30
    assert all(isinstance(o, Answer) and o.cached for o in again)
    assert server.n_requests == 35
    assert engine.stats.retries == {"status": 1, "rate_limit": 1, "dropped": 1, "body": 2}


# -- keys, headers, addresses


def replying(status: int, message: str = "no", **headers: str) -> httpx2.MockTransport:
    """A server that refuses everything in the same words."""
    body = {"type": "error", "error": {"type": "some_error", "message": message}}
    return httpx2.MockTransport(lambda _: httpx2.Response(status, json=body, headers=headers))


@each_vendor
async def test_no_redirect_is_followed(family: str) -> None:
    transport = replying(307, location="https://elsewhere.example/v1")
    with pytest.raises(ConfigError, match=r"points to https://elsewhere\.example/v1; name that"):
        await asked(made(family, transport=transport))


@each_vendor
async def test_only_what_is_named_is_sent(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key without the line break that a file ends with; nothing that the environment has."""
    for name in ("OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "AZURE_OPENAI_AD_TOKEN"):
        monkeypatch.setenv(name, "from-outside")
    monkeypatch.setenv("OPENAI_API_KEY", "from-outside")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "from-outside")
    for vendor in ("OPENAI", "ANTHROPIC"):
        lines = "Authorization: from-outside\nX-Outside: from-outside\nHost: outside"
        monkeypatch.setenv(f"{vendor}_CUSTOM_HEADERS", lines)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "default.json").write_text('{"base_url": "http://from-outside"}')
    with FakeServer() as server:
        for key in (f" {KEY}\r\n", None):
            await asked(made(family, server.base_url, key=key))
    with_key, without = server.headers
    assert KEY in str(with_key)
    assert KEY not in str(without)
    assert "authorization" not in without
    assert "outside" not in f"{with_key}{without}"
    assert with_key["user-agent"].startswith("claimscore/")
    ours = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length"}
    credentials = {"authorization", "api-key", "x-api-key"}
    assert with_key.keys() - credentials - {"anthropic-version"} == ours
    assert with_key["accept-encoding"] == "identity"


@each_vendor
async def test_headers_of_the_user_are_sent_and_their_values_are_shown_nowhere(family: str) -> None:
    headers = {"X-Tenant": "tenant-secret", "Authorization": "Basic of-gateway"}
    with FakeServer(answer=text_answer("your tenant-secret")) as server:
        answer = await asked(made(family, server.base_url, headers=headers))
    assert answer.text == "your [key]"
    sent = server.headers[0]
    assert (sent["x-tenant"], sent["authorization"]) == ("tenant-secret", "Basic of-gateway")
    transport = replying(400, "no tenant 'tenant-secret'")
    with pytest.raises(RejectedError, match=r"no tenant '\[key\]'"):
        await asked(made(family, headers=headers, transport=transport))
    with pytest.raises(ConfigError, match="--header X-Tenant would be sent unencrypted"):
        made(family, "http://example.org/v1", key=None, headers=headers)


@each_vendor
@pytest.mark.parametrize("url", ["http://example.org/v1", "http://10.0.0.7", "http://[2001::1]"])
def test_a_key_is_not_sent_in_the_clear(family: str, url: str) -> None:
    with pytest.raises(ConfigError, match="--allow-http-key"):
        made(family, url)
    made(family, url, allow_http_key=True)
    made(family, url, key=None)


@each_vendor
@pytest.mark.parametrize("key", ["sk-a\nb", "sk-é", "sk-a b", "sk-a\x00"])
def test_a_key_that_is_none_is_refused_without_quoting_it(family: str, key: str) -> None:
    """Before anything is sent: it would break the header that carries it."""
    with pytest.raises(ConfigError, match=str(provider_class(family).key_variable)) as caught:
        made(family, key=key)
    assert "sk-" not in str(caught.value)


@each_vendor
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
async def test_the_key_is_in_no_error_log_or_repr(
    family: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quoting = f"bad key {KEY} (sk-proj-****mnop), Bearer {KEY}"
    provider = made(family, transport=replying(status, quoting))
    with pytest.raises(ClaimscoreError) as caught:
        await asked(provider)
    for words in (str(caught.value), repr(provider), caplog.text):
        assert KEY not in words
        assert "mnop" not in words
    assert caught.value.__cause__ is caught.value.__context__ is None


@each_vendor
async def test_without_a_key_the_vendor_itself_is_not_asked(family: str) -> None:
    vendor: Any = provider_class(family)
    base_url = vendor.default_base_url or "https://name.openai.azure.com"
    with pytest.raises(AuthenticationError, match=f"{vendor.key_variable} is not set"):
        await asked(vendor("m", base_url=base_url))
