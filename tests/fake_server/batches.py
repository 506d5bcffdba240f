"""Batch jobs, kept in memory: `/v1/files` and `/v1/batches` as OpenAI answers them, and
`/v1/messages/batches` as Anthropic does."""

import abc
import datetime
import json
import re
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs

from claimscore.errors import ClaimscoreError
from tests.fake_server.chat import (
    Body,
    Chat,
    chat_completion,
    content_digest,
    fault_of_content,
    refusal,
)
from tests.fake_server.http import error_body
from tests.fake_server.messages import ERROR_TYPES, Messages
from tests.fake_server.settings import PAID_FAULTS

_CALLS = {
    ("POST", "files"): "upload",
    ("GET", "files/*/content"): "download",
    ("POST", "batches"): "create",
    ("GET", "batches"): "list batches",
    ("GET", "batches/*"): "look",
    ("GET", "batches/*/results"): "download",
}

#: The outcome of a request: its `custom_id`, and status and body; without a status it was not
#: begun, and the body is the code of the reason.
Outcome = tuple[str, int, Any]


def call_of(method: str, path: str) -> str:
    """What a request is about, such as "upload"; "" for another server."""
    what = re.sub(r"^/v1/(messages/(?=batches))?|(?<=/)(file-|batch_|msgbatch_)[0-9]+", _star, path)
    return _CALLS.get((method, what), "")


def _star(match: re.Match[str]) -> str:
    return "*" if match[2] else ""


class Jobs(abc.ABC):
    """The batch jobs of one protocol, in the order in which they were made."""

    page_size = 100

    def __init__(self) -> None:
        self.batches: dict[str, Body] = {}

    @abc.abstractmethod
    def respond(self, call: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        """Status and body, which is bytes for a file and JSON for all else."""

    @abc.abstractmethod
    def items(self, batch: Body) -> list[tuple[str, Body]]:
        """The requests of a batch: `custom_id` and body, as OpenAI's chat has it."""

    @abc.abstractmethod
    def end(self, batch: Body, status: str, outcomes: Iterable[Outcome]) -> None:
        """Give a batch its results."""

    def created(self, batch: Body) -> None:  # noqa: B027 - for those that want to know
        """Called when a batch was made."""

    def look(self, batch: Body) -> Body:
        """A batch as it is by now."""
        return batch

    def is_open(self, batch: Body) -> bool:
        """Whether a batch has not ended."""
        return batch.get("status") in ("validating", "in_progress")

    def _keep(self, batch: Body) -> Body:
        items = self.items(batch)
        assert len({name for name, _ in items}) == len(items)
        self.batches[batch["id"]] = batch
        shown = dict(batch)
        self.created(batch)
        return shown

    def _page(self, after: str | None) -> tuple[list[Body], bool]:
        """The next batches, newest first, and whether there are more."""
        items = list(self.batches.values())[::-1]
        start = [item["id"] for item in items].index(after) + 1 if after else 0
        shown = items[start : start + self.page_size]
        return shown, start + len(shown) < len(items)


class Batches(Jobs):
    """OpenAI's."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, tuple[Body, bytes]] = {}

    def respond(self, call: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        name = path.split("/")[3] if call in ("look", "download") else ""
        if name and name not in self.files and name not in self.batches:
            return 404, error_body(f"no {name}")
        if call == "upload":
            return 200, self.store(*_file_of_form(body))
        if call == "create":
            return 200, self._create(json.loads(body))
        if call == "list batches":
            shown, has_more = self._page(parse_qs(query).get("after", [None])[0])
            return 200, {"object": "list", "data": shown, "has_more": has_more}
        return 200, self.files[name][1] if call == "download" else self.look(self.batches[name])

    def items(self, batch: Body) -> list[tuple[str, Body]]:
        lines = self.files[batch["input_file_id"]][1].splitlines()
        items = [json.loads(line) for line in lines]
        assert {(item["method"], item["url"]) for item in items} == {("POST", batch["endpoint"])}
        return [(item["custom_id"], item["body"]) for item in items]

    def end(self, batch: Body, status: str, outcomes: Iterable[Outcome]) -> None:
        """Those without status 200 are in the error file."""
        lines = [_openai_line(*outcome) for outcome in outcomes]
        batch[f"{status}_at"] = int(time.time())
        batch["status"] = status
        good = [one for one in lines if (one["response"] or {}).get("status_code") == 200]
        bad = [one for one in lines if one not in good]
        counts = {"total": len(lines), "completed": len(good), "failed": len(bad)}
        batch["request_counts"] = counts
        for kind, some in (("output", good), ("error", bad)):
            if some:
                batch[f"{kind}_file_id"] = self.store(f"{kind}.jsonl", _jsonl(some))["id"]

    def store(self, name: str, content: bytes) -> Body:
        """Keep a file, and say what a server says of it."""
        about: Body = {"id": f"file-{self._n_made + 1}", "object": "file", "bytes": len(content)}
        about |= {"filename": name, "purpose": "batch", "status": "processed", "created_at": 1}
        self.files[about["id"]] = about, content
        return about

    @property
    def _n_made(self) -> int:
        return len(self.files) + len(self.batches)

    def _create(self, asked: Body) -> Body:
        return self._keep(
            {
                "id": f"batch_{self._n_made + 1}",
                "object": "batch",
                "status": "validating",
                "created_at": int(time.time()),
                **{name: asked[name] for name in ("endpoint", "input_file_id")},
                **{name: asked[name] for name in ("completion_window", "metadata")},
            }
        )


class MessageBatches(Jobs):
    """Anthropic's: without files, names and refusals of whole jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol = Messages()
        self._items: dict[str, list[Body]] = {}
        self._results: dict[str, bytes] = {}

    def respond(self, call: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        name = path.split("/")[4] if call in ("look", "download") else ""
        if name and name not in self.batches:
            return self.protocol.refusal("404", 404, f"no {name}")
        if call == "create":
            return 200, self._create(json.loads(body)["requests"])
        if call == "list batches":
            shown, has_more = self._page(parse_qs(query).get("after_id", [None])[0])
            last = shown[-1]["id"] if shown else None
            return 200, {"data": shown, "has_more": has_more, "last_id": last}
        return 200, self._results[name] if call == "download" else self.look(self.batches[name])

    def items(self, batch: Body) -> list[tuple[str, Body]]:
        items = self._items[batch["id"]]
        return [(item["custom_id"], self.protocol.chat_body(item["params"])) for item in items]

    def end(self, batch: Body, status: str, outcomes: Iterable[Outcome]) -> None:
        params = {item["custom_id"]: item["params"] for item in self._items[batch["id"]]}
        lines = [self._line(params, *outcome) for outcome in outcomes]
        kinds = [line["result"]["type"] for line in lines]
        counts = {kind: kinds.count(kind) for kind in batch["request_counts"]}
        counts["expired"] += len(params) - len(lines)
        batch |= {"processing_status": "ended", "status": status, "request_counts": counts}
        self._results[batch["id"]] = _jsonl(lines).rstrip(b"\n")

    def _create(self, items: list[Body]) -> Body:
        name = f"msgbatch_{len(self.batches) + 1}"
        self._items[name] = items
        kinds = ("processing", "succeeded", "errored", "canceled", "expired")
        counts = {**dict.fromkeys(kinds, 0), "processing": len(items)}
        now = datetime.datetime.fromtimestamp(self.now(), datetime.UTC)
        return self._keep(
            {
                "id": name,
                "type": "message_batch",
                "processing_status": "in_progress",
                "status": "in_progress",  # for `is_open`
                "request_counts": counts,
                "created_at": now.isoformat(),
            }
        )

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def _line(self, params: dict[str, Body], name: str, status: int, body: Any) -> Body:
        if status == 200:
            message = self.protocol.answer(params[name], body, None) if body else body
            if message:
                message["usage"]["service_tier"] = "batch"
            return {"custom_id": name, "result": {"type": "succeeded", "message": message}}
        if not status:
            return {"custom_id": name, "result": {"type": "expired"}}
        kind = ERROR_TYPES.get(status, "api_error")
        message = body["error"]["message"] if isinstance(body, dict) else str(body)
        error = {"type": "error", "error": {"type": kind, "message": message}}
        return {"custom_id": name, "result": {"type": "errored", "error": error}}


class ChatJobs(Jobs):
    """Batches that are answered as the chat endpoint answers, after `batch_delay_s` or when told.

    What a question is gives its line a fault.
    """

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self._chat = chat

    def created(self, batch: Body) -> None:
        batch["status"] = "in_progress"
        if self._chat.settings.batch_delay_s is not None:
            self._chat.listener.later(self._chat.settings.batch_delay_s, self._finish, batch)

    def finish_all(self) -> None:
        """Do what waits to be told."""
        for batch in list(self.batches.values()):
            self._finish(batch)

    def _finish(self, batch: Body) -> None:
        if self.is_open(batch):
            outcomes = [(name, *self._outcome(body)) for name, body in self.items(batch)]
            self.end(batch, "completed", outcomes[::-1])  # their order is the server's own

    def _outcome(self, body: Body) -> tuple[int, Body]:
        chat = self._chat
        content = content_digest(body)
        chat.counts.batched += 1
        fault = fault_of_content(chat.settings, body)
        if fault and fault not in PAID_FAULTS:
            return refusal(fault.partition(":")[0], body)
        try:
            completion = chat.answer_now(body)
        except ClaimscoreError as exc:
            return 400, error_body(str(exc))
        reply, prompt_tokens, tokens = chat_completion(
            chat.settings, body, chat.counts.batched, content, completion, fault
        )
        chat.counts.pay(content, prompt_tokens, tokens, time.monotonic())
        return 200, reply


class ChatBatches(ChatJobs, Batches):
    """OpenAI's, answered."""


class ChatMessageBatches(ChatJobs, MessageBatches):
    """Anthropic's, answered."""


def _openai_line(name: str, status: int, body: Any) -> Body:
    if not status:
        error = {"code": body, "message": f"it is {body}"}
        return {"custom_id": name, "response": None, "error": error}
    answer = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "r", "custom_id": name, "response": answer, "error": None}


def _jsonl(lines: Iterable[Body]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _file_of_form(body: bytes) -> tuple[str, bytes]:
    """The name and the content of the file in a form that says `purpose=batch`."""
    form = re.search(rb'filename="([^"]+)".*?\r\n\r\n(.*)', body, re.DOTALL)
    assert form is not None
    assert b'name="purpose"\r\n\r\nbatch\r\n' in body
    return form[1].decode(), form[2].partition(b"\r\n--")[0]
