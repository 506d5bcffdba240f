"""Chat completions of OpenAI and of all servers that speak its protocol.

`OpenAIServer` is a server's address and key, and knows what its bodies mean; `OpenAIProvider`
asks it one request at a time, `batch_jobs` many in a file. A request's body is made in `schema`,
refusals are read in `errors`, connections are in `connection`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from claimscore.addresses import server_address
from claimscore.config import LLMConfig, api_base_url, api_key, header_values
from claimscore.errors import (
    AskAgain,
    AuthenticationError,
    ClaimscoreError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
)
from claimscore.http_headers import rate_limits
from claimscore.http_policy import key_for, refuse_unencrypted
from claimscore.pipeline.llm.providers.base import Vendor
from claimscore.pipeline.llm.providers.errors import Refusal, read_refusal, translate_error
from claimscore.pipeline.llm.providers.schema import (
    Dialect,
    chat_body,
    encode_json,
    learn_dialect,
)
from claimscore.types import Completion, RateLimits, Request, TokenLogprob, Usage

if TYPE_CHECKING:
    import httpx2
    import openai

    from claimscore.pipeline.llm.providers.connection import Connection, Reply

DEFAULT_BASE_URL = "https://api.openai.com/v1"
KEY_NAME = "OPENAI_API_KEY"

#: Headers by which a server may know who asks.
_CREDENTIALS = {"authorization", "x-api-key", "api-key"}

#: Finish reasons of a generation that the server broke off: OpenRouter; vLLM; DeepSeek.
_BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}

#: A shorter value of a header is no secret that could be told from other words.
_LEAST_SECRET = 8


class OpenAIServer:
    """One server and the key for it, which is sent there and shown in no answer and no error.

    `headers` are sent too, in place of those that claimscore would send, and their values are
    shown as little. Raises `ConfigError` where the address is none or a key or header would be
    sent unencrypted. `max_connections` are those at a time; `transport` replaces them in tests.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        headers: Mapping[str, str] | None = None,
        allow_http_key: bool = False,
        timeout_s: float = 120.0,
        max_connections: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = server_address(base_url, key_name=KEY_NAME)
        self.key = key_for(self.base_url, key, key_name=KEY_NAME, allow_http_key=allow_http_key)
        self.own_headers = {name.lower(): value for name, value in (headers or {}).items()}
        if self.own_headers and not allow_http_key:
            refuse_unencrypted(self.base_url, f"--header {next(iter(headers or {}))}")
        values = (word for value in self.own_headers.values() for word in (value, *value.split()))
        secrets = (self.key, *(value for value in values if len(value) >= _LEAST_SECRET))
        self.secrets = tuple(filter(None, secrets))
        authorization = {"authorization": f"Bearer {self.key}"} if self.key else {}
        self.headers = {**authorization, **self.own_headers}
        self.may_be_known = not self.headers.keys().isdisjoint(_CREDENTIALS)
        self.timeout_s = timeout_s
        self._max_connections = max_connections
        self._transport = transport

    @functools.cached_property
    def connection(self) -> Connection:
        """Made for the first request: with all answers stored it would be half of a start."""
        from claimscore.pipeline.llm.providers.connection import Connection

        return Connection(
            self.base_url,
            timeout_s=self.timeout_s,
            max_connections=self._max_connections,
            headers=self.headers,
            secrets=self.secrets,
            transport=self._transport,
        )

    @functools.cached_property
    def sdk(self) -> openai.AsyncOpenAI:
        """The SDK's client; what is sent as credentials is the connection's affair."""
        import openai

        return openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.key or "none",
            max_retries=0,
            http_client=self.connection.http,
        )

    async def send(self, path: str, body: bytes) -> Reply:
        """POST a JSON text to a path below the address; a reply of any status comes back."""
        import httpx2

        sdk = self.sdk
        return await self.connection.call(
            lambda: sdk.post(path, content=body, cast_to=httpx2.Response)
        )

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        if "connection" in self.__dict__:
            await self.connection.aclose()

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
        """A reply that is no answer, in its parts and without the key."""
        return read_refusal(status, headers, body, *self.secrets)

    def error(self, refusal: Refusal, model: str) -> ClaimscoreError:
        """The error that a refusal of a request to `model` is."""
        return translate_error(refusal, base_url=self.base_url, model=model, key_variable=KEY_NAME)

    def completion(
        self, body: object, request: Request, limits: RateLimits | None = None
    ) -> Completion:
        """The answer in a decoded body; a secret that the server echoes is left out.

        Raises `TransientError` where the body holds no answer.
        """
        completion = completion_of(body, request, limits)
        for secret in self.secrets:
            texts = {
                name: getattr(completion, name).replace(secret, "[key]")
                for name in ("text", "model", "reasoning")
                if secret in getattr(completion, name)
            }
            if texts:
                completion = dataclasses.replace(completion, **texts, logprobs=None)
        return completion


class OpenAIProvider(Vendor):
    """`openai:MODEL` at `base_url`. The key and `headers` are sent there and nowhere else.

    `params` go into every request, before those of its prompt.
    """

    family = "openai"
    usage = "openai:MODEL", "any OpenAI-compatible server (--base-url, OPENAI_API_KEY)"
    key_variable = KEY_NAME
    several_servers = has_logprobs = True
    batches = "claimscore.pipeline.llm.batch_jobs.provider:OpenAIBatchProvider"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        timeout_s: float = 120.0,
        allow_http_key: bool = False,
        max_connections: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.model = model
        self.params = dict(params or {})
        self.timeout_s = timeout_s
        self.server = OpenAIServer(
            base_url,
            key,
            headers=headers,
            allow_http_key=allow_http_key,
            timeout_s=timeout_s,
            max_connections=max_connections,
            transport=transport,
        )
        self.base_url = self.server.base_url
        self.namespace = namespace or self.base_url
        self._dialects: dict[str, Dialect] = {}
        asks_openai = transport is None and self.base_url == DEFAULT_BASE_URL
        self._lacks_key = asks_openai and not self.server.may_be_known

    @classmethod
    def from_config(cls, config: LLMConfig) -> OpenAIProvider:
        """The provider that settings and environment name; raises `ConfigError`."""
        return cls(
            config.model_name,
            base_url=(config.base_urls or (api_base_url() or DEFAULT_BASE_URL,))[0],
            key=api_key(),
            headers=header_values(config.headers),
            params=config.params,
            namespace=config.cache_namespace,
            timeout_s=config.timeout_s,
            allow_http_key=config.allow_http_key,
            max_connections=config.max_concurrency,
        )

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.model!r}, base_url={self.base_url!r})"

    def check_key(self) -> None:
        """`AuthenticationError` where OpenAI itself is asked and there is no key."""
        if self._lacks_key:
            raise AuthenticationError(
                f"OPENAI_API_KEY is not set, and {self.base_url} answers no request without a key; "
                "set it, or name another server with --base-url"
            )

    async def complete(self, request: Request) -> Completion:
        """Ask in the server's dialect, once.

        Raises only `claimscore.errors`; `AskAgain` where a refusal has taught another dialect.
        """
        self.check_key()
        server, dialect = self.server, self._dialects.get(request.model, Dialect())
        reply = await server.send("/chat/completions", encode_json(chat_body(request, dialect)))
        if 200 <= reply.status < 300:
            answer = decode_json(reply.body)
            if isinstance(answer, dict) and answer.get("error") and not answer.get("choices"):
                raise self._late_error(reply, answer["error"])
            return server.completion(answer, request, rate_limits(reply.headers))
        refusal = server.refusal(*reply)
        learnt = learn_dialect(refusal, dialect)
        if learnt is None:
            raise server.error(refusal, request.model)
        if self._dialects.get(request.model, dialect) == dialect:
            self._dialects[request.model] = learnt  # else another task has learnt it meanwhile
        raise AskAgain(f"{self.base_url}: {refusal.message}", limits=refusal.limits)

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        await self.server.aclose()

    def _late_error(self, reply: Reply, error: object) -> ClaimscoreError:
        """An error in an answer with status 200: OpenRouter sends that before it has one.

        Its code may be the status that was meant. Stops other than for money are not
        believed: they are about a provider behind the server.
        """
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        refusal = self.server.refusal(status, reply.headers, reply.body)
        meant = self.server.error(refusal, self.model)
        if isinstance(meant, RateLimitError | RejectedError | QuotaError):
            return meant
        return TransientError(
            f"{self.base_url}: an error instead of an answer: {refusal.message}",
            "body",
            limits=refusal.limits,
        )


# -- answers; pure


def completion_of(body: object, request: Request, limits: RateLimits | None = None) -> Completion:
    """The first choice of a decoded body; raises `TransientError` where there is none.

    Such an answer is broken, and worth asking for again.
    """
    try:
        choice = body["choices"][0]  # type: ignore[index] # anything else is caught below
        message = choice["message"]
        text = _text(message.get("content"))
        thought = _text(message.get("reasoning_content") or message.get("reasoning"))
        apart = _apart(text)
        if apart is not None:
            thought, text = thought or apart[0], apart[1]
        finish_reason = choice.get("finish_reason") or "stop"
        if finish_reason in _BROKEN_OFF or choice.get("error"):
            raise TransientError("the server broke its answer off", "body", limits=limits)
        refusal = message.get("refusal")
        if refusal and not text:
            text, finish_reason = _text(refusal), "refusal"
        model = body.get("model") or request.model  # type: ignore[attr-defined] # the same
        usage = _usage(body.get("usage"), body.get("service_tier"))  # type: ignore[attr-defined] # the same
        logprobs = None if apart else _logprobs(choice.get("logprobs"))  # else they are of both
        answer = _valid(text), str(model), str(finish_reason)
        return Completion(*answer, usage, limits, logprobs, _valid(thought))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        pass
    raise TransientError("the server's answer is no chat completion", "body", limits=limits)


def decode_json(body: bytes) -> Any:
    """The value of a JSON text, or None where it is none; what orjson refuses goes the long way."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(body)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(content: object) -> str:
    """A message's text; some servers send a list of parts."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError("content is neither text nor parts")
    return content


def _apart(text: str) -> tuple[str, str] | None:
    """A leading block of reasoning and the answer after it; None where there is no block.

    Templates may have its first tag in the prompt, and what is cut off has no last one.
    """
    start = text.lstrip()
    before, end, after = start.partition("</think>")
    is_open = before.startswith("<think>")
    if not is_open and (not end or "<think>" in before or before.startswith(("{", "["))):
        return None
    return before.removeprefix("<think>").strip(), after.lstrip()


def _valid(text: str) -> str:
    """A text that can be stored; JSON may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _logprobs(reported: object) -> tuple[TokenLogprob, ...] | None:
    """The tokens with their log-probabilities; None where they are not there, or odd.

    A token without a finite one is impossible and left out.
    """
    try:
        places = tuple(
            TokenLogprob(
                _valid(place["token"]),
                _finite(place["logprob"]),
                tuple(
                    (_valid(other["token"]), float(other["logprob"]))
                    for other in place.get("top_logprobs") or ()
                    if math.isfinite(other["logprob"])
                ),
            )
            for place in reported["content"]  # type: ignore[index] # anything else is caught below
        )
        return places or None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no log-probability")
    return float(value)


def _usage(reported: object, service_tier: object) -> Usage:
    """Tokens as reported; a figure that is no count is as good as not reported."""
    usage = reported if isinstance(reported, dict) else {}
    prompt_tokens = _count(usage, "prompt_tokens")
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    if (cached or 0) + (written or 0) > (prompt_tokens or 0):
        cached = written = None
    answer_tokens = _count(usage, "completion_tokens")
    details = usage.get("completion_tokens_details")
    reasoning = _count(details, "reasoning_tokens") if isinstance(details, dict) else None
    counted = (prompt_tokens or 0) + (answer_tokens or 0)
    if reasoning and answer_tokens is not None and usage.get("total_tokens") == counted + reasoning:
        answer_tokens += reasoning  # Google and xAI count them apart
    tier = service_tier if isinstance(service_tier, str) else ""
    return Usage(prompt_tokens, answer_tokens, cached, reasoning or None, written, tier)


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else None
