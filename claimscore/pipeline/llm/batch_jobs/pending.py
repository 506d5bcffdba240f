"""Requests that tasks wait for, the batch jobs that hold them, and how large a job may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import anyio

from claimscore.errors import OutageError
from claimscore.types import Completion, Request

if TYPE_CHECKING:
    from claimscore.pipeline.llm.batch_jobs.client import ServerJob
    from claimscore.pipeline.llm.batch_jobs.journal import JobRecord

#: How often a job is looked at: first, and after hours.
FIRST_POLL_S = 5.0
LONGEST_POLL_S = 60.0

#: Jobs that a request may be in without an answer.
MAX_JOBS = 3


class BatchJob:
    """One batch job as this process sees it; `pending` are its requests that tasks wait for.

    `watcher` ends the task that follows the job to its end, where there is one.
    """

    def __init__(self, record: JobRecord, keys: Iterable[str]) -> None:
        self.record = record
        self.keys = frozenset(keys)
        self.pending: dict[str, PendingRequest] = {}
        self.server: ServerJob | None = None
        self.watcher: anyio.CancelScope | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the server has looked through it and taken it."""
        return self.server is not None and self.server.status not in ("validating", "failed")


class PendingRequest:
    """A request that `n_callers` tasks wait for; `n_jobs` counts the jobs that left it open.

    `job` holds it; None while it waits to be sent.
    """

    __slots__ = ("done", "job", "key", "n_callers", "n_jobs", "outcome", "request")

    def __init__(self, key: str, request: Request) -> None:
        self.key = key
        self.request = request
        self.job: BatchJob | None = None
        self.n_callers = 0
        self.n_jobs = 0
        self.outcome: Completion | Exception | None = None
        self.done = anyio.Event()


class PendingRequests:
    """All requests that tasks wait for, by key; `unsent` are those that are in no job."""

    def __init__(self) -> None:
        self.unsent: dict[str, PendingRequest] = {}
        self._all: dict[str, PendingRequest] = {}

    def __len__(self) -> int:
        return len(self._all)

    def join(self, key: str, request: Request) -> PendingRequest:
        """One more task waits for the request."""
        pending = self._all.get(key)
        if pending is None:
            pending = self._all[key] = self.unsent[key] = PendingRequest(key, request)
        pending.n_callers += 1
        return pending

    def leave(self, pending: PendingRequest) -> None:
        """A task has its outcome, or waits no longer; the last one takes the request along."""
        pending.n_callers -= 1
        if not pending.n_callers:
            del self._all[pending.key]
            self.unsent.pop(pending.key, None)
            if pending.job is not None:
                pending.job.pending.pop(pending.key, None)

    def put_into(self, job: BatchJob, pending: PendingRequest) -> None:
        """From now on the job holds the request."""
        self.unsent.pop(pending.key, None)
        pending.job = job
        job.pending[pending.key] = pending

    def take_out(self, pending: PendingRequest) -> None:
        """The request is to be sent, perhaps again."""
        self._release(pending)
        self.unsent[pending.key] = pending

    def settle(self, pending: PendingRequest, outcome: Completion | Exception) -> None:
        """Give all tasks that wait for a request its outcome."""
        self._release(pending)
        self.unsent.pop(pending.key, None)
        pending.outcome = outcome
        pending.done.set()

    def _release(self, pending: PendingRequest) -> None:
        if pending.job is not None:
            pending.job.pending.pop(pending.key, None)
            pending.job = None


class BatchJobSizeLimit:
    """How large the next job may be, and when it may be tried: found out by being refused.

    A refusal costs nothing but the upload. While other jobs of ours are under way, the next
    one waits until one of them has ended; where there are none, a smaller one is tried.
    """

    def __init__(self, max_requests: int, max_outage_s: float, clock: Callable[[], float]) -> None:
        self.max_requests = max_requests
        self.wait_s = 0.0
        self._most = max_requests
        self._max_outage_s = max_outage_s
        self._clock = clock
        self._careful = False
        self._queue_is_full = False
        self._refused_since: float | None = None

    def must_wait(self, jobs: Iterable[BatchJob]) -> bool:
        """Whether one of our jobs must be accepted, or must end, before the next is tried."""
        return self._careful and any(
            job.pending and (self._queue_is_full or not job.is_accepted) for job in jobs
        )

    def refused(self, job: BatchJob, others: Iterable[BatchJob], words: str) -> None:
        """Be careful from now on; raise `OutageError` where nothing was taken for too long."""
        self._careful = True
        if any(other.is_accepted and other.pending for other in others):
            self._queue_is_full, self._refused_since = True, None
            return
        self.max_requests = max(1, job.record.n_requests // 2)
        self.wait_s = min(LONGEST_POLL_S, max(FIRST_POLL_S, 2 * self.wait_s))
        if self._refused_since is None:
            self._refused_since = self._clock()
        elif self._clock() - self._refused_since > self._max_outage_s:
            raise OutageError(f"no batch was taken for {self._max_outage_s:,.0f} s: {words}")

    def ended(self) -> None:
        """A job has ended: there is room again, perhaps for a larger one."""
        self.wait_s, self._refused_since, self._queue_is_full = 0.0, None, False
        self.max_requests = min(self._most, 2 * self.max_requests)
