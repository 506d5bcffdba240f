"""`/v1/files` and `/v1/batches`, kept in memory, as OpenAI answers them."""

from __future__ import annotations

import json
import re
import time
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
from tests.fake_server.settings import PAID_FAULTS

_CALLS = {
    ("POST", "files"): "upload",
    ("GET", "files/*/content"): "download",
    ("POST", "batches"): "create",
    ("GET", "batches"): "list batches",
    ("GET", "batches/*"): "look",
}


def call_of(method: str, path: str) -> str:
    """What a request is about, such as "upload"; "" for another server."""
    what = re.sub(r"^/v1/|(?<=/)(file-|batch_)[0-9]+", lambda m: "*" if m[1] else "", path)
    return _CALLS.get((method, what), "")


class Batches:
    """Files and batch jobs, in the order in which they were made; subclasses execute them."""

    page_size = 100

    def __init__(self) -> None:
        self.files: dict[str, tuple[Body, bytes]] = {}
        self.batches: dict[str, Body] = {}

    def respond(self, call: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        """Status and body, which is bytes for a file and JSON for all else."""
        name = path.split("/")[3] if call in ("look", "download") else ""
        if name and name not in self.files and name not in self.batches:
            return 404, error_body(f"no {name}")
        if call == "upload":
            return 200, self.store(*_file_of_form(body))
        if call == "create":
            return 200, self._create(json.loads(body))
        if call == "list batches":
            return 200, self._page(query)
        return 200, self.files[name][1] if call == "download" else self.look(self.batches[name])

    def items(self, batch: Body) -> list[Body]:
        """The requests of a batch."""
        return [json.loads(line) for line in self.files[batch["input_file_id"]][1].splitlines()]

    def created(self, batch: Body) -> None:
        """A batch was made."""

    def look(self, batch: Body) -> Body:
        """A batch as it is by now."""
        return batch

    def end(self, batch: Body, status: str, lines: list[Body]) -> None:
        """Give a batch its lines; those without status 200 are in its error file."""
        batch[f"{status}_at"] = int(time.time())
        batch["status"] = status
        good = [one for one in lines if (one["response"] or {}).get("status_code") == 200]
        bad = [one for one in lines if one not in good]
        counts = {"total": len(lines), "completed": len(good), "failed": len(bad)}
        batch["request_counts"] = counts
        for kind, some in (("output", good), ("error", bad)):
            if some:
                content = "".join(json.dumps(line) + "\n" for line in some).encode()
                batch[f"{kind}_file_id"] = self.store(f"{kind}.jsonl", content)["id"]

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
        batch: Body = {
            "id": f"batch_{self._n_made + 1}",
            "object": "batch",
            "status": "validating",
            "created_at": int(time.time()),
            **{k: asked[k] for k in ("endpoint", "input_file_id", "completion_window", "metadata")},
        }
        items = self.items(batch)
        assert {(item["method"], item["url"]) for item in items} == {("POST", asked["endpoint"])}
        assert len({item["custom_id"] for item in items}) == len(items)
        self.batches[batch["id"]] = batch
        shown = dict(batch)
        self.created(batch)
        return shown

    def _page(self, query: str) -> Body:
        items, after = list(self.batches.values())[::-1], parse_qs(query).get("after")
        start = [item["id"] for item in items].index(after[0]) + 1 if after else 0
        shown = items[start : start + self.page_size]
        return {"object": "list", "data": shown, "has_more": start + len(shown) < len(items)}


class ChatBatches(Batches):
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
        if batch["status"] == "in_progress":
            lines = [self._line(item) for item in self.items(batch)]
            self.end(batch, "completed", lines[::-1])  # their order is the server's own

    def _line(self, item: Body) -> Body:
        chat, body = self._chat, item["body"]
        content = content_digest(body)
        chat.counts.batched += 1
        fault = fault_of_content(chat.settings, body)
        status, reply = (
            refusal(fault.partition(":")[0], body)
            if fault and fault not in PAID_FAULTS
            else self._answer(body, content, fault)
        )
        answer = {"status_code": status, "request_id": "r", "body": reply}
        return {"id": "r", "custom_id": item["custom_id"], "response": answer, "error": None}

    def _answer(self, body: Body, content: str, fault: str) -> tuple[int, Body]:
        chat = self._chat
        try:
            completion = chat.answer_now(body)
        except ClaimscoreError as exc:
            return 400, error_body(str(exc))
        reply, prompt_tokens, tokens = chat_completion(
            chat.settings, body, chat.counts.batched, content, completion, fault
        )
        chat.counts.pay(content, prompt_tokens, tokens, time.monotonic())
        return 200, reply


def _file_of_form(body: bytes) -> tuple[str, bytes]:
    """The name and the content of the file in a form that says `purpose=batch`."""
    found = re.search(rb'filename="([^"]+)".*?\r\n\r\n(.*)', body, re.DOTALL)
    assert found is not None
    assert b'name="purpose"\r\n\r\nbatch\r\n' in body
    return found[1].decode(), found[2].partition(b"\r\n--")[0]
