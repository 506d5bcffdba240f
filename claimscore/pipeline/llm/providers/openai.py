"""Chat completions of OpenAI and of all servers that speak its protocol.

`OpenAIProvider` asks one request at a time, `OpenAIBatches` many in a file. A request's body is
made in `schema`, refusals are read in `errors`, connections are in `connection`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from anyio import lowlevel

from claimscore.errors import ConfigError, QuotaError, RateLimitError, RejectedError, TransientError
from claimscore.http_headers import rate_limits
from claimscore.http_policy import scrubbed
from claimscore.pipeline.llm.batch_jobs.server import (
    BatchServer,
    JobRecord,
    Outcome,
    ServerJob,
    field,
)
from claimscore.pipeline.llm.providers.schema import chat_body, encode_json
from claimscore.pipeline.llm.providers.server import (
    ServerProvider,
    count_of,
    decode_json,
    valid_text,
)
from claimscore.types import JSON, Completion, RateLimits, Request, TokenLogprob, Usage

if TYPE_CHECKING:
    import openai

    from claimscore.pipeline.llm.providers.connection import Reply

#: Finish reasons of a generation that the server broke off: OpenRouter; vLLM; DeepSeek.
_BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}


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
        answer = valid_text(text), str(model), str(finish_reason)
        return Completion(*answer, usage, limits, logprobs, valid_text(thought))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        pass
    raise TransientError("the server's answer is no chat completion", "body", limits=limits)


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


def _logprobs(reported: object) -> tuple[TokenLogprob, ...] | None:
    """The tokens with their log-probabilities; None where they are not there, or odd.

    A token without a finite one is impossible and left out.
    """
    try:
        places = tuple(
            TokenLogprob(
                valid_text(place["token"]),
                _finite(place["logprob"]),
                tuple(
                    (valid_text(other["token"]), float(other["logprob"]))
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
    prompt_tokens = count_of(usage, "prompt_tokens")
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached, written = count_of(details, "cached_tokens"), count_of(details, "cache_write_tokens")
    if (cached or 0) + (written or 0) > (prompt_tokens or 0):
        cached = written = None
    answer_tokens = count_of(usage, "completion_tokens")
    details = usage.get("completion_tokens_details")
    reasoning = count_of(details, "reasoning_tokens")
    counted = (prompt_tokens or 0) + (answer_tokens or 0)
    if reasoning and answer_tokens is not None and usage.get("total_tokens") == counted + reasoning:
        answer_tokens += reasoning  # Google and xAI count them apart
    tier = service_tier if isinstance(service_tier, str) else ""
    return Usage(prompt_tokens, answer_tokens, cached, reasoning or None, written, tier)


# -- batch jobs: a file of requests is uploaded, a batch is made of it, files come back

#: The name under which a job carries ours, so that it can be found again.
METADATA = "claimscore"

_CHAT = "/v1/chat/completions"
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


class OpenAIBatches(BatchServer):
    """`/files` and `/batches` of OpenAI, and of servers with the same API."""

    def line(self, key: str, request: Request) -> bytes:
        body = decode_json(
            encode_json(self.provider.body(request, self.provider.dialect(request.model)))
        )
        item = {"custom_id": key, "method": "POST", "url": _CHAT, "body": body}
        # in ASCII, for some programs take other characters than \n for the end of a line
        return json.dumps(item).encode() + b"\n"

    async def make(self, record: JobRecord, lines: Sequence[bytes]) -> ServerJob:
        file = (f"claimscore-{record.name}.jsonl", b"".join(lines), "application/jsonl")
        form = {"headers": {"Content-Type": "multipart/form-data"}}
        uploaded = await self.ask(
            "post", "/files", body={"purpose": "batch"}, files={"file": file}, options=form
        )
        if not (file_id := field(uploaded, "id", "")):
            raise self.odd()
        await lowlevel.checkpoint_if_cancelled()  # after a stop, no step costs money
        batch: JSON = {"input_file_id": file_id, "endpoint": _CHAT, "completion_window": "24h"}
        batch["metadata"] = {METADATA: record.name}
        return self._job(await self.ask("post", "/batches", body=batch), record)

    async def find(self, record: JobRecord) -> list[str]:
        """By the name that it carries, among all of the account's."""
        async for batch in self.jobs("/batches", "after", 100):
            if field(field(batch, "metadata", JSON()), METADATA, "") == record.name:
                return [self._job(batch, record).id]
        return []

    async def look(self, record: JobRecord) -> ServerJob:
        return self._job(await self.ask("get", f"/batches/{record.batch_id}"), record)

    def read(self, line: bytes, record: JobRecord) -> tuple[str, Outcome] | None:
        item = decode_json(line)
        key, response = field(item, "custom_id", ""), field(item, "response", JSON())
        if not key:
            return None
        status, body = field(response, "status_code", 0), response.get("body")
        if not status:  # it was not begun, or the model timed out
            why = field(field(item, "error", JSON()), "message", "it was not begun")
            why = scrubbed(why, *self.provider.secrets)
            return key, TransientError(f"{self.provider.base_url}: {why}")
        if not 200 <= status < 300:
            return key, self.error(status, {}, json.dumps(body).encode(), record)
        return key, self.answer(body)

    def _job(self, batch: object, record: JobRecord) -> ServerJob:
        """Servers leave out what they do not count; without an id or a status it is no job."""
        batch_id, status = field(batch, "id", ""), field(batch, "status", "")
        if not batch_id or not status:
            raise self.odd()
        refusal = None
        if status == "failed":
            faults: list[JSON] = field(field(batch, "errors", JSON()), "data", [])
            fault = faults[0] if faults else "no reason given"
            refusal = self.error(400, {}, json.dumps({"error": fault}).encode(), record)
            if isinstance(refusal, RejectedError):
                refusal = ConfigError(f"the batch was refused: {refusal}")
        files = (field(batch, f"{kind}_file_id", "") for kind in ("output", "error"))
        paths = tuple(f"/files/{file}/content" for file in files if file)
        return ServerJob(batch_id, status, status in _ENDED, refusal, paths)


# -- servers


class OpenAIProvider(ServerProvider):
    """`openai:MODEL`, at OpenAI or at any server with its chat completions."""

    family = "openai"
    usage = "openai:MODEL", "any OpenAI-compatible server (--base-url, OPENAI_API_KEY)"
    key_variable = "OPENAI_API_KEY"
    address_variable = "OPENAI_BASE_URL"
    default_base_url = "https://api.openai.com/v1"
    path = "/chat/completions"
    body = staticmethod(chat_body)
    read = staticmethod(completion_of)
    several_servers = has_logprobs = has_embeddings = True
    batches: ClassVar[type[BatchServer] | None] = OpenAIBatches

    @functools.cached_property
    def sdk(self) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(base_url=self.base_url, **self.sdk_options)

    def _answer(self, reply: Reply, request: Request) -> Completion:
        """The answer; some servers send an error with status 200 before they have one.

        OpenRouter does. Its code may be the status that was meant. Stops other than for money are
        not believed: they are about a provider behind the server.
        """
        answer = decode_json(reply.body)
        error = answer.get("error") if isinstance(answer, dict) else None
        if not error or answer.get("choices"):
            return self.completion(answer, request, rate_limits(reply.headers))
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        refusal = self.refusal(status, reply.headers, reply.body)
        meant = self.error(refusal, self.model)
        if isinstance(meant, RateLimitError | RejectedError | QuotaError):
            raise meant
        raise TransientError(
            f"{self.base_url}: an error instead of an answer: {refusal.message}",
            "body",
            limits=refusal.limits,
        )
