"""Anthropic's Messages API, version 2026-10-21.

`AnthropicProvider` asks one request at a time, `AnthropicBatches` many in a job. That version of
the API takes no `temperature` and no `top_p`: every answer is sampled as the model's maker sees
fit.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError, TransientError
from claimscore.http_headers import rate_limits
from claimscore.pipeline.llm.batch_jobs.server import (
    BatchServer,
    JobRecord,
    Outcome,
    ServerJob,
    field,
)
from claimscore.pipeline.llm.providers.schema import Dialect, encode_json, with_schema_in_words
from claimscore.pipeline.llm.providers.server import (
    ServerProvider,
    count_of,
    decode_json,
    valid_text,
)
from claimscore.types import JSON, Completion, OutputSchema, RateLimits, Request, Usage

if TYPE_CHECKING:
    import anthropic

    from claimscore.pipeline.llm.providers.connection import Reply

#: The version that the bodies here are written for.
API_VERSION = "2026-10-21"

#: Stop reasons in the words of OpenAI's protocol; others stay as they are.
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "model_length",
    "refusal": "content_filter",  # by a classifier of the server; a model declines in words
}


# -- bodies; pure


def message_body(request: Request, dialect: Dialect) -> JSON:
    """The body of POST /v1/messages, and the `params` of a request in a batch.

    What ends with `request.shared` is marked as a beginning that the server may cache, if it is
    long enough for the model.
    """
    messages, config = request.messages, {}
    if request.output is not None and dialect.output_mode == "json_schema":
        config = {"format": _output_format(request.output)}
    elif request.output is not None:
        messages = with_schema_in_words(messages, request.output)
    system = "\n\n".join(content for role, content in messages if role == "system")
    turns: list[JSON] = [
        {"role": role, "content": content} for role, content in messages if role != "system"
    ]
    if turns:
        turns[-1]["content"] = _parts(turns[-1]["content"], request.shared)
    body: JSON = {"model": request.model, "max_tokens": request.max_tokens, "messages": turns}
    if system:
        body["system"] = system
    body |= request.extra
    if config:
        body["output_config"] = {**body.get("output_config", {}), **config}
    return body


def _output_format(output: OutputSchema) -> JSON:
    """The schema without what the API refuses, such as bounds of numbers: in words it stays."""
    from anthropic import transform_schema

    schema = {"title": output.name, **output.schema}
    return {"type": "json_schema", "schema": transform_schema(schema)}


def _parts(content: str, shared: str) -> str | list[JSON]:
    """The content in two parts, the first to be cached, where something follows it."""
    before, _, after = content.partition(shared) if shared else (content, "", "")
    if not after.strip():
        return content
    beginning = before + shared
    marked = {"type": "text", "text": beginning, "cache_control": {"type": "ephemeral"}}
    return [marked, {"type": "text", "text": after}]


# -- answers; pure


def message_completion(
    body: object, request: Request, limits: RateLimits | None = None
) -> Completion:
    """The answer in a decoded message; raises `TransientError` where there is none.

    Such an answer is broken, and worth asking for again.
    """
    try:
        blocks = body["content"]  # type: ignore[index] # anything else is caught below
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
        reason = body["stop_reason"]  # type: ignore[index] # the same
        if reason is None:
            raise ValueError("not stopped")
        return Completion(
            valid_text(text),
            str(body.get("model") or request.model),  # type: ignore[attr-defined] # the same
            _FINISH_REASONS.get(reason, str(reason)),
            _usage(body.get("usage")),  # type: ignore[attr-defined] # the same
            limits,
            reasoning=valid_text("\n".join(thoughts)),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        pass
    raise TransientError("the server's answer is no message", "body", limits=limits)


def _usage(reported: Any) -> Usage:
    """Tokens as reported: those of a prompt are what was read, written and neither, together."""
    usage = reported if isinstance(reported, dict) else {}
    cached = count_of(usage, "cache_read_input_tokens")
    written = count_of(usage, "cache_creation_input_tokens")
    rest = count_of(usage, "input_tokens")
    prompt = None if rest is None else rest + (cached or 0) + (written or 0)
    details = usage.get("output_tokens_details")
    thinking = count_of(details, "thinking_tokens")
    is_fast = usage.get("speed") == "fast"  # billed as a tier of its own
    tier = "fast" if is_fast else usage.get("service_tier")
    return Usage(
        prompt,
        count_of(usage, "output_tokens"),
        cached,
        thinking or None,
        written,
        tier if isinstance(tier, str) else "",
    )


# -- batch jobs: one call sends the requests, one file has the results. A job carries no name of
# ours: one whose creation was not answered is looked for by its time and its count of requests

_PATH = "/v1/messages/batches"

#: So many seconds the clocks of this machine and of the server may differ.
_CLOCKS_S = 120.0

#: The statuses that errors have online; an error of another type passes.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
}


class AnthropicBatches(BatchServer):
    """`/v1/messages/batches` of Anthropic."""

    def line(self, key: str, request: Request) -> bytes:
        body = self.provider.body(request, self.provider.dialect(request.model))
        return encode_json({"custom_id": key, "params": body})

    async def make(self, record: JobRecord, lines: Sequence[bytes]) -> ServerJob:
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        return self._job(await self.ask("post", _PATH, content=body))

    async def find(self, record: JobRecord) -> list[str]:
        """Those with as many requests that were made since then."""
        fitting: list[str] = []
        async for job in self.jobs(_PATH, "after_id", 1000):
            try:
                made_at = datetime.fromisoformat(field(job, "created_at", "9999-12-31T00:00:00Z"))
                seconds = made_at.timestamp()
                n_requests = sum(field(job, "request_counts", JSON()).values())
            except (ValueError, TypeError, OverflowError):
                raise self.odd() from None
            if seconds < record.sent_at - _CLOCKS_S:
                break
            if n_requests == len(record.keys):
                fitting.append(self._job(job).id)
        return fitting

    async def look(self, record: JobRecord) -> ServerJob:
        return self._job(await self.ask("get", f"{_PATH}/{record.batch_id}"))

    def read(self, line: bytes, record: JobRecord) -> tuple[str, Outcome] | None:
        item = decode_json(line)
        key, result = field(item, "custom_id", ""), field(item, "result", JSON())
        if not key:
            return None
        kind, error = field(result, "type", ""), field(result, "error", JSON())
        if kind == "succeeded":
            return key, self.answer(result.get("message"))
        if kind == "errored":
            status = _STATUSES.get(field(field(error, "error", JSON()), "type", ""), 500)
            return key, self.error(status, {}, json.dumps(error).encode(), record)
        return key, TransientError(f"{self.provider.base_url}: the request is {kind}")

    def _job(self, job: object) -> ServerJob:
        batch_id, status = field(job, "id", ""), field(job, "processing_status", "")
        if not batch_id or not status:
            raise self.odd()
        path = f"{_PATH}/{batch_id}/results"
        return ServerJob(batch_id, status, status == "ended", None, (path,))


# -- servers


class AnthropicProvider(ServerProvider):
    """`anthropic:MODEL`, at Anthropic or at a gateway with its Messages API."""

    family = "anthropic"
    usage = "anthropic:MODEL", "Anthropic (ANTHROPIC_API_KEY; extra: anthropic)"
    key_variable = "ANTHROPIC_API_KEY"
    address_variable = "ANTHROPIC_BASE_URL"
    default_base_url = "https://api.anthropic.com"
    path = "/v1/messages"
    body = staticmethod(message_body)
    read = staticmethod(message_completion)
    batches = AnthropicBatches

    def __init__(self, model: str, *, base_url: str = "", **options: Any) -> None:
        address = base_url.rstrip("/").removesuffix("/v1")
        super().__init__(model, base_url=address, **options)
        self._tokens: Counter[str] = Counter()

    def _vendor_headers(self) -> dict[str, str]:
        return {"anthropic-version": API_VERSION, **super()._vendor_headers()}

    @functools.cached_property
    def sdk(self) -> anthropic.AsyncAnthropic:
        import anthropic

        return anthropic.AsyncAnthropic(
            base_url=self.base_url, open_telemetry=False, **self.sdk_options
        )

    @classmethod
    def from_config(cls, config: LLMConfig) -> Self:
        """`ConfigError` where the SDK is not installed, too."""
        if importlib.util.find_spec("anthropic") is None:
            raise ConfigError(
                f"--llm {config.model}: Anthropic's SDK is not installed; "
                "pip install 'claimscore[anthropic]'"
            )
        return super().from_config(config)

    def _answer(self, reply: Reply, request: Request) -> Completion:
        """The answer with one limit of tokens: of how many are in questions and how many in answers
        all answers so far tell."""
        completion = self.completion(decode_json(reply.body), request)
        prompt, answer, cached, *_ = completion.usage
        counted = {"input": (prompt or 0) - (cached or 0), "output": answer or 0}
        self._tokens.update(counted, total=(prompt or 0) + (answer or 0))
        if total := self._tokens["total"]:
            shares = self._tokens["input"] / total, self._tokens["output"] / total
            completion.limits = rate_limits(reply.headers, shares=shares)
        return completion
