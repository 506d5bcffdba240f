"""The OpenAI provider: ways of asking, errors with status 200, and spellings of addresses."""

import dataclasses
import json

import httpx2
import pytest

from claimscore.errors import (
    AskAgain,
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.types import Message, Request

pytestmark = pytest.mark.anyio

REQUEST = Request("openai", "n", "m", (Message("user", "Kind staff."),))
UNWANTED = {"error": {"message": "Unsupported value: 'temperature'", "param": "temperature"}}


async def test_another_model_is_asked_in_its_own_way():
    """What one model complains of is left out for it alone."""
    asked: list[tuple[str, bool]] = []

    def reply(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        asked.append((body["model"], "temperature" in body))
        if asked[-1] == ("thinker", True):
            return httpx2.Response(400, json=UNWANTED)
        return httpx2.Response(200, json={"choices": [{"message": {"content": "x"}}]})

    provider = OpenAIProvider("m", key="sk-1", transport=httpx2.MockTransport(reply))
    thinker = dataclasses.replace(REQUEST, model="thinker")
    with pytest.raises(AskAgain):
        await provider.complete(thinker)
    await provider.complete(thinker)
    await provider.complete(REQUEST)
    assert asked == [("thinker", True), ("thinker", False), ("m", True)]


LATE = {"message": "Provider returned error"}
TOO_LONG = {"type": "exceed_context_size_error", "message": "too long"}


@pytest.mark.parametrize(
    ("error", "expected"),
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
    error: object, expected: type[ClaimscoreError]
):
    """OpenRouter sends its status before it has an answer; then the body says what came of it."""
    reply = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"error": error}))
    with pytest.raises(expected) as caught:
        await OpenAIProvider("m", key="sk-1", transport=reply).complete(REQUEST)
    assert type(caught.value) is expected
    if type(caught.value) is TransientError:
        assert caught.value.kind == "body"


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
