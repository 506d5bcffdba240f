"""OpenAI's batch jobs: a file of requests is uploaded, a batch is made of it, files come back."""

from __future__ import annotations

import json
from collections.abc import Sequence

from anyio import lowlevel

from claimscore.errors import ConfigError, RejectedError, TransientError
from claimscore.http_policy import scrubbed
from claimscore.pipeline.llm.batch_jobs.server import (
    BatchServer,
    JobRecord,
    Outcome,
    ServerJob,
    field,
)
from claimscore.pipeline.llm.providers.schema import encode_json
from claimscore.pipeline.llm.providers.server import decode_json
from claimscore.types import JSON, Request

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
