"""Anthropic's batch jobs: the requests are sent in one call, their results come as one file.

A job carries no name of ours. One whose creation was not answered is looked for by its time and its
count of requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from claimscore.errors import TransientError
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
