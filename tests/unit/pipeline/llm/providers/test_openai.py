"""The OpenAI provider: what goes over the wire, and what its answers and errors become."""

import dataclasses
import json
from typing import Any

import httpx2
import pytest

from claimscore.config import LLMConfig
from claimscore.errors import (
    AskAgain,
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.types import Completion, Message, OutputSchema, Request, Usage

pytestmark = pytest.mark.anyio

KEY = "sk-proj-abcdefghijklmnop"
SCHEMA = OutputSchema("claims", {"type": "object", "properties": {"claims": {"type": "array"}}})
SCHEMA_TEXT = json.dumps(SCHEMA.schema)
REQUEST = Request(
    provider="openai",
    namespace="n",
    model="m",
    messages=(Message("system", "Decompose."), Message("user", "Kind staff.")),
    output=SCHEMA,
)


class Server:
    """A mock transport: replies in order, the last one for ever; remembers requests."""

    def __init__(self, *replies: httpx2.Response | Exception) -> None:
        self.replies = list(replies) or [reply("ok")]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[httpx2.Headers] = []
        self.urls: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content or b"null"))
        self.headers.append(request.headers)
        self.urls.append(str(request.url))
        step = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(step, Exception):
            raise step
        return httpx2.Response(step.status_code, headers=step.headers, content=step.content)

    def provider(self) -> OpenAIProvider:
        return OpenAIProvider("m", key=KEY, transport=httpx2.MockTransport(self))


def reply(content: object, finish_reason: str | None = "stop", **message: Any) -> httpx2.Response:
    choice = {"finish_reason": finish_reason, "message": {"content": content, **message}}
    usage = {"prompt_tokens": 11, "completion_tokens": 3}
    return httpx2.Response(200, json={"model": "m-2026", "choices": [choice], "usage": usage})


def error(
    status: int, message: str = "no", headers: dict[str, str] | None = None, **fields: Any
) -> httpx2.Response:
    body = {"error": {"message": message, **fields}}
    return httpx2.Response(status, json=body, headers=headers)


# -- asking


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply("{}", "length"), Completion("{}", "m-2026", "length", Usage(11, 3))),
        (reply(None), Completion("", "m-2026", "stop", Usage(11, 3))),
        (reply("x", None), Completion("x", "m-2026", "stop", Usage(11, 3))),
        (
            reply([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            Completion("ab", "m-2026", "stop", Usage(11, 3)),
        ),
        (
            reply(None, refusal="I cannot"),
            Completion("I cannot", "m-2026", "refusal", Usage(11, 3)),
        ),
        (
            httpx2.Response(200, json={"choices": [{"message": {"content": "x"}}]}),
            Completion("x", "m", "stop", Usage(None, None)),
        ),
    ],
    ids=["text", "no content", "no finish reason", "parts", "refusal", "no usage"],
)
async def test_an_answer_comes_back_whole(answer: httpx2.Response, expected: Completion):
    assert await Server(answer).provider().complete(REQUEST) == expected


# -- dialects


async def test_another_model_is_asked_in_its_own_way():
    """What one model complains of is left out for it alone."""
    unwanted = error(
        400, "Unsupported value: 'temperature' does not support 0", param="temperature"
    )
    server = Server(unwanted, reply("{}"))
    provider = server.provider()
    with pytest.raises(AskAgain):
        await provider.complete(dataclasses.replace(REQUEST, model="thinker"))
    await provider.complete(dataclasses.replace(REQUEST, model="thinker"))
    await provider.complete(REQUEST)
    assert [(body["model"], "temperature" in body) for body in server.bodies] == [
        ("thinker", True),
        ("thinker", False),
        ("m", True),
    ]


@pytest.mark.parametrize("status", [400, 422])
async def test_json_modes_fall_back_and_are_remembered(status: int):
    """json_schema, then json_object, then the schema as text only; learnt once per provider."""
    refusal = error(status, "response_format of this type is unavailable")
    server = Server(refusal, refusal, reply("ok"))
    provider = server.provider()
    for _ in range(2):
        with pytest.raises(AskAgain, match="response_format of this type is unavailable"):
            await provider.complete(REQUEST)
    await provider.complete(REQUEST)
    await provider.complete(REQUEST)
    await provider.complete(dataclasses.replace(REQUEST, messages=REQUEST.messages[1:]))
    kinds = [body.get("response_format", {}).get("type") for body in server.bodies]
    assert kinds == ["json_schema", "json_object", None, None, None]
    order = f"Answer with one JSON object and nothing else. Its JSON schema:\n{SCHEMA_TEXT}"
    for body in server.bodies[1:4]:
        assert body["messages"][0] == {"role": "system", "content": f"Decompose.\n\n{order}"}
    assert server.bodies[4]["messages"][0] == {"role": "system", "content": order}


# -- errors


LATE = {"message": "Provider returned error"}
TOO_LONG = {"type": "exceed_context_size_error", "message": "too long"}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({**LATE, "code": 502}, TransientError),
        ({**LATE, "code": 429}, RateLimitError),
        ({**LATE, "code": 402}, QuotaError),
        ({"message": "maximum context length", "code": 400}, RejectedError),
        (TOO_LONG, RejectedError),
        ({**LATE, "code": 401}, TransientError),
        ({**LATE, "code": 404}, TransientError),
        ({**LATE, "code": "boom"}, TransientError),
        ("boom", TransientError),
    ],
    ids=str,
)
async def test_an_error_with_status_200_is_no_answer(
    answer: object, expected: type[ClaimscoreError]
):
    """OpenRouter sends its status before it has an answer; then the body says what came of it."""
    server = Server(httpx2.Response(200, json={"error": answer}))
    with pytest.raises(expected) as caught:
        await server.provider().complete(REQUEST)
    assert type(caught.value) is expected
    if type(caught.value) is TransientError:
        assert caught.value.kind == "body"


# -- URLs


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://API.example.org:443/v1/", "https://api.example.org/v1"),
        ("http://localhost:8000", "http://localhost:8000"),
        (" http://[::1]:80/v1?x=1#y ", "http://[::1]/v1"),
    ],
)
def test_one_server_has_one_spelling(url: str, expected: str):
    """The URL is the cache's namespace; spelling must not buy answers again."""
    assert OpenAIProvider("m", base_url=url).namespace == expected


@pytest.mark.parametrize(
    "url",
    [
        *("example.org/v1", "ftp://x", "https://a:b@x/v1", "http://x:99999", "http://[::1"),
        *("http://ß", "https://x/v1\x01"),
    ],
)
def test_a_bad_url_is_a_config_error(url: str):
    """Said before anything is sent, without quoting a password."""
    with pytest.raises(ConfigError) as caught:
        OpenAIProvider("m", base_url=url)
    assert "a:b" not in str(caught.value)


# -- from settings


@pytest.mark.parametrize("model", ["openai", "openai:", "gpt-5", ""])
def test_an_unknown_llm_names_the_known(model: str):
    with pytest.raises(ConfigError, match="openai:"):
        load_provider(LLMConfig(model=model))
