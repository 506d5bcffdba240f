"""`POST /v1/chat/completions` of the loopback server: what becomes of each request.

In order: who may ask, outages, the script, the quota, what the question is, a fault drawn by
rate, the budget, the latency, the answer. A request's draw depends on the seed and its
number alone, so all clients meet the same faults.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TextIO, cast

from claimscore.errors import ClaimscoreError
from claimscore.types import Completion
from tests.fake_server.budget import Budget, Refused, retry_after
from tests.fake_server.counts import Counts
from tests.fake_server.http import Exchange, error_body, json_response, response
from tests.fake_server.settings import LATE_FAULTS, PAID_FAULTS, Settings

Body = dict[str, Any]
AnswerFunction = Callable[[Body], Awaitable[Completion]]

_FINISH_REASONS = {"filtered": "content_filter", "length": "length"}
_sorted_json = json.JSONEncoder(sort_keys=True).encode


def content_digest(body: Body) -> str:
    """The same for the same question, whatever the dialect it came in."""
    content = _sorted_json([body["model"], body["messages"]])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclasses.dataclass(slots=True)
class _Asked:
    """A request on its way through the server; `limits` are headers as of its admission."""

    exchange: Exchange
    body: Body
    number: int
    content: str
    prompt_tokens: int
    fault: str = ""
    argument: str = ""
    charged: float = 0.0
    limits: dict[str, str] | None = None


class Chat:
    """The endpoint. `later` and `spawn` are the loop's, or a test's with a clock of its own."""

    def __init__(
        self,
        settings: Settings,
        answer: AnswerFunction | None,
        *,
        later: Callable[..., Any],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        clock: Callable[[], float] = time.monotonic,
        log: TextIO | None = None,
        keep: bool = False,
    ) -> None:
        self.settings = settings
        self.counts = Counts()
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self._answer = answer
        self._later = later
        self._spawn = spawn
        self.clock = clock
        self._log = log
        self._keep = keep
        self.restart()

    def restart(self) -> None:
        """Be a server that nobody has asked yet."""
        self.counts = Counts()
        self._budget = Budget(self.settings, self.clock())
        self._draws = random.Random(self.settings.seed)
        self._latencies = random.Random(self.settings.seed + 1)

    def change(self, settings: Settings) -> None:
        """Go on with other settings; what was drawn and spent stays so."""
        self.settings = settings
        self._budget = Budget(settings, self.clock(), self._budget)

    def answer_now(self, body: Body) -> Completion | None:
        """What the answer function says, for a batch; None where the settings say it."""
        if self._answer is None or self.settings.text is not None:
            return None
        return _result(self._answer(body))

    # -- taking a request in

    def take(self, exchange: Exchange) -> None:
        """Everything from the first byte to the last; what takes time goes on by itself.

        What is no request (some clients ask without messages, for the headers) is not counted.
        """
        try:
            asked = self._counted(exchange)
        except (ValueError, KeyError, TypeError) as exc:
            self.counts.outcomes["no request"] += 1
            headers = {} if self.settings.headers == "none" else self._budget.headers(self.clock())
            error = error_body(f"no chat request: {exc!r}", kind="invalid_request_error")
            exchange.reply(json_response(400, error, headers))
            return
        now, draw = self.clock(), self._draws.random()
        fault = self._fault_of(asked, now) or _drawn(self.settings.rates, draw)
        asked.fault, _, asked.argument = fault.partition(":")
        if asked.fault and asked.fault not in PAID_FAULTS and asked.fault not in LATE_FAULTS:
            self._refuse(asked)
            return
        asked.charged = asked.prompt_tokens + self._expected_tokens(asked)
        refused = self._budget.admit(asked.charged, now)
        if refused is not None:
            self._refuse_by_limit(asked, refused, now)
            return
        if self.settings.headers == "admission":
            asked.limits = self._budget.headers(now)
        self._later(self._latency_s(asked), self._after_latency, asked)

    def _counted(self, exchange: Exchange) -> _Asked:
        body = json.loads(exchange.body)
        if not body["messages"]:
            raise ValueError("no messages")
        content = content_digest(body)
        number = self.counts.arrive(content, self.clock())
        if not exchange.line.used:
            exchange.line.used = True
            self.counts.connections += 1
        if self._keep:
            self.bodies.append(body)
            self.headers.append(exchange.headers())
        return _Asked(exchange, body, number, content, n_characters(body) // 4)

    def _fault_of(self, asked: _Asked, now: float) -> str:
        """What stands in the way of this request, "" where nothing does."""
        settings, counts = self.settings, self.counts
        if settings.key is not None:
            given = asked.exchange.headers().get("authorization", "")
            if given != f"Bearer {settings.key}":
                return "401"
        for outage in settings.outages:
            if outage.holds(counts.since_first_s(now), asked.number):
                return "reset" if outage.how == "refuse" else outage.how
        if settings.models and asked.body["model"] not in settings.models:
            return "model"
        if asked.number in settings.script:
            return settings.script[asked.number]
        if settings.quota_after is not None and len(counts.paid_at) >= settings.quota_after:
            return "quota"
        return fault_of_content(settings, asked.body, asked.content)

    def _latency_s(self, asked: _Asked) -> float:
        settings = self.settings
        seconds = settings.latency_s
        if settings.latency_sigma:
            seconds *= math.exp(settings.latency_sigma * self._latencies.gauss(0.0, 1.0))
        return seconds + (float(asked.argument) if asked.fault == "delay" else 0.0)

    def _expected_tokens(self, asked: _Asked) -> int:
        """Tokens of the answer that the budget is charged with before there is one."""
        known = completion_tokens(self.settings, asked.content)
        if self.settings.charge == "known" and known is not None:
            return min(known, max_tokens(asked.body))
        return max_tokens(asked.body)

    # -- refusals

    def _refuse(self, asked: _Asked) -> None:
        status, error = refusal(asked.fault, asked.body)
        headers = self._limit_headers(asked)
        if asked.argument:
            headers = {**headers, "retry-after-ms": str(round(float(asked.argument) * 1000))}
        self._end(asked, asked.fault)
        asked.exchange.reply(json_response(status, error, headers))

    def _refuse_by_limit(self, asked: _Asked, refused: Refused, now: float) -> None:
        settings = self.settings
        what = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}
        error = error_body(
            f"Rate limit reached for {asked.body['model']} on {what[refused.limit]}. "
            f"Please try again in {math.ceil(refused.wait_s * 1000)}ms.",
            kind=refused.limit,
            code="rate_limit_exceeded",
        )
        headers = {**self._limit_headers(asked), **retry_after(settings, refused.wait_s)}
        self._end(asked, "limit")
        asked.exchange.reply(json_response(429, error, headers))

    # -- answers

    def _after_latency(self, asked: _Asked) -> None:
        if asked.exchange.line.cut:
            self._end(asked, "cut")
        elif asked.fault in ("500", "502", "504"):
            self._refuse(asked)
        elif asked.fault == "stall":
            asked.exchange.hold(b"", lambda: self._end(asked, "stall"))
        elif asked.fault in ("reset", "hangup"):
            self._end(asked, asked.fault)
            if asked.fault == "reset":
                asked.exchange.reset()
            else:
                asked.exchange.reply(b"", close=True)
        elif self._answer is None or self.settings.text is not None:
            self._send_answer(asked, None)
        else:
            self._spawn(self._ask_and_send(asked))

    async def _ask_and_send(self, asked: _Asked) -> None:
        """An answer that somebody else makes; a bug of theirs is a 500 and is raised at last."""
        assert self._answer is not None
        try:
            completion = await self._answer(asked.body)
        except ClaimscoreError as exc:
            self._end(asked, "400")
            asked.exchange.reply(json_response(400, error_body(str(exc))))
        except Exception as exc:
            self._end(asked, "500")
            asked.exchange.reply(json_response(500, error_body(f"a bug in the test: {exc!r}")))
            raise
        else:
            self._send_answer(asked, completion)

    def _send_answer(self, asked: _Asked, completion: Completion | None) -> None:
        settings, fault = self.settings, asked.fault
        reply, prompt_tokens, tokens = chat_completion(
            settings, asked.body, asked.number, asked.content, completion, fault
        )
        now = self.clock()
        self._budget.settle(asked.charged, prompt_tokens + tokens, now)
        self.counts.pay(asked.content, prompt_tokens, tokens, now)
        headers = self._limit_headers(asked)
        self._end(asked, "200" if fault == "delay" else fault or "200")
        if fault == "malformed":
            asked.exchange.reply(response(200, b'{"choices": [{"mess', headers))
            return
        data = json_response(200, reply, headers)
        if fault == "half":
            asked.exchange.hold(data[: len(data) // 2], lambda: None)
        elif fault == "truncated":
            asked.exchange.reply(data[: len(data) // 2], close=True)
        else:
            asked.exchange.reply(data)

    def _limit_headers(self, asked: _Asked) -> dict[str, str]:
        """Headers of the limits, as of now or of the admission."""
        if self.settings.headers == "none":
            return {}
        return self._budget.headers(self.clock()) if asked.limits is None else asked.limits

    def _end(self, asked: _Asked, outcome: str) -> None:
        """Count it; one line in the log, with the system before the answer is sent."""
        self.counts.end(outcome)
        if self._log is not None:
            line = {
                "n": asked.number,
                "content": asked.content,
                "outcome": outcome,
                "time": time.time(),
            }
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()


def _result(awaitable: Awaitable[Completion]) -> Completion:
    """What a coroutine that waits for nothing returns, without a loop."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as done:
        return cast(Completion, done.value)
    raise RuntimeError("the answer to a line of a batch must not wait for anything")


# -- the same for online requests and lines of a batch


def n_characters(body: Body) -> int:
    """Characters of all messages; those of a part that is text, where there are parts."""
    total = 0
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            total += len(content)
        else:
            total += sum(len(part.get("text", "")) for part in content or ())
    return total


def max_tokens(body: Body) -> int:
    """What the client allows for the answer."""
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or 4096)


def completion_tokens(settings: Settings, content: str) -> int | None:
    """The length of the answer where the settings know it: fixed, or by the question."""
    length = settings.completion_tokens
    if isinstance(length, tuple):
        least, most = length
        return least + int(content[:8], 16) % (most - least + 1)
    return length


def fault_of_content(settings: Settings, body: Body, content: str) -> str:
    """What this question always gets."""
    if settings.logprobs == "refused" and body.get("logprobs"):
        return "logprobs"
    if settings.max_prompt_chars is not None and n_characters(body) > settings.max_prompt_chars:
        return "context"
    if settings.on_content:
        text = _sorted_json(body["messages"])
        for piece, fault in settings.on_content.items():
            if piece in text:
                return fault
    if settings.by_content:
        return _drawn(settings.by_content, int(content[8:], 16) / 16**8)
    return ""


def _drawn(rates: Any, draw: float) -> str:
    """The fault whose share a number from 0 to 1 falls into."""
    for fault, rate in rates.items():
        draw -= rate
        if draw < 0:
            return str(fault)
    return ""


def chat_completion(
    settings: Settings,
    body: Body,
    number: int,
    content: str,
    completion: Completion | None,
    fault: str = "",
) -> tuple[Body, int, int]:
    """The body of an answer, and the tokens of question and answer that it is billed at."""
    text = (settings.text or "").replace("$digest", content)
    finish, usage = "stop", None
    if completion is not None:
        text, finish, usage = completion.text, completion.finish_reason, completion.usage
    prompt_tokens = (usage and usage.prompt_tokens) or n_characters(body) // 4
    tokens = (usage and usage.completion_tokens) or completion_tokens(settings, content)
    if tokens is None:
        tokens = len(text) // 4
    elif tokens > max_tokens(body):
        tokens, finish = max_tokens(body), "length"
    message: Body = {"role": "assistant", "content": text}
    if fault == "refusal":
        message |= {"content": None, "refusal": "I cannot help with that."}
    elif fault == "empty":
        message["content"] = ""
    choice = {
        "index": 0,
        "finish_reason": _FINISH_REASONS.get(fault, finish),
        "message": message,
        "logprobs": None,
    }
    if completion is not None and body.get("logprobs") and settings.logprobs == "given":
        choice["logprobs"] = _logprobs(completion)
    reply = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [choice],
    }
    if settings.usage:
        reply["usage"] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        }
    return reply, prompt_tokens, tokens


def _logprobs(completion: Completion) -> Body | None:
    """The answer's tokens, as OpenAI's servers send them."""
    if completion.logprobs is None:
        return None

    def token(text: str, logprob: float) -> Body:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    content = [
        token(place.token, place.logprob) | {"top_logprobs": [token(*other) for other in place.top]}
        for place in completion.logprobs
    ]
    return {"content": content, "refusal": None}


def refusal(fault: str, body: Body) -> tuple[int, Body]:
    """Status and body of a refusal, in OpenAI's words."""
    if fault == "quota":
        message = "You exceeded your current quota, please check your plan and billing details."
        return 429, error_body(message, kind="insufficient_quota", code="insufficient_quota")
    if fault in ("limit", "429"):
        message = f"Rate limit reached for {body['model']}."
        return 429, error_body(message, kind="requests", code="rate_limit_exceeded")
    if fault == "model":
        message = f"The model `{body['model']}` does not exist or you do not have access to it."
        return 404, error_body(message, kind="invalid_request_error", code="model_not_found")
    if fault == "context":
        message = "This model's maximum context length is exceeded by your messages."
        return 400, error_body(
            message,
            kind="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        )
    if fault == "logprobs":
        message = "Unsupported parameter: 'logprobs' is not supported with this model."
        return 400, error_body(message, kind="invalid_request_error", param="logprobs")
    if fault == "filter":
        message = "The prompt was filtered by the content management policy."
        return 400, error_body(message, param="prompt", code="content_filter")
    if fault == "401":
        message = "Incorrect API key provided."
        return 401, error_body(message, kind="invalid_request_error", code="invalid_api_key")
    if fault == "403":
        message = "You are not allowed to use this model."
        return 403, error_body(message, kind="invalid_request_error")
    return int(fault), error_body("scripted")
