"""Chat completions of OpenAI and of every server that speaks its protocol.

The only home of the OpenAI SDK and of httpx2. How a server is asked (its dialect) is
learned from its complaints and is not part of a request, so not of the cache key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import httpx2
import openai

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
from claimscore.types import JSON, Completion, Message, OutputSchema, Request, Usage

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_DEFAULT_PORTS = {"http": 80, "https": 443}

OutputMode = Literal["json_schema", "json_object", "text"]
_NEXT_MODE: dict[OutputMode, OutputMode] = {"json_schema": "json_object", "json_object": "text"}


@dataclasses.dataclass(frozen=True, slots=True)
class Dialect:
    """How this server wants to be asked."""

    output_mode: OutputMode = "json_schema"
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    omitted: frozenset[str] = frozenset()


class OpenAIProvider:
    """`openai:MODEL` at `base_url`. The key is sent there and nowhere else."""

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
    ) -> None:
        self.model = model
        self.base_url = normalised_url(base_url)
        self.namespace = namespace or self.base_url
        self.dialect = Dialect()
        self._key = key
        if key and not allow_http_key and _is_public_http(self.base_url):
            raise ConfigError(
                f"{self.base_url}: OPENAI_API_KEY would be sent unencrypted; use https, unset "
                "the key if the server needs none, or accept it with --allow-http-key"
            )
        # Said outright: the SDK would look for other credentials in the environment.
        authorization: Any = f"Bearer {key}" if key else openai.Omit()
        self._options: Any = {"headers": {"Authorization": authorization}}
        self._timeout = httpx2.Timeout(timeout_s, pool=None)
        self._transport = transport
        self._ssl = httpx2.create_ssl_context()
        self._clients: list[openai.AsyncOpenAI] = []
        self._idle: list[openai.AsyncOpenAI] = []

    @classmethod
    def from_config(cls, config: LLMConfig) -> OpenAIProvider:
        _, _, model = config.model.partition(":")
        if not model:
            raise ConfigError("--llm openai: name a model, as in openai:gpt-5-mini")
        return cls(
            model,
            base_url=config.base_url or api_base_url() or DEFAULT_BASE_URL,
            key=api_key(),
            namespace=config.cache_namespace,
            timeout_s=config.timeout_s,
            allow_http_key=config.allow_http_key,
        )

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.model!r}, base_url={self.base_url!r})"

    async def complete(self, request: Request) -> Completion:
        """Ask in the server's dialect; where it complains of that, learn and ask again."""
        while True:
            dialect = self.dialect
            try:
                response = await self._post(wire_body(request, dialect))
            except openai.APIStatusError as exc:
                learned = _learned(dialect, exc)
                if learned is None:
                    raise self._error(exc) from None
                if self.dialect == dialect:  # else another task has learned it meanwhile
                    self.dialect = learned
            else:
                return self._without_key(_completion(response, request))

    def _without_key(self, completion: Completion) -> Completion:
        """A server that echoes the key does not get it into a cache or a table."""
        if not self._key:
            return completion
        return dataclasses.replace(
            completion,
            text=completion.text.replace(self._key, "[key]"),
            model=completion.model.replace(self._key, "[key]"),
        )

    async def aclose(self) -> None:
        clients, self._clients, self._idle = self._clients, [], []
        for client in clients:
            await client.close()

    async def _post(self, body: JSON) -> httpx2.Response:
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            with self._mapped():
                return await client.post(
                    "/chat/completions", cast_to=httpx2.Response, body=body, options=self._options
                )
        finally:
            self._idle.append(client)

    def _new_client(self) -> openai.AsyncOpenAI:
        """A client for one request at a time.

        httpx2's pool looks at all its connections for every request: one pool for 128 of
        them cost three times the CPU of one pool each.
        """
        client = openai.AsyncOpenAI(
            api_key=self._key or "",
            base_url=self.base_url,
            max_retries=0,
            timeout=self._timeout,
            http_client=httpx2.AsyncClient(
                follow_redirects=False,
                limits=httpx2.Limits(max_keepalive_connections=1),
                transport=self._transport,
                verify=self._ssl,
            ),
            _enforce_credentials=False,
        )
        self._clients.append(client)
        return client

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        """Errors of the SDK and of its transport as ours.

        Status errors pass: `complete` may learn from them. Causes are cut off (`from
        None`): they may quote headers or a key.
        """
        try:
            yield
        except openai.APIStatusError:
            raise
        except openai.APITimeoutError:
            raise TransientError(f"{self.base_url}: no answer in time") from None
        except (openai.APIConnectionError, httpx2.TransportError, httpx2.DecodingError) as exc:
            reason = self._scrubbed(str(exc.__cause__ or exc))
            raise TransientError(f"{self.base_url}: connection failed: {reason}") from None
        except (openai.OpenAIError, httpx2.InvalidURL) as exc:
            raise ConfigError(f"{self.base_url}: {self._scrubbed(str(exc))}") from None

    def _error(self, exc: openai.APIStatusError) -> ClaimscoreError:
        """A refusal of the server as the error that decides what happens next."""
        status, code = exc.status_code, _code(exc)
        said = self._scrubbed(f"HTTP {status}: {_server_message(exc)}")
        where = f"{self.base_url}: {said}"
        if status == 401:  # the server's words are left out: some quote the key
            return AuthenticationError(
                f"{self.base_url} refused the key (HTTP 401); check OPENAI_API_KEY"
            )
        if status == 403:
            return AuthenticationError(f"{where}; check OPENAI_API_KEY and its rights")
        if _is_unknown_model(status, code, said):
            return UnknownModelError(f"{self.base_url} has no model {self.model!r}: {said}")
        if status == 402 or (status == 429 and code in _QUOTA_CODES):
            return QuotaError(f"{where}; fill the account")
        if status == 429 or (status == 503 and "retry-after" in exc.response.headers):
            return RateLimitError(where, _retry_after_s(exc.response.headers))
        if status in (408, 409, 425) or status >= 500:
            return TransientError(where)
        if 300 <= status < 400:
            target = exc.response.headers.get("location", "elsewhere")
            return ConfigError(f"{self.base_url} points to {target}; name that as --base-url")
        if status in (404, 405, 410):
            return ConfigError(f"{where}; check --base-url")
        return RejectedError(where, _rejection_kind(code, said))

    def _scrubbed(self, message: str) -> str:
        """A message without the key, whole or as servers abbreviate it."""
        if self._key:
            message = message.replace(self._key, "[key]")
        return _KEY_LIKE.sub("[key]", message)


# -- URLs


def normalised_url(url: str) -> str:
    """One spelling a server: no default port, no slash at the end, no query."""
    try:
        parts = urlsplit(url.strip())
    except ValueError as exc:
        raise ConfigError(f"the base URL {url!r}: {exc}") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ConfigError("the base URL must look like https://host/v1")
    if parts.username or parts.password:
        raise ConfigError(
            f"the base URL of {parts.hostname} holds a user name or password; "
            "leave it out and set OPENAI_API_KEY"
        )
    try:
        port = parts.port
    except ValueError as exc:
        raise ConfigError(f"the base URL of {parts.hostname}: {exc}") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _is_public_http(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and not loopback


# -- what is sent


def wire_body(request: Request, dialect: Dialect) -> JSON:
    """The body of POST /chat/completions."""
    messages = request.messages
    body: JSON = {
        "model": request.model,
        "temperature": request.temperature,
        "top_p": request.top_p,
        dialect.limit_field: request.max_tokens,
    }
    if request.output is not None:
        if dialect.output_mode != "json_schema":
            messages = _with_schema_as_text(messages, request.output)
        if dialect.output_mode != "text":
            body["response_format"] = _response_format(request.output, dialect.output_mode)
    body["messages"] = [{"role": m.role, "content": _sendable(m.content)} for m in messages]
    return {name: value for name, value in body.items() if name not in dialect.omitted}


def _sendable(text: str) -> str:
    """Text as UTF-8 can carry it: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _response_format(output: OutputSchema, mode: OutputMode) -> JSON:
    if mode == "json_object":
        return {"type": "json_object"}
    schema = {"name": output.name, "schema": output.schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _with_schema_as_text(
    messages: tuple[Message, ...], output: OutputSchema
) -> tuple[Message, ...]:
    schema = json.dumps(output.schema, ensure_ascii=False)
    order = f"Answer with one JSON object and nothing else. Its JSON schema:\n{schema}"
    if messages and messages[0].role == "system":
        first = Message("system", f"{messages[0].content}\n\n{order}")
        return (first, *messages[1:])
    return (Message("system", order), *messages)


# -- what comes back


def _completion(response: httpx2.Response, request: Request) -> Completion:
    """The first choice; a body that is none is a broken answer, worth asking again."""
    try:
        body = json.loads(response.content)
        choice = body["choices"][0]
        message = choice["message"]
        text = _text(message.get("content"))
        finish_reason = choice.get("finish_reason") or "stop"
        refusal = message.get("refusal")
        if refusal and not text:
            text, finish_reason = _text(refusal), "refusal"
        model = body.get("model") or request.model
        return Completion(text, str(model), str(finish_reason), _usage(body.get("usage")))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise TransientError("the server's answer is no chat completion") from None


def _text(content: object) -> str:
    """A message's text; some servers send a list of parts."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError("content is neither text nor parts")
    return content


def _usage(reported: object) -> Usage:
    """Tokens as reported; what is no count is as good as not reported."""
    usage = reported if isinstance(reported, dict) else {}
    return Usage(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and value >= 0 else None


# -- complaints

_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_UNKNOWN_MODEL_CODES = {"model_not_found", "invalid_model"}
_UNKNOWN_MODEL = re.compile(
    r"invalid model(?: id| name|:)|not a valid model id|model not exist|server is pinned to '",
    re.IGNORECASE,
)  # Mistral, LiteLLM; OpenRouter; DeepSeek; transformers serve
_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk)-[\w*.…-]{4,}|(?<=Bearer )\S+")


def _code(exc: openai.APIStatusError) -> str:
    return str(exc.code or exc.type or "")


def _server_message(exc: openai.APIStatusError) -> str:
    """What the server said, on one line and not a whole HTML page."""
    body = exc.body
    message = body.get("message") or body.get("detail") if isinstance(body, dict) else None
    text = message if isinstance(message, str) else str(body or exc.response.reason_phrase)
    return " ".join(text.split())[:500]


def _learned(dialect: Dialect, exc: openai.APIStatusError) -> Dialect | None:
    """The dialect to ask in next, or None where the complaint is about something else."""
    if exc.status_code not in (400, 422):
        return None
    param, message = str(exc.param or ""), _server_message(exc).lower()
    said = f"{param} {message}"
    if re.search(r"response_format|json_schema|json_object|guided|structured.output", said):
        mode = _NEXT_MODE.get(dialect.output_mode)
        return None if mode is None else dataclasses.replace(dialect, output_mode=mode)
    if not re.search(r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|extra", said):
        return None
    if dialect.limit_field == "max_tokens" and "max_tokens" in said:
        return dataclasses.replace(dialect, limit_field="max_completion_tokens")
    for name in ("temperature", "top_p"):
        if name in said and name not in dialect.omitted:
            return dataclasses.replace(dialect, omitted=dialect.omitted | {name})
    return None


def _is_unknown_model(status: int, code: str, said: str) -> bool:
    """Many servers say 400 instead of 404; their words must then be about the name."""
    if status == 404:
        return code == "model_not_found" or "model" in said.lower()
    return status == 400 and (code in _UNKNOWN_MODEL_CODES or bool(_UNKNOWN_MODEL.search(said)))


def _rejection_kind(code: str, said: str) -> str:
    said = f"{code} {said}".lower()
    if re.search(r"context_length|context length|context window|maximum context", said):
        return "context_length"
    if re.search(r"content_filter|content_policy|content management policy|moderation", said):
        return "content_filter"
    return "rejected"


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds from `retry-after-ms` or `retry-after`; None where there is no usable figure."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit_s
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < 86_400:
            return seconds
    return None
