"""`/v1/files` and `/v1/batches` of the loopback server, kept in memory.

A batch is checked as OpenAI checks one, is done after `batch_delay_s` or when told, answers
its lines in an order of its own, and may expire with a part of them done.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
import time
from collections.abc import Callable
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
from tests.fake_server.http import Exchange, error_body, json_response, response
from tests.fake_server.settings import PAID_FAULTS

_ENDED = ("completed", "failed", "expired", "cancelled")


@dataclasses.dataclass(slots=True)
class StoredFile:
    """A file as it was uploaded or made."""

    about: Body
    content: bytes


class Batches:
    """Files and batches. `batches` and `files` are in the order in which they were made."""

    def __init__(self, chat: Chat, later: Callable[..., Any]) -> None:
        self.files: dict[str, StoredFile] = {}
        self.batches: dict[str, Body] = {}
        self._chat = chat
        self._later = later
        self._n_made = 0

    def take(self, exchange: Exchange) -> bool:
        """Answer, if the path is one of ours."""
        parts = exchange.path.split("/")[2:]
        if not parts or parts[0] not in ("files", "batches") or len(parts) > 3:
            return False
        method, name = exchange.method, "/".join((parts[0], *("*", *parts[2:])[: len(parts) - 1]))
        routes: dict[tuple[str, str], Callable[..., bytes]] = {
            ("POST", "files"): self._upload,
            ("GET", "files"): self._list_files,
            ("GET", "files/*"): self._file,
            ("DELETE", "files/*"): self._delete,
            ("GET", "files/*/content"): self._content,
            ("POST", "batches"): self._create,
            ("GET", "batches"): self._list_batches,
            ("GET", "batches/*"): self._batch,
            ("POST", "batches/*/cancel"): self._cancel,
        }
        route = routes.get((method, name))
        if route is None:
            return False
        try:
            exchange.reply(route(exchange, *parts[1:2]))
        except KeyError as exc:
            exchange.reply(json_response(404, error_body(f"No such object: {exc}")))
        except ValueError as exc:
            error = error_body(str(exc), kind="invalid_request_error")
            exchange.reply(json_response(400, error))
        return True

    # -- files

    def _upload(self, exchange: Exchange) -> bytes:
        fields = multipart(exchange.headers()["content-type"], exchange.body)
        name, content = fields["file"]
        return json_response(200, self._store(content, name, fields["purpose"][1].decode()))

    def _store(self, content: bytes, name: str, purpose: str) -> Body:
        name_of_file = f"file-{self._next_number()}"
        about: Body = {
            "id": name_of_file,
            "object": "file",
            "bytes": len(content),
            "created_at": int(time.time()),
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }
        self.files[name_of_file] = StoredFile(about, content)
        return about

    def _next_number(self) -> int:
        self._n_made += 1
        return self._n_made

    def _list_files(self, exchange: Exchange) -> bytes:
        return json_response(200, page([f.about for f in self.files.values()], exchange.query))

    def _file(self, exchange: Exchange, name: str) -> bytes:
        return json_response(200, self.files[name].about)

    def _delete(self, exchange: Exchange, name: str) -> bytes:
        del self.files[name]
        return json_response(200, {"id": name, "object": "file", "deleted": True})

    def _content(self, exchange: Exchange, name: str) -> bytes:
        content = self.files[name].content
        return response(200, content, content_type="application/octet-stream")

    # -- batches

    def _create(self, exchange: Exchange) -> bytes:
        asked = json.loads(exchange.body)
        content = self.files[asked["input_file_id"]].content
        now = int(time.time())
        batch: Body = {
            "id": f"batch_{self._next_number()}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "errors": None,
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "in_progress_at": None,
            "expires_at": now + 86_400,
            "completed_at": None,
            "expired_at": None,
            "failed_at": None,
            "cancelled_at": None,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": asked.get("metadata"),
        }
        self.batches[batch["id"]] = batch
        shown = json_response(200, batch)
        error = self._chat.settings.batch_error or self._mistake(content, batch["endpoint"])
        if error:
            data = [{"code": error, "message": f"The batch failed: {error}.", "line": 1}]
            batch.update(status="failed", failed_at=now, errors={"object": "list", "data": data})
            return shown
        batch["request_counts"]["total"] = len(content.splitlines())
        batch.update(status="in_progress", in_progress_at=now)
        delay_s = self._chat.settings.batch_delay_s
        if delay_s is not None:
            self._later(delay_s, self.finish, batch["id"])
        return shown

    def _mistake(self, content: bytes, endpoint: str) -> str:
        """Why OpenAI would refuse the file, "" where it would not."""
        lines = content.splitlines()
        if not lines:
            return "empty_file"
        if len(lines) > self._chat.settings.batch_max_lines:
            return "too_many_tasks"
        try:
            items = [json.loads(line) for line in lines]
            if any((i["method"], i["url"]) != ("POST", endpoint) for i in items):
                return "mismatched_url"
            models = {item["body"]["model"] for item in items}
            n_ids = len({item["custom_id"] for item in items})
        except (ValueError, KeyError, TypeError):
            return "invalid_json_line"
        if n_ids < len(items):
            return "duplicate_custom_id"
        return "mismatched_model" if len(models) > 1 else ""

    def _list_batches(self, exchange: Exchange) -> bytes:
        return json_response(200, page(list(self.batches.values())[::-1], exchange.query))

    def _batch(self, exchange: Exchange, name: str) -> bytes:
        return json_response(200, self.batches[name])

    def _cancel(self, exchange: Exchange, name: str) -> bytes:
        """What is not done is left; nothing of this batch was, as it is done all at once."""
        batch = self.batches[name]
        if batch["status"] not in _ENDED:
            self._end(batch, "cancelled", [], [])
        return json_response(200, batch)

    def finish_all(self) -> None:
        """Do what waits to be told."""
        for name in list(self.batches):
            self.finish(name)

    def finish(self, name: str) -> None:
        """Execute a batch, as far as `batch_share` says, and bill it."""
        batch = self.batches[name]
        if batch["status"] in _ENDED:
            return
        settings = self._chat.settings
        items = [json.loads(x) for x in self.files[batch["input_file_id"]].content.splitlines()]
        draw = random.Random(f"{settings.seed} {name}")
        draw.shuffle(items)
        n_done = round(len(items) * settings.batch_share)
        lines = [self._line(item, draw.random()) for item in items[:n_done]]
        good = [line for line in lines if line["response"]["status_code"] == 200]
        bad = [line for line in lines if line["response"]["status_code"] != 200]
        bad += [_expired(item) for item in items[n_done:]]
        self._end(batch, "completed" if n_done == len(items) else "expired", good, bad)

    def _line(self, item: Body, draw: float) -> Body:
        """One request of a batch as a line of its output."""
        settings, counts, body = self._chat.settings, self._chat.counts, item["body"]
        content = content_digest(body)
        counts.batched += 1
        fault = fault_of_content(settings, body, content).partition(":")[0]
        for name, rate in settings.batch_rates.items():
            draw -= rate
            if draw < 0 and not fault:
                fault = name
        reply: Body
        if fault and fault not in PAID_FAULTS:
            status, reply = refusal(fault, body)
        else:
            status, reply = self._answer(body, content, fault)
        answer = {"status_code": status, "request_id": f"req-{counts.batched}", "body": reply}
        return {
            "id": f"batch_req_{counts.batched}",
            "custom_id": item["custom_id"],
            "response": answer,
            "error": None,
        }

    def _answer(self, body: Body, content: str, fault: str) -> tuple[int, Body]:
        settings, counts = self._chat.settings, self._chat.counts
        try:
            completion = self._chat.answer_now(body)
        except ClaimscoreError as exc:
            return 400, error_body(str(exc))
        reply, prompt_tokens, tokens = chat_completion(
            settings, body, counts.batched, content, completion, fault
        )
        counts.pay(content, prompt_tokens, tokens, self._chat.clock())
        return 200, reply

    def _end(self, batch: Body, status: str, good: list[Body], bad: list[Body]) -> None:
        batch["status"] = status
        batch[f"{status}_at"] = int(time.time())
        batch["request_counts"].update(completed=len(good), failed=len(bad))
        for kind, lines in (("output", good), ("error", bad)):
            if lines:
                content = "".join(json.dumps(line) + "\n" for line in lines).encode()
                about = self._store(content, f"{batch['id']}_{kind}.jsonl", "batch_output")
                batch[f"{kind}_file_id"] = about["id"]


def _expired(item: Body) -> Body:
    message = "This request could not be executed before the completion window expired."
    return {
        "id": f"batch_req_{item['custom_id']}",
        "custom_id": item["custom_id"],
        "response": None,
        "error": {"code": "batch_expired", "message": message},
    }


def page(items: list[Body], query: str) -> Body:
    """A part of a list, as `after`, `limit` and `purpose` ask for it."""
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    if "purpose" in asked:
        items = [item for item in items if item["purpose"] == asked["purpose"]]
    if "after" in asked:
        names = [item["id"] for item in items]
        items = items[names.index(asked["after"]) + 1 :]
    limit = int(asked.get("limit", 20))
    shown = items[:limit]
    return {
        "object": "list",
        "data": shown,
        "has_more": len(items) > limit,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }


def multipart(content_type: str, body: bytes) -> dict[str, tuple[str, bytes]]:
    """The fields of a form: name -> (file name or "", content)."""
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    if found is None:
        raise ValueError(f"not a form with a boundary: {content_type}")
    fields = {}
    for part in body.split(b"--" + found.group(1).encode())[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        names = dict(re.findall(r'(\w+)="([^"]*)"', head.decode("utf-8")))
        fields[names["name"]] = (names.get("filename", ""), content.removesuffix(b"\r\n"))
    return fields
