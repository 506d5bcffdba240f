"""Chat requests of all protocols: what becomes of each.

In order: who may ask, outages, the script, the quota, what the question is, a fault drawn by
rate, the budget, the latency, the answer. A request's draw depends on its number alone, so all
clients meet the same faults.
"""

import dataclasses
import hashlib
import json
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TextIO, cast

from claimscore.errors import ClaimscoreError
from claimscore.types import Completion, TokenLogprob
from tests.fake_server.azure import Azure
from tests.fake_server.budget import Budget
from tests.fake_server.counts import Counts
from tests.fake_server.http import Exchange, Listener, error_body, json_response, response
from tests.fake_server.messages import Messages
from tests.fake_server.settings import LATE_FAULTS, PAID_FAULTS, Settings

Body = dict[str, Any]
AnswerFunction = Callable[[Body], Awaitable[Completion]]
#: How a protocol words what becomes of a chat request.
Words = Messages | Azure

_sorted_json = json.JSONEncoder(sort_keys=True).encode


def content_digest(body: Body) -> str:
    """The same for the same question, whatever the dialect it came in."""
    content = _sorted_json([body["model"], body["messages"]])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclasses.dataclass(slots=True)
class _Asked:
    """A request on its way through the server; `came` is its body as it came over the wire, and
    `words` those of its protocol, None for OpenAI's."""

    exchange: Exchange
    came: Body
    words: Words | None
    body: Body
    number: int
    content: str
    prompt_tokens: int
    fault: str = ""
    argument: str = ""
    charged: float = 0.0


class Chat:
    """The endpoint, on the loop and the port of a listener."""

    def __init__(
        self,
        settings: Settings,
        answer: AnswerFunction | None,
        listener: Listener,
        *,
        log: TextIO | None = None,
        keep: bool = False,
    ) -> None:
        self.settings = settings
        self.counts = Counts()
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self._answer = answer
        self.listener = listener
        self._log = log
        self._keep = keep
        self.restart()

    def restart(self) -> None:
        """Be a server that nobody has asked yet."""
        self.counts = Counts()
        self.messages = Messages()
        self._budget = Budget(self.settings, time.monotonic())
        self._draws = random.Random(0)

    def change(self, settings: Settings) -> None:
        """Go on with other settings; what was drawn and spent stays so."""
        self.settings = settings
        self._budget = Budget(settings, time.monotonic(), self._budget)

    def answer_now(self, body: Body) -> Completion | None:
        """What the answer function says, for a batch; None where the settings say it."""
        if self._answer is None or self.settings.text is not None:
            return None
        return _result(self._answer(body))

    # -- taking a request in

    def take(self, exchange: Exchange, words: Words | None = None) -> None:
        """Everything from the first byte to the last; what takes time goes on by itself.

        What is no request (some clients ask without messages, for the headers) is not counted.
        """
        try:
            asked = self._counted(exchange, words)
        except (ValueError, KeyError, TypeError) as exc:
            self.counts.outcomes["no request"] += 1
            status, error = 400, error_body(str(exc), kind="invalid_request_error")
            if words is not None:
                status, error = words.refusal("", 400, str(exc))
            exchange.reply(json_response(status, error, self._limit_headers(words)))
            return
        now, draw = time.monotonic(), self._draws.random()
        fault = self._fault_of(asked, now) or drawn(self.settings.rates, draw)
        asked.fault, _, asked.argument = fault.partition(":")
        if asked.fault and asked.fault not in PAID_FAULTS and asked.fault not in LATE_FAULTS:
            self._refuse(asked)
            return
        asked.charged = asked.prompt_tokens + self._expected_tokens(asked)
        refused = self._budget.admit(asked.charged, now)
        if refused is not None:
            self._refuse_by_limit(asked, *refused)
            return
        self.listener.later(self.settings.latency_s, self._after_latency, asked)

    def _counted(self, exchange: Exchange, words: Words | None) -> _Asked:
        came = body = json.loads(exchange.body)
        if not body["messages"]:
            raise ValueError("no messages")
        if words is not None:
            if problem := words.problem(came, exchange.headers()):
                raise ValueError(problem)
            body = words.chat_body(came)
        content = content_digest(body)
        number = self.counts.arrive(content, time.monotonic())
        if self._keep:
            self.bodies.append(came)
            self.headers.append(exchange.headers())
        return _Asked(exchange, came, words, body, number, content, n_characters(body) // 4)

    def _fault_of(self, asked: _Asked, now: float) -> str:
        """What stands in the way of this request, "" where nothing does."""
        settings, counts = self.settings, self.counts
        if settings.key is not None:
            headers = asked.exchange.headers()
            given = {headers.get(name) for name in ("authorization", "api-key", "x-api-key")}
            if given.isdisjoint({settings.key, f"Bearer {settings.key}"}):
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
        return fault_of_content(settings, asked.body)

    def _expected_tokens(self, asked: _Asked) -> int:
        """Tokens of the answer that the budget is charged with before there is one."""
        known = completion_tokens(self.settings, asked.content)
        most = max_tokens(asked.body)
        return most if known is None else min(known, most)

    # -- refusals

    def _refuse(self, asked: _Asked) -> None:
        status, error = refusal(asked.fault, asked.body)
        headers = self._limit_headers(asked.words)
        if asked.argument:
            headers = {**headers, "retry-after-ms": str(round(float(asked.argument) * 1000))}
        self._end(asked, asked.fault)
        self._reply_refusal(asked, status, error, headers)

    def _refuse_by_limit(self, asked: _Asked, limit: str, wait_s: float) -> None:
        what = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}
        wait_ms = math.ceil(wait_s * 1000)
        message = (
            f"Rate limit reached for {asked.body['model']} on {what[limit]}. "
            f"Please try again in {wait_ms}ms."
        )
        headers = self._limit_headers(asked.words)
        if self.settings.headers == "answer":
            headers |= {"retry-after-ms": str(wait_ms), "retry-after": str(math.ceil(wait_s))}
        self._end(asked, "limit")
        error = error_body(message, kind=limit, code="rate_limit_exceeded")
        self._reply_refusal(asked, 429, error, headers)

    def _reply_refusal(
        self, asked: _Asked, status: int, error: Body, headers: dict[str, str]
    ) -> None:
        if asked.words is not None:
            message = error["error"]["message"]
            status, error = asked.words.refusal(asked.fault, status, message)
        asked.exchange.reply(json_response(status, error, headers))

    # -- answers

    def _after_latency(self, asked: _Asked) -> None:
        if asked.exchange.line.cut:
            self._end(asked, "cut")
        elif asked.fault == "reset":
            self._end(asked, "reset")
            asked.exchange.reset()
        elif asked.fault in LATE_FAULTS:
            self._refuse(asked)
        elif self._answer is None or self.settings.text is not None:
            self._send_answer(asked, None)
        else:
            self.listener.spawn(self._ask_and_send(asked))

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
        now = time.monotonic()
        self._budget.settle(asked.charged, prompt_tokens + tokens, now)
        self.counts.pay(asked.content, prompt_tokens, tokens, now)
        headers = self._limit_headers(asked.words)
        self._end(asked, fault or "200")
        if asked.words is not None:
            reply = asked.words.answer(asked.came, reply, completion)
        if fault == "malformed":
            asked.exchange.reply(response(200, json.dumps(reply).encode()[:19], headers))
            return
        data = json_response(200, reply, headers)
        if fault == "truncated":
            asked.exchange.reply(data[: len(data) // 2], close=True)
        else:
            asked.exchange.reply(data)

    def _limit_headers(self, words: Words | None) -> dict[str, str]:
        if self.settings.headers == "none":
            return {}
        headers = self._budget.headers(time.monotonic())
        return headers if words is None else words.limits(headers)

    def _end(self, asked: _Asked, outcome: str) -> None:
        """Count it; one line in the log, with the system before the answer is sent."""
        self.counts.end(outcome)
        if self._log is not None:
            line = {"content": asked.content, "outcome": outcome, "time": time.time()}
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
    """Characters of all messages."""
    return sum(len(message["content"]) for message in body["messages"])


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


def fault_of_content(settings: Settings, body: Body) -> str:
    """What this question always gets."""
    if settings.schema == "refused" and body.get("response_format", {}).get("json_schema"):
        return "schema"
    if settings.on_content:
        text = _sorted_json(body["messages"])
        for piece, fault in settings.on_content.items():
            if piece in text:
                return fault
    return ""


def drawn(rates: Any, draw: float) -> str:
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
    text = {"empty": "", "odd": "Perhaps"}.get(fault, text)
    finish, usage = "stop", None
    if completion is not None:
        text, finish, usage = completion.text, completion.finish_reason, completion.usage
    prompt_tokens = (usage and usage.prompt_tokens) or n_characters(body) // 4
    tokens = (usage and usage.completion_tokens) or completion_tokens(settings, content)
    if tokens is None:
        tokens = len(text) // 4
    elif tokens > max_tokens(body):
        tokens, finish = max_tokens(body), "length"
    message = {"role": "assistant", "content": "" if fault == "empty" else text}
    choice: Body = {"index": 0, "finish_reason": finish, "message": message, "logprobs": None}
    if body.get("logprobs") and settings.logprobs == "given":
        place = TokenLogprob(text, -0.1, ((text, -0.1),))  # the whole answer as one token
        choice["logprobs"] = _logprobs(completion or Completion(text, "", logprobs=(place,)))
    reply = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }
    if usage is not None and usage.cached_prompt_tokens is not None:
        details = {"cached_tokens": usage.cached_prompt_tokens}
        reply["usage"]["prompt_tokens_details"] = details
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
    model = body["model"]
    invalid = {"kind": "invalid_request_error"}
    quota = {"kind": "insufficient_quota", "code": "insufficient_quota"}
    limit = {"kind": "requests", "code": "rate_limit_exceeded"}
    known: dict[str, tuple[int, str, dict[str, str]]] = {
        "quota": (429, "You exceeded your current quota, please check your plan.", quota),
        "429": (429, f"Rate limit reached for {model}.", limit),
        "model": (404, f"The model `{model}` does not exist.", {"code": "model_not_found"}),
        "logprobs": (400, "Unsupported parameter: 'logprobs' is not supported.", invalid),
        "schema": (400, "response_format of type 'json_schema' is not supported.", invalid),
        "filter": (400, "The prompt was filtered.", {"param": "prompt", "code": "content_filter"}),
        "401": (401, "Incorrect API key provided.", {**invalid, "code": "invalid_api_key"}),
    }
    status, message, fields = known.get(fault) or (int(fault), "scripted", {})
    return status, error_body(message, **fields)
