"""Brings a batch job to the server; every step that may cost money is noted before it is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import lowlevel

from claimscore.atomic import os_errors
from claimscore.errors import (
    ClaimscoreError,
    ConfigError,
    OutageError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.batch_jobs.client import (
    BatchClient,
    NotFoundError,
    ServerJob,
    is_queue_full,
)
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from claimscore.pipeline.llm.batch_jobs.pending import BatchJob
from claimscore.retry import Backoff, Sleep

T = TypeVar("T")

#: How long after a lost answer to "create" the server's list of jobs is surely complete.
SETTLE_S = 15.0


class QueueFullError(Exception):
    """The server takes no (such large) job now; nothing was paid."""


class BatchJobSubmitter:
    """Uploads and creates jobs, and looks for them where an answer was lost.

    A job is in the journal from before it is created. `trouble` is why it takes longer than it
    should. The journal's lock must be held.
    """

    def __init__(
        self,
        client: BatchClient,
        journal: JobJournal,
        *,
        max_outage_s: float,
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self.trouble = ""
        self._client = client
        self._journal = journal
        self._max_outage_s = max_outage_s
        self._clock = clock
        self._now = now
        self._sleep = sleep

    async def persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while its errors may pass; `OutageError` after `max_outage_s` of that."""
        began, backoff, is_repeated = self._clock(), Backoff(), False
        while True:
            try:
                result = await call()
            except TransientError as exc:
                self.trouble = str(exc)
                wait_s = backoff.next_wait_s(exc)
                is_repeated = True
                if self._clock() + wait_s - began > self._max_outage_s:
                    raise OutageError(
                        f"tried in vain for {self._max_outage_s:,.0f} s (--max-outage-s): {exc}"
                    ) from None
                await self._sleep(wait_s)
            else:
                if is_repeated:
                    self.trouble = ""
                return result

    async def submit(self, job: BatchJob) -> None:
        """Upload the requests and create the job.

        Raises `QueueFullError` and what the server refuses it with. Then the job has cost nothing,
        unless its status is "creating".
        """
        path = self._journal.requests(job.record.uuid)
        try:
            with os_errors(path):
                file_id = await self.persist(
                    lambda: self._client.upload(path, job.record.file_name)
                )
                await self.persist(lambda: self._create(job, file_id))
        except NotFoundError as exc:
            raise ConfigError(f"no Batch API there ({exc}); use --llm openai:MODEL") from None
        except RejectedError as exc:
            if is_queue_full(str(exc)):
                raise QueueFullError(str(exc)) from None
            raise ConfigError(f"the batch was refused: {exc}") from None

    async def _create(self, job: BatchJob, file_id: str) -> None:
        """The one step that costs money: written ahead, and never repeated blindly."""
        if job.record.status == "creating" and await self.is_found(job):
            return  # the answer of an earlier attempt was lost
        await lowlevel.checkpoint_if_cancelled()  # after a stop, no step costs money
        job.record = self._journal.note(job.record, "creating")
        try:
            server = await self._client.create(file_id, job.record.uuid)
        except TransientError:
            raise  # it may be there all the same
        except (ClaimscoreError, NotFoundError):
            job.record = dataclasses.replace(job.record, status="prepared")
            raise
        self._note_created(job, server)

    async def is_found(self, job: BatchJob) -> bool:
        """Whether a job whose creation was begun is on the server; it is noted if so."""
        age_s = self._now() - job.record.written_at
        if age_s < SETTLE_S:
            await self._sleep(min(SETTLE_S, SETTLE_S - age_s))
        server = await self._client.find(job.record.uuid)
        if server is not None:
            self._note_created(job, server)
        return server is not None

    def _note_created(self, job: BatchJob, server: ServerJob) -> None:
        job.server = server
        job.record = self._journal.note(job.record, "created", server.id)
