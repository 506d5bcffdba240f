"""What is Azure's alone: deployments, versions of the API, tokens, and how it words refusals."""

import json
from typing import Any

import httpx2
import pytest

from claimscore.config import LLMConfig
from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    RejectedError,
    UnknownModelError,
)
from claimscore.pipeline.llm.providers.azure import AzureProvider
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.types import Message, Request

pytestmark = pytest.mark.anyio

KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "eyJ0eXAi.eyJhdWQi.c2lnbmF0dXJl"
RESOURCE = "https://name.openai.azure.com"
REQUEST = Request("azure", RESOURCE, "my deployment", (Message("user", "Kind staff."),))
ANSWER = {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}


class Server:
    """Replies always the same; remembers requests."""

    def __init__(self, status: int = 200, body: Any = ANSWER) -> None:
        self.requests: list[httpx2.Request] = []
        self._reply = status, body

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        status, body = self._reply
        return httpx2.Response(status, content=json.dumps(body))

    def provider(self, key: str | None = KEY, **options: Any) -> AzureProvider:
        transport = httpx2.MockTransport(self.handle)
        options = {"base_url": RESOURCE, **options}
        return AzureProvider("my deployment", key=key, transport=transport, **options)


@pytest.mark.parametrize("url", [RESOURCE, f"{RESOURCE}/", f"{RESOURCE}/openai"])
@pytest.mark.parametrize(
    ("key", "header"), [(KEY, ("api-key", KEY)), (TOKEN, ("authorization", f"Bearer {TOKEN}"))]
)
async def test_a_deployment_is_asked_at_its_path(url: str, key: str, header: tuple[str, str]):
    server = Server()
    provider = server.provider(key, base_url=url, api_version="2024-06-01")
    assert (await provider.complete(REQUEST)).text == "Yes"
    assert provider.namespace == RESOURCE
    (request,) = server.requests
    path = "/openai/deployments/my%20deployment/chat/completions?api-version=2024-06-01"
    assert str(request.url) == RESOURCE + path
    sent = {name: request.headers.get(name) for name in ("api-key", "authorization")}
    assert sent == {"api-key": None, "authorization": None} | dict([header])


def error(code: str, message: str) -> object:
    return {"error": {"code": code, "message": message}}


NO_DEPLOYMENT = error("DeploymentNotFound", "The API deployment for this resource does not exist.")
FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering the policy.",
        "code": "content_filter",
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}},
    }
}


@pytest.mark.parametrize(
    ("status", "body", "expected", "words"),
    [
        (400, error("BadRequest", "API version not supported"), ConfigError, "2024-10-21"),
        (404, error("404", "Resource not found"), ConfigError, "OPENAI_API_VERSION, now"),
        (404, NO_DEPLOYMENT, UnknownModelError, "no model 'my deployment'"),
        (400, error("OperationNotSupported", "does not work"), UnknownModelError, "not work"),
        (400, FILTERED, RejectedError, "HTTP 400"),
        (401, error("401", "Access denied"), AuthenticationError, "AZURE_OPENAI_API_KEY"),
    ],
)
async def test_a_refusal_says_what_to_do(
    status: int, body: object, expected: type[ClaimscoreError], words: str
):
    with pytest.raises(expected, match=words) as caught:
        await Server(status, body).provider().complete(REQUEST)
    assert type(caught.value) is expected


async def test_a_token_that_has_ended_is_said():
    server = Server(401, error("401", "Unauthorized. Access token is missing or has expired."))
    with pytest.raises(AuthenticationError, match="another into AZURE_OPENAI_AD_TOKEN"):
        await server.provider(TOKEN).complete(REQUEST)


# -- from settings


def test_the_environment_names_resource_key_and_version(monkeypatch: pytest.MonkeyPatch):
    config = LLMConfig(model="azure:m")
    with pytest.raises(ConfigError, match="set AZURE_OPENAI_ENDPOINT, or --base-url"):
        load_provider(config)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{RESOURCE}/openai/v1")
    with pytest.raises(ConfigError, match="--llm openai:DEPLOYMENT"):
        load_provider(config)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", RESOURCE)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-06-01")
    for name, key in (("OTHER", KEY), ("AZURE_OPENAI_AD_TOKEN", TOKEN)):
        monkeypatch.setenv(name, TOKEN)
        provider = load_provider(config)
        assert isinstance(provider, AzureProvider)
        assert (provider.key, provider.base_url) == (key, RESOURCE)
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "eyJ0 eXAi")
    with pytest.raises(ConfigError, match="AZURE_OPENAI_AD_TOKEN holds characters that no key"):
        load_provider(config)
