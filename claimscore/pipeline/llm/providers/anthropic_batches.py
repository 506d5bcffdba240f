"""Anthropic's batch jobs: the requests are sent in one call, their results come as one file.

A job carries no name of ours. One whose creation was not answered is looked for by its time and its
count of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from claimscore.errors import TransientError
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

    max_requests = 100_000

    def line(self, key: str, request: Request) -> bytes:
        params = self.provider.body(request, self.dialect)
        return encode_json({"custom_id": key, "params": params})

    async def make(self, name: str, lines: Sequence[bytes]) -> ServerJob:
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        return self._job(await self.ask("post", self._path(), content=body))

    async def find(self, record: JobRecord) -> list[str]:
        """Those with as many requests that were made since then."""
        query: JSON = {"limit": 1000}
        fitting = list[str]()
        while True:
            page = await self.ask("get", self._path(), options={"params": query})
            jobs: list[Any] | None = page.get("data")
            if not isinstance(jobs, list):
                raise self.odd()
            for job in jobs:  # the newest comes first
                counts, made_at = field(job, "request_counts", JSON()), field(job, "created_at", "")
                if datetime.fromisoformat(made_at).timestamp() < record.sent_at - _CLOCKS_S:
                    return fitting
                if sum(counts.values()) == len(record.keys):
                    fitting.append(self._job(job).id)
            if not jobs or not page.get("has_more"):
                return fitting
            query["after_id"] = self._job(jobs[-1]).id

    async def look(self, batch_id: str) -> ServerJob:
        return self._job(await self.ask("get", self._path(batch_id)))

    def read(self, line: bytes, batch_id: str) -> tuple[str, Outcome] | None:
        item = decode_json(line)
        key, result = field(item, "custom_id", ""), field(item, "result", JSON())
        if not key:
            return None
        kind, error = field(result, "type", ""), field(result, "error", JSON())
        if kind == "succeeded":
            return key, self.answer(result.get("message"))
        if kind == "errored":
            status = _STATUSES.get(field(field(error, "error", JSON()), "type", ""), 500)
            return key, self.error(status, encode_json(error), batch_id)
        return key, TransientError(f"{self.provider.base_url}: the request is {kind}")

    def _job(self, job: JSON) -> ServerJob:
        batch_id, status = field(job, "id", ""), field(job, "processing_status", "")
        if not batch_id or not status:
            raise self.odd()
        n_done = field(field(job, "request_counts", JSON()), "succeeded", 0)
        files = (self._path(batch_id, "results"),)
        return ServerJob(batch_id, status, status == "ended", n_done, None, files)

    def _path(self, *parts: str) -> str:
        return "/".join((self.provider.server.path, "batches", *parts))
