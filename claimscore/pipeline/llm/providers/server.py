"""What the servers of all vendors share: address, key, connections, and asking in a dialect.

A vendor says in a subclass of `ServerProvider` how its SDK is made, what a body is and what an
answer means.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import orjson

from claimscore.config import LLMConfig, environment, header_values
from claimscore.errors import AskAgain, AuthenticationError, ClaimscoreError
from claimscore.http_headers import rate_limits
from claimscore.http_policy import key_for, refuse_unencrypted, server_address
from claimscore.pipeline.llm.providers.base import Vendor
from claimscore.pipeline.llm.providers.errors import Refusal, read_refusal, translate_error
from claimscore.pipeline.llm.providers.schema import Dialect, encode_json, learn_dialect
from claimscore.types import JSON, Completion, RateLimits, Request

if TYPE_CHECKING:
    import httpx2

    from claimscore.pipeline.llm.providers.connection import Connection, Reply

#: Headers by which a server may know who asks.
_CREDENTIALS = {"authorization", "x-api-key", "api-key"}

#: A shorter key or value of a header ("none", "EMPTY") is no secret that could be told from words.
_LEAST_SECRET = 8


class ServerProvider(Vendor):
    """A model at one server, and the key for it, which is sent there and shown in no answer and no
    error.

    `headers` are sent too, in place of those that claimscore would send, and their values are
    shown as little. `key_variable` takes the place of the vendor's. `params` go into every request,
    before those of its prompt. Raises `ConfigError` where the address is none or a key or header
    would be sent unencrypted. `transport` replaces the network in tests.
    """

    family: ClassVar[str]
    #: Where a request goes that names no server.
    default_base_url: ClassVar[str] = ""
    #: The environment variable with another address.
    address_variable: ClassVar[str]
    #: Where requests for one answer go, below the address.
    path: ClassVar[str]

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        key: str | None = None,
        key_variable: str = "",
        params: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        headers: Mapping[str, str] | None = None,
        allow_http_key: bool = False,
        timeout_s: float = 120.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.model = model
        self.params = dict(params or {})
        #: The environment variable with the key, for people.
        self.key_name = name = key_variable or self.key_variable or ""
        self.base_url = server_address(base_url or self.default_base_url, key_name=name)
        self.namespace = namespace or self.base_url
        self.key = key_for(self.base_url, key, key_name=name, allow_http_key=allow_http_key)
        given = {name.lower(): value for name, value in (headers or {}).items()}
        if given and not allow_http_key:
            refuse_unencrypted(self.base_url, f"--header {next(iter(headers or {}))}")
        values = (word for value in given.values() for word in (value, *value.split()))
        secrets = (self.key or "", *values)
        self.secrets = tuple(secret for secret in secrets if len(secret) >= _LEAST_SECRET)
        self.headers = {**self._vendor_headers(), **given}
        self.timeout_s = timeout_s
        self._transport = transport
        self._dialects: dict[str, Dialect] = {}

    @classmethod
    def from_config(cls, config: LLMConfig) -> Self:
        """The provider that settings and environment name; raises `ConfigError`."""
        assert cls.key_variable is not None
        options: dict[str, Any] = {
            "base_url": (config.base_urls or (environment(cls.address_variable) or "",))[0],
            "key": config.key(cls.key_variable),
            "key_variable": config.key_name(cls.key_variable),
            "headers": header_values(config.headers),
            "params": config.params,
            "namespace": config.cache_namespace,
            "timeout_s": config.timeout_s,
            "allow_http_key": config.allow_http_key,
        }
        return cls(config.model_name, **options | cls._vendor_options(config))

    # -- what differs between vendors

    @classmethod
    def _vendor_options(cls, config: LLMConfig) -> dict[str, Any]:
        """What settings and environment name for this vendor alone."""
        return {}

    def _vendor_headers(self) -> dict[str, str]:
        """The headers that say who asks, and what else the vendor's API wants to know."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def _is_vendors(self) -> bool:
        """Whether the server is the vendor's own, which answers nothing without a key."""
        return self.base_url == self.default_base_url

    def path_to(self, model: str) -> str:
        """Where a request to a model goes, below the address."""
        return self.path

    @functools.cached_property
    def sdk(self) -> Any:
        """The SDK's client, over `connection`; what is sent as credentials is its affair."""
        raise NotImplementedError

    @property
    def sdk_options(self) -> dict[str, Any]:
        """What every SDK is given; without a key it would look for others on this machine."""
        http = self.connection.http
        return {"api_key": self.key or "none", "max_retries": 0, "http_client": http}

    @staticmethod
    def body(request: Request, dialect: Dialect) -> JSON:
        """The body of a request in a dialect."""
        raise NotImplementedError

    @staticmethod
    def read(body: object, request: Request, limits: RateLimits | None) -> Completion:
        """The answer to a request in a decoded body, as it is; else as `completion` raises."""
        raise NotImplementedError

    def _answer(self, reply: Reply, request: Request) -> Completion:
        """What a reply with a status of success holds."""
        return self.completion(decode_json(reply.body), request, rate_limits(reply.headers))

    # -- asking

    @functools.cached_property
    def connection(self) -> Connection:
        """Made for the first request: with all answers stored it would be half of a start."""
        from claimscore.pipeline.llm.providers.connection import Connection

        return Connection(
            self.base_url,
            timeout_s=self.timeout_s,
            headers=self.headers,
            secrets=self.secrets,
            transport=self._transport,
        )

    def check_key(self) -> None:
        """`AuthenticationError` where the vendor itself is asked and there is no key."""
        if self._is_vendors() and self.headers.keys().isdisjoint(_CREDENTIALS):
            raise AuthenticationError(
                f"{self.key_name} is not set, and {self.base_url} answers no request "
                "without a key; set it, or name another server with --base-url"
            )

    async def complete(self, request: Request) -> Completion:
        """Ask in the server's dialect; raises only `claimscore.errors`, as `refused` says."""
        self.check_key()
        dialect = self.dialect(request.model)
        body = encode_json(self.body(request, dialect))
        reply = await self.send(self.path_to(request.model), body)
        if 200 <= reply.status < 300:
            return self._answer(reply, request)
        raise self.refused(self.refusal(*reply), request.model, dialect)

    async def send(self, path: str, body: bytes) -> Reply:
        """POST a JSON text to a path below the address; a reply of any status comes back."""
        import httpx2

        sdk = self.sdk
        return await self.connection.call(
            lambda: sdk.post(path, content=body, cast_to=httpx2.Response)
        )

    def completion(
        self, body: object, request: Request, limits: RateLimits | None = None
    ) -> Completion:
        """The answer in a decoded body; a secret that the server echoes is left out.

        Raises `TransientError` where the body holds no answer.
        """
        completion = self.read(body, request, limits)
        for secret in self.secrets:
            texts = {
                name: getattr(completion, name).replace(secret, "[key]")
                for name in ("text", "model", "reasoning")
                if secret in getattr(completion, name)
            }
            if texts:
                completion = dataclasses.replace(completion, **texts, logprobs=None)
        return completion

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
        """A reply that is no answer, in its parts and without the key."""
        return read_refusal(status, headers, body, *self.secrets)

    def dialect(self, model: str) -> Dialect:
        """How a model is asked, as far as refusals have taught it."""
        return self._dialects.get(model, Dialect())

    def refused(self, refusal: Refusal, model: str, dialect: Dialect) -> ClaimscoreError:
        """The error that a refusal of a request in this dialect is; `AskAgain` where it teaches
        another, which is noted."""
        learnt = learn_dialect(refusal, dialect)
        if learnt is None:
            return self.error(refusal, model)
        if self.dialect(model) == dialect:  # else another task has learnt it meanwhile
            self._dialects[model] = learnt
        where, limits = f"{self.base_url}: {refusal.message}", refusal.limits
        return AskAgain(where, limits=limits, status=refusal.status)

    def error(self, refusal: Refusal, model: str) -> ClaimscoreError:
        """The error that a refusal of a request to `model` is."""
        return translate_error(
            refusal, base_url=self.base_url, model=model, key_variable=self.key_name
        )

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        if "connection" in self.__dict__:
            await self.connection.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.base_url!r})"


# -- values of answers; pure


def decode_json(body: bytes) -> Any:
    """The value of a JSON text, or None where it is none; what orjson refuses goes the long way."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(body)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def valid_text(text: str) -> str:
    """A text that can be stored; JSON may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def count_of(usage: Any, name: str) -> int | None:
    """A number of tokens; what is no count is as good as not reported."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and value >= 0 else None
