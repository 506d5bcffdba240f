"""OpenAI's batch jobs: a file of requests is uploaded, a batch is made of it, files come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anyio import lowlevel

from claimscore.errors import ConfigError, RejectedError, TransientError
from claimscore.pipeline.llm.batch_jobs.journal import JobRecord
from claimscore.pipeline.llm.batch_jobs.server import (
    BatchServer,
    Outcome,
    ServerJob,
    field,
)
from claimscore.pipeline.llm.providers.schema import encode_json
from claimscore.pipeline.llm.providers.server import decode_json
from claimscore.types import JSON, Request

#: The name under which a job carries ours, so that it can be found again.
METADATA = "claimscore"

_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})

#: Characters that some programs take for the end of a line; inside of a JSON text only.
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


class OpenAIBatches(BatchServer):
    """`/files` and `/batches` of OpenAI, and of servers with the same API."""

    max_requests = 50_000

    def line(self, key: str, request: Request) -> bytes:
        body = encode_json(self.provider.body(request, self.dialect)).decode()
        for character, escape in _LINE_ENDS:
            body = body.replace(character, escape)
        what = '"method": "POST", "url": "/v1/chat/completions"'
        return f'{{"custom_id": "{key}", {what}, "body": {body}}}\n'.encode()

    async def make(self, name: str, lines: Sequence[bytes]) -> ServerJob:
        file = (f"claimscore-{name}.jsonl", b"".join(lines), "application/jsonl")
        form = {"headers": {"Content-Type": "multipart/form-data"}}
        uploaded = await self.ask(
            "post", "/files", body={"purpose": "batch"}, files={"file": file}, options=form
        )
        if not (file_id := field(uploaded, "id", "")):
            raise self.odd()
        await lowlevel.checkpoint_if_cancelled()  # after a stop, no step costs money
        batch = {
            "input_file_id": file_id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {METADATA: name},
        }
        return self._job(await self.ask("post", "/batches", body=batch))

    async def find(self, record: JobRecord) -> list[str]:
        """By the name that it carries, among all of the account's."""
        query: dict[str, Any] = {"limit": 100}
        while True:
            page = await self.ask("get", "/batches", options={"params": query})
            batches: list[Any] | None = page.get("data")
            if not isinstance(batches, list):
                raise self.odd()
            for batch in batches:
                if field(field(batch, "metadata", JSON()), METADATA, "") == record.name:
                    return [self._job(batch).id]
            if not batches or page.get("has_more") is False:
                return []
            query["after"] = self._job(batches[-1]).id

    async def look(self, batch_id: str) -> ServerJob:
        return self._job(await self.ask("get", f"/batches/{batch_id}"))

    def read(self, line: bytes, batch_id: str) -> tuple[str, Outcome] | None:
        item = decode_json(line)
        key, response = field(item, "custom_id", ""), field(item, "response", JSON())
        if not key:
            return None
        status, body = field(response, "status_code", 0), response.get("body")
        if not status:  # it was not begun, or the model timed out
            refusal = self.provider.server.refusal(
                400, {}, encode_json({"error": item.get("error")})
            )
            return key, TransientError(f"{self.provider.base_url}: {refusal.message}")
        if not 200 <= status < 300:
            return key, self.error(status, json.dumps(body).encode(), batch_id)
        return key, self.answer(body)

    def _job(self, batch: object) -> ServerJob:
        """Servers leave out what they do not count; without an id or a status it is no job."""
        batch_id, status = field(batch, "id", ""), field(batch, "status", "")
        if not batch_id or not status:
            raise self.odd()
        refusal = None
        if status == "failed":
            faults = field(field(batch, "errors", JSON()), "data", [{"message": "no reason given"}])
            refusal = self.error(400, encode_json({"error": faults[0]}), batch_id)
            if isinstance(refusal, RejectedError):
                refusal = ConfigError(f"the batch was refused: {refusal}")
        files = (field(batch, f"{kind}_file_id", "") for kind in ("output", "error"))
        return ServerJob(
            batch_id,
            status,
            status in _ENDED,
            field(field(batch, "request_counts", JSON()), "completed", 0),
            refusal,
            tuple(f"/files/{file}/content" for file in files if file),
        )
