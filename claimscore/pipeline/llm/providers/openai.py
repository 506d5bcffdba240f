"""Chat completions of OpenAI and of every server that speaks its protocol.

The parts: `dialect` is what is sent, `answers` and `complaints` what comes back, `transport`
the connections.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from claimscore import __version__
from claimscore.addresses import is_public_http, server_address, usable_key
from claimscore.config import LLMConfig, api_base_url, api_key
from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.providers.answers import (
    completion_of,
    decoded,
    models_instead,
    without_key,
)
from claimscore.pipeline.llm.providers.complaints import Complaint, complaint_of, error_of
from claimscore.pipeline.llm.providers.dialect import Dialect, encoded, learnt_from, wire_body
from claimscore.pipeline.llm.providers.headers import rate_limits
from claimscore.pipeline.llm.providers.reply import Reply
from claimscore.pipeline.llm.providers.transport import open_transport
from claimscore.types import Completion, Request

if TYPE_CHECKING:
    import httpx2

__all__ = ["DEFAULT_BASE_URL", "Dialect", "OpenAIProvider", "normalised_url"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"
KEY_NAME = "OPENAI_API_KEY"

#: Keys with few rights may ask a model and not list them.
_MAY_NOT_LIST = re.compile(r"missing[ _]scope|insufficient permissions")


class OpenAIProvider:
    """`openai:MODEL` at `base_url`. The key is sent there and nowhere else.

    `dialect` may be set to what was learnt of this server and model before; `on_dialect`
    hears of each change.
    """

    family = "openai"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        key: str | None = None,
        namespace: str | None = None,
        timeout_s: float = 120.0,
        allow_http_key: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
        dialect: Dialect | None = None,
        on_dialect: Callable[[Dialect], None] | None = None,
    ) -> None:
        self.model = model
        self.timeout_s = timeout_s
        self.base_url = normalised_url(base_url)
        self.namespace = namespace or self.base_url
        self._dialects = {model: dialect or Dialect()}
        self.on_dialect = on_dialect
        self._key = usable_key(key, KEY_NAME)
        if self._key and not allow_http_key and is_public_http(self.base_url):
            raise ConfigError(
                f"{self.base_url}: OPENAI_API_KEY would be sent unencrypted; use https, unset "
                "the key if the server needs none, or accept it with --allow-http-key"
            )
        self._headers = [
            (b"accept", b"application/json"),
            (b"user-agent", f"claimscore/{__version__}".encode()),
        ]
        if self._key:
            self._headers.append((b"authorization", f"Bearer {self._key}".encode()))
        self._post_headers = [*self._headers, (b"content-type", b"application/json")]
        self._transport = open_transport(self.base_url, timeout_s, transport)
        asks_openai = transport is None and self.base_url == DEFAULT_BASE_URL
        self._lacks_key = asks_openai and self._key is None

    @classmethod
    def from_config(cls, config: LLMConfig) -> OpenAIProvider:
        _, _, model = config.model.partition(":")
        if not model:
            raise ConfigError("--llm openai: name a model, as in openai:gpt-5-mini")
        return cls(
            model,
            base_url=(config.base_urls or (api_base_url() or DEFAULT_BASE_URL,))[0],
            key=api_key(),
            namespace=config.cache_namespace,
            timeout_s=config.timeout_s,
            allow_http_key=config.allow_http_key,
        )

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.model!r}, base_url={self.base_url!r})"

    async def complete(self, request: Request) -> Completion:
        if self._lacks_key:
            raise AuthenticationError(
                f"OPENAI_API_KEY is not set, and {self.base_url} answers nobody without a key; set "
                "it, or name another server with --base-url"
            )
        """Ask in the server's dialect; where it complains of that, learn and ask again.

        Those who ask at the same time meet a complaint once each, those after them never.
        """
        while True:
            dialect = self._dialects.get(request.model) or Dialect()
            body = encoded(wire_body(request, dialect))
            reply = await self._transport.send(
                "POST", "/chat/completions", self._post_headers, body
            )
            if 200 <= reply.status < 300:
                return self._completion(reply, request)
            complaint = complaint_of(*reply, key=self._key)
            learnt = learnt_from(complaint, dialect)
            if learnt is None:
                raise self._error(complaint, request.model)
            if self._dialects.get(request.model, dialect) == dialect:
                self._learn(request.model, learnt)  # else another task has learnt it meanwhile

    async def diagnose(self) -> None:
        """Raise `AuthenticationError` or `UnknownModelError` where the list of models proves it.

        Some gateways answer a wrong name or key with a 5xx, as if it could pass. Whatever is
        no proof is passed over in silence.
        """
        try:
            reply = await self._transport.send("GET", "/models", self._headers)
        except TransientError:
            return
        if reply.status in (401, 403):
            complaint = complaint_of(*reply, key=self._key)
            if not _MAY_NOT_LIST.search(complaint.words):
                raise self._error(complaint)
        elif reply.status == 200:
            others = models_instead(reply.body, self.model)
            if others:
                names = self._without_key(", ".join(others))
                raise UnknownModelError(f"{self.base_url} has no model {self.model!r}, but {names}")

    async def aclose(self) -> None:
        await self._transport.aclose()

    @property
    def dialect(self) -> Dialect:
        """How the provider's own model is asked; others that requests name have theirs."""
        return self._dialects[self.model]

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        self._dialects[self.model] = dialect

    def _learn(self, model: str, dialect: Dialect) -> None:
        self._dialects[model] = dialect
        if self.on_dialect is not None and model == self.model:
            self.on_dialect(dialect)

    def _completion(self, reply: Reply, request: Request) -> Completion:
        """The answer. A server that echoes the key does not get it into a cache or a table."""
        body = decoded(reply.body)
        if isinstance(body, dict) and body.get("error") and not body.get("choices"):
            raise self._late_error(reply, body["error"])
        return without_key(completion_of(body, request, rate_limits(reply.headers)), self._key)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    def _error(self, complaint: Complaint, model: str = "") -> ClaimscoreError:
        return error_of(complaint, base_url=self.base_url, model=model or self.model)

    def _late_error(self, reply: Reply, error: object) -> ClaimscoreError:
        """An error in an answer with status 200: OpenRouter sends that before it has one.

        Its code may be the status that was meant. Stops other than for money are not
        believed: they are about a provider behind the server.
        """
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        complaint = complaint_of(status, reply.headers, reply.body, self._key)
        meant = self._error(complaint)
        if isinstance(meant, RateLimitError | RejectedError | QuotaError):
            return meant
        return TransientError(
            f"{self.base_url}: an error instead of an answer: {complaint.message}",
            "body",
            limits=complaint.limits,
        )


def normalised_url(url: str) -> str:
    """One spelling a server: no default port, no slash at the end, no query."""
    return server_address(url, key_name=KEY_NAME)
