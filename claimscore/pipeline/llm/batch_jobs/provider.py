"""`openai-batch:MODEL`: the answers of `openai:MODEL` at half the price, some hours later.

`complete` puts a request among the pending ones and waits. Two kinds of background tasks, in
the task group of the engine, do the work: one makes jobs of the requests that have come together
and sends them (`_submit_jobs`), one a job follows it to its answers (`_follow`). A task ends when
no caller waits for its requests any more.

A job costs money from the moment it is created on the server. Before that it may be thrown away.
From then on it is in the journal until its answers are kept, by whichever process comes first;
a kill at any moment loses nothing and buys nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio import lowlevel, to_thread
from anyio.abc import TaskGroup

from claimscore.atomic import os_errors
from claimscore.cache.key import request_key
from claimscore.config import LLMConfig, user_cache_dir
from claimscore.errors import (
    ClaimscoreError,
    ConfigError,
    OutageError,
    QuotaError,
    RejectedError,
    StoppedEarly,
    TransientError,
)
from claimscore.pipeline.llm.batch_jobs.client import (
    ENDED,
    BatchClient,
    NotFoundError,
    OutputLine,
    ServerJob,
    is_queue_full,
    request_line,
)
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal, job_names, journal_folder
from claimscore.pipeline.llm.batch_jobs.pending import (
    FIRST_POLL_S,
    LONGEST_POLL_S,
    MAX_JOBS,
    BatchJob,
    BatchJobSizeLimit,
    PendingRequest,
    PendingRequests,
)
from claimscore.pipeline.llm.providers.base import Find, Keep
from claimscore.pipeline.llm.providers.errors import Refusal
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.providers.schema import Dialect, learn_dialect
from claimscore.retry import Backoff, Sleep
from claimscore.types import Completion, Request

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

#: OpenAI's limits for one job.
MAX_REQUESTS = 50_000
MAX_BYTES = 200_000_000

#: How many requests should wait at once: so many go into one job. Each takes 6 KB and more.
BATCH_SIZE = 10_000

POLL_GROWTH = 1.5
_LOCK_POLL_S = 0.2

#: How long after a lost answer to "create" the server's list of jobs is surely complete.
SETTLE_S = 15.0

#: A refusal of a whole job that is no fault of ours.
_PASSES = re.compile(r"internal|server_error|timeout|timed out|unavailable|try again")


class _QueueFullError(Exception):
    """The server takes no (such large) job now; nothing was paid."""


class OpenAIBatchProvider:
    """`openai-batch:MODEL`. The cache keys are those of `openai:MODEL`.

    An engine calls `recover`, then `start`, then `complete`. `state`, the journal's folder, may be
    replaced before that. `on_event` hears of rare events; `dialect` is as in
    `OpenAIProvider`, which takes the options of the `server`. Times are in seconds; `clock`, `now`
    and `sleep` are for tests.
    """

    family = "openai"
    batch_size = BATCH_SIZE

    def __init__(
        self,
        model: str,
        *,
        state: Path | None = None,
        max_requests: int = MAX_REQUESTS,
        max_bytes: int = MAX_BYTES,
        linger_s: float = 2.0,
        max_outage_s: float = 3600.0,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Sleep = anyio.sleep,
        **server: Any,
    ) -> None:
        # it checks the URL and the key by the rules for both
        self._online = OpenAIProvider(model, transport=transport, **server)
        self.model = model
        self.params = self._online.params
        self.base_url = self._online.base_url
        self.namespace = self._online.namespace
        self.dialect = Dialect()
        self.on_event: Callable[..., None] | None = None
        self._client = BatchClient(self._online.server, model)
        self._max_bytes = max_bytes
        self._linger_s = linger_s
        self._max_outage_s = max_outage_s
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._size_limit = BatchJobSizeLimit(max_requests, max_outage_s, clock)
        self._pending = PendingRequests()
        self._jobs: dict[str, BatchJob] = {}
        self._sending: BatchJob | None = None
        self._submitter: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None
        self._stopped: Exception | None = None
        self._keep: Keep = lambda answers: None
        self._find: Find = lambda keys: {}
        #: Why it takes longer than it should.
        self._trouble = ""
        self.state = state or journal_folder(user_cache_dir(), self.namespace)

    @classmethod
    def from_config(cls, config: LLMConfig) -> OpenAIBatchProvider:
        """The provider that settings and environment name; raises `ConfigError`."""
        online = OpenAIProvider.from_config(config)
        return cls(
            online.model,
            base_url=online.base_url,
            key=online.server.key,
            headers=online.server.own_headers,
            params=online.params,
            namespace=online.namespace,
            timeout_s=config.timeout_s,
            allow_http_key=config.allow_http_key,
            max_outage_s=config.max_outage_s,
        )

    def __repr__(self) -> str:
        return f"OpenAIBatchProvider({self.model!r}, base_url={self.base_url!r})"

    @property
    def state(self) -> Path:
        """The journal's folder; the same in every run that may collect the jobs."""
        return self._journal.folder

    @state.setter
    def state(self, path: Path) -> None:
        self._journal = JobJournal(path, now=self._now)

    def start(self, tasks: TaskGroup) -> None:
        """Take the task group for the background tasks; they end when no caller waits."""
        self._tasks = tasks

    async def complete(self, request: Request) -> Completion:
        """The answer, when the job that holds the request has ended: after minutes or hours.

        A cancelled call loses nothing: the next run collects what was sent; what was not sent
        is not sent any more. Raises only `claimscore.errors`.
        """
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        pending = self._pending.join(request_key(request), request)
        try:
            self._ensure_submitter()
            await pending.done.wait()
        finally:
            self._leave(pending)
        if isinstance(pending.outcome, Completion):
            return pending.outcome
        assert pending.outcome is not None, "the request is done"
        raise pending.outcome.with_traceback(None)  # many tasks raise the same

    async def recover(self, keep: Keep, find: Find) -> None:
        """Collect what earlier runs have sent and what is done by now; call it once, first.

        From then on all answers go to `keep` before any task gets them, and `find` says which
        answers other processes have bought meanwhile. A server that cannot be reached or
        refuses stops nothing here: a request that needs one of the jobs will meet the error.
        """
        self._keep, self._find = keep, find
        if not self.state.is_dir():
            return
        lock = self._journal.lock()
        try:
            await self._refresh()
            if lock is not None:  # else the process that holds it sees to its own jobs
                self._journal.sweep()
                for job in self._in_doubt():
                    await self._try(functools.partial(self._resolve, job))
        finally:
            if lock is not None:
                lock.release()
        for job in list(self._jobs.values()):
            if job.record.status == "created":
                await self._try(functools.partial(self._collect_if_ended, job))

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        await self._client.aclose()
        await self._online.aclose()

    # -- what people see

    def notice(self) -> str | None:
        """A notice for a user who stops the run; None where nothing is under way."""
        sent = [job.record for job in self._jobs.values() if job.record.status != "prepared"]
        if not sent:
            return None
        n_requests = sum(record.n_requests for record in sent)
        go_on = "which goes on" if len(sent) == 1 else "which go on"
        return (
            f"{n_requests:,} requests are in {job_names(sent)}, {go_on}; "
            "run the same command to collect the answers"
        )

    def under_way(self) -> tuple[str, float]:
        """The reason to wait, in words, and for how many seconds already; "" without one."""
        sent = [job for job in self._jobs.values() if job.pending and job.record.batch_id]
        why = f"; {self._trouble}" if self._trouble else ""
        if not sent:
            n = len(self._pending)
            return (f"{n:,} requests are put together{why}" if n else ""), 0.0
        told = [job.server for job in sent if job.server is not None]
        status = ", ".join(sorted({server.status for server in told})) or "sent"
        words = (
            f"{sum(job.record.n_requests for job in sent):,} requests are in "
            f"{job_names([job.record for job in sent])} ({status}, "
            f"{sum(server.completed for server in told):,} answered){why}"
        )
        return words, max(0.0, self._now() - min(job.record.prepared_at for job in sent))

    def _tell(self, kind: str, **fields: Any) -> None:
        if self.on_event is not None:
            self.on_event(kind, **fields)

    # -- the background tasks

    def _ensure_submitter(self) -> None:
        if self._pending.unsent and self._submitter is None:
            self._submitter = self._run(self._submit_jobs)

    def _ensure_watcher(self, job: BatchJob) -> None:
        if job.pending and job.watcher is None:
            job.watcher = self._run(self._follow, job)

    def _run(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> anyio.CancelScope:
        """Begin a background task; the scope that ends it."""
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await work(scope, *arguments)

        if self._tasks is None:
            raise RuntimeError("a batch provider works in an engine's task group: start() first")
        self._tasks.start_soon(run)
        return scope

    def _leave(self, pending: PendingRequest) -> None:
        """A caller goes; work for requests that no caller waits for ends at once."""
        job = pending.job
        self._pending.leave(pending)
        if job is not None and job.watcher is not None and not job.pending:
            job.watcher.cancel()
            job.watcher = None
        is_wanted = self._pending.unsent or (self._sending is not None and self._sending.pending)
        if self._submitter is not None and not is_wanted:
            self._submitter.cancel()
            self._submitter = None

    def _fail(self, requests: Iterable[PendingRequest], error: Exception) -> None:
        """Raise an error in all that wait for some requests; one that stops the run, in all
        that are not sent, now and later."""
        if not isinstance(error, ClaimscoreError) or isinstance(error, ConfigError | StoppedEarly):
            self._stopped = self._stopped or error
        for pending in list(requests):
            self._pending.settle(pending, error)
        if self._stopped is not None:
            for pending in list(self._pending.unsent.values()):
                self._pending.settle(pending, self._stopped)

    async def _submit_jobs(self, scope: anyio.CancelScope) -> None:
        """Job after job of the requests that are not sent, until there are none."""
        try:
            while self._pending.unsent:
                await self._linger()
                await self._sleep(self._size_limit.wait_s)
                while self._size_limit.must_wait(self._jobs.values()):
                    await self._sleep(FIRST_POLL_S)
                async with self._journal_lock():
                    requests = await self._not_bought()
                    if requests:
                        await self._submit_one(requests[: self._size_limit.max_requests])
        except Exception as exc:  # a bug too must reach the tasks that wait
            self._fail(self._pending.unsent.values(), _as_stop(exc))
        finally:
            if self._submitter is scope:
                self._submitter = None

    async def _follow(self, scope: anyio.CancelScope, job: BatchJob) -> None:
        """Look at a job until the server has ended it, and see to its answers."""
        try:
            wait_s = FIRST_POLL_S
            server = await self._persist(lambda: self._look_at(job))
            while server.status not in ENDED:
                await self._sleep(wait_s)
                wait_s = min(wait_s * POLL_GROWTH, LONGEST_POLL_S)
                server = await self._persist(lambda: self._look_at(job))
            if server.status == "failed":
                self._refused(job, server)
            else:
                await self._collect(job, server, self._persist)
        except NotFoundError as exc:
            path = self._journal.record_path(job.record.uuid)
            gone = (
                f"{job_names([job.record])} is not there for this key ({exc}); to buy its "
                f"{job.record.n_requests:,} requests again, delete {path}"
            )
            self._fail(job.pending.values(), ConfigError(gone))
        except Exception as exc:
            self._fail(job.pending.values(), _as_stop(exc))
        finally:
            if job.watcher is scope:
                job.watcher = None

    async def _try(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call whose errors stop nothing: they will be met again where they matter."""
        try:
            await call()
        except (TransientError, NotFoundError, ConfigError, RejectedError, QuotaError) as exc:
            self._trouble = str(exc)

    # -- from requests to a job on the server

    async def _linger(self) -> None:
        """Until no request has come for a while, or there are enough for a job."""
        n_seen = -1
        while n_seen < len(self._pending.unsent) < self._size_limit.max_requests:
            n_seen = len(self._pending.unsent)
            await self._sleep(self._linger_s)

    @contextlib.asynccontextmanager
    async def _journal_lock(self) -> AsyncIterator[None]:
        """One process at a time makes and sends jobs, so that no two send the same request."""
        while (lock := self._journal.lock()) is None:
            await self._sleep(_LOCK_POLL_S)
        try:
            yield
        finally:
            lock.release()

    async def _refresh(self) -> None:
        """See which jobs other processes have sent, and which they have collected."""
        names = set(await to_thread.run_sync(self._journal.names))
        for name in self._jobs.keys() - names:
            if not self._jobs[name].pending:
                del self._jobs[name]
        unread = names - self._jobs.keys() | {job.record.uuid for job in self._in_doubt()}

        def read() -> dict[str, BatchJob]:
            records = [self._journal.read(name) for name in unread]
            return {
                record.uuid: BatchJob(record, self._journal.keys(record.uuid))
                for record in records
                if record is not None  # else it was collected meanwhile
            }

        self._jobs |= await to_thread.run_sync(read)

    def _in_doubt(self) -> list[BatchJob]:
        """Jobs of which only the server knows whether they were created."""
        return [job for job in self._jobs.values() if job.record.status == "creating"]

    async def _resolve(self, job: BatchJob) -> None:
        """Find out whether a job is there whose process has ended; forget it if it is not."""
        if not await self._is_found(job):
            self._drop(job)

    async def _not_bought(self) -> list[PendingRequest]:
        """The unsent requests of this moment that are in no job and have no answer elsewhere.

        A request that comes later is left for the next job: it may be in one of these.
        """
        requests = dict(self._pending.unsent)
        await self._refresh()
        for job in self._in_doubt():
            if job.keys & requests.keys():
                try:
                    await self._persist(functools.partial(self._resolve, job))
                except (NotFoundError, RejectedError) as exc:
                    raise ConfigError(str(exc)) from None
        for job in list(self._jobs.values()):
            for key in job.keys & requests.keys() & self._pending.unsent.keys():
                self._pending.put_into(job, self._pending.unsent[key])
            self._ensure_watcher(job)
        found = await to_thread.run_sync(self._find, list(requests))
        for key in found.keys() & self._pending.unsent.keys():
            self._pending.settle(self._pending.unsent[key], found[key])
        return [p for key, p in requests.items() if self._pending.unsent.get(key) is p]

    async def _submit_one(self, requests: list[PendingRequest]) -> None:
        """Write a job of as many of the requests as fit, and bring it to the server."""
        dialect = self.dialect
        lines = ((p.key, request_line(p.key, p.request, dialect)) for p in requests)
        prepared = await to_thread.run_sync(
            lambda: self._journal.prepare(
                lines, model=self.model, dialect=dialect.to_json(), max_bytes=self._max_bytes
            )
        )
        if prepared is None:
            words = f"larger than a batch may be: {self._max_bytes:,} bytes"
            self._fail(requests[:1], RejectedError(words, "too_large"))
            return
        job = self._sending = self._jobs[prepared[0].uuid] = BatchJob(*prepared)
        for pending in requests:
            if pending.key in job.keys and pending.key in self._pending.unsent:
                self._pending.put_into(job, pending)
        try:
            await self._send(job)
            self._ensure_watcher(job)
            self._tell("batch sent", batch=job.record.batch_id, requests=job.record.n_requests)
        except _QueueFullError as exc:
            self._queue_full(job, str(exc))
        except Exception as exc:
            self._fail(job.pending.values(), _as_stop(exc))
        finally:
            self._sending = None
            if job.record.status == "prepared":  # else it may be there, and cost money
                self._drop(job)

    async def _send(self, job: BatchJob) -> None:
        """Upload the requests and create the job; the journal's lock must be held.

        Raises `_QueueFullError` and what the server refuses it with. Then the job has cost nothing,
        unless its status is "creating".
        """
        path = self._journal.requests(job.record.uuid)
        try:
            with os_errors(path):
                file_id = await self._persist(
                    lambda: self._client.upload(path, job.record.file_name)
                )
                await self._persist(lambda: self._create(job, file_id))
        except NotFoundError as exc:
            raise ConfigError(f"no Batch API there ({exc}); use --llm openai:MODEL") from None
        except RejectedError as exc:
            if is_queue_full(str(exc)):
                raise _QueueFullError(str(exc)) from None
            raise ConfigError(f"the batch was refused: {exc}") from None

    async def _create(self, job: BatchJob, file_id: str) -> None:
        """The one step that costs money: written ahead, and never repeated blindly."""
        if job.record.status == "creating" and await self._is_found(job):
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

    async def _is_found(self, job: BatchJob) -> bool:
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

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while its errors may pass; `OutageError` after `max_outage_s` of that."""
        began, backoff, trouble = self._clock(), Backoff(), ""
        while True:
            try:
                result = await call()
            except TransientError as exc:
                self._trouble = trouble = str(exc)
                wait_s = backoff.next_wait_s(exc)
                if self._clock() + wait_s - began > self._max_outage_s:
                    raise OutageError(
                        f"tried in vain for {self._max_outage_s:,.0f} s (--max-outage-s): {exc}"
                    ) from None
                await self._sleep(wait_s)
            else:
                if trouble:
                    self._trouble = ""
                return result

    def _drop(self, job: BatchJob) -> None:
        """Nothing of a job is needed any more, here or on disk."""
        self._journal.remove(job.record.uuid)
        self._jobs.pop(job.record.uuid, None)

    # -- from a job on the server to answers

    async def _look_at(self, job: BatchJob) -> ServerJob:
        assert job.record.batch_id is not None, "created before"
        job.server = await self._client.retrieve(job.record.batch_id)
        return job.server

    async def _collect_if_ended(self, job: BatchJob) -> None:
        """Take the answers of a job of an earlier run."""
        server = await self._look_at(job)
        if server.status == "failed":
            self._drop(job)
        elif server.status in ENDED:
            await self._collect(job, server, lambda call: call())

    async def _collect(
        self,
        job: BatchJob,
        server: ServerJob,
        patiently: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        """Take all answers; only then is the job forgotten and the rest seen to."""
        errors: dict[str, OutputLine] = {}
        answered: set[str] = set()

        def hand_out(line: OutputLine) -> None:
            if not isinstance(line.outcome, Completion):
                errors[line.key] = line
                return
            answered.add(line.key)
            if line.key in job.pending:
                self._pending.settle(job.pending[line.key], line.outcome)

        for file_id in (server.output_file_id, server.error_file_id):
            if file_id is not None:
                read = functools.partial(self._client.read_output, file_id, self.state)
                await patiently(functools.partial(read, self._keep, hand_out))
        self._drop(job)
        self._size_limit.ended()
        self._tell("batch ended", batch=server.id, status=server.status, answered=len(answered))
        unheard = TransientError(f"{self.base_url}: {server.id} is {server.status}, without it")
        for pending in list(job.pending.values()):
            line = errors.get(pending.key, OutputLine(pending.key, unheard))
            assert isinstance(line.outcome, ClaimscoreError), "answers have found their requests"
            if not answered and self._teaches(job, line.refusal):
                self._send_again(pending)
            elif isinstance(line.outcome, TransientError):
                self._send_again(pending, line.outcome)
            else:
                self._fail([pending], line.outcome)

    def _refused(self, job: BatchJob, server: ServerJob) -> None:
        """The server would not begin with a job: its requests are sent again, or not at all."""
        self._drop(job)
        lines = [self._client.refusal(fault) for fault in server.faults]
        words = "; ".join(str(line.outcome) for line in lines) or "no reason given"
        lower = " ".join(line.refusal.words for line in lines if line.refusal is not None)
        self._tell("batch refused", batch=server.id, reason=words)
        if is_queue_full(lower):
            self._queue_full(job, words)
            return
        if any(self._teaches(job, line.refusal) for line in lines):
            for pending in list(job.pending.values()):
                self._send_again(pending)
            return
        for line in lines:
            if isinstance(line.outcome, ConfigError | StoppedEarly):
                raise line.outcome
        if lines and not _PASSES.search(lower):
            raise ConfigError(f"the batch was refused: {words}")
        for pending in list(job.pending.values()):
            self._send_again(pending, TransientError(f"the batch was refused: {words}"))

    def _queue_full(self, job: BatchJob, words: str) -> None:
        """The server would not take so much now; nothing was paid."""
        self._drop(job)
        self._trouble = words
        self._size_limit.refused(job, self._jobs.values(), words)
        for pending in list(job.pending.values()):
            self._send_again(pending)

    def _send_again(self, pending: PendingRequest, error: TransientError | None = None) -> None:
        """Put a request into the next job, unless its job's `error` is one too many."""
        pending.n_jobs += error is not None
        if self._stopped is not None:
            self._pending.settle(pending, self._stopped)
        elif error is not None and pending.n_jobs >= MAX_JOBS:
            self._pending.settle(pending, error)
        else:
            self._pending.take_out(pending)
            self._ensure_submitter()

    def _teaches(self, job: BatchJob, refusal: Refusal | None) -> bool:
        """Whether a refusal is about how the server is asked; the next job asks otherwise."""
        if refusal is None:
            return False
        asked = Dialect.from_json(job.record.dialect)
        learnt = learn_dialect(refusal, asked)
        if learnt is not None and self.dialect == asked:  # else another job has taught it
            self.dialect = learnt
        return learnt is not None


def _as_stop(error: Exception) -> Exception:
    """The error as it stops a run: a refused call is no refused request."""
    return ConfigError(str(error)) if isinstance(error, RejectedError | NotFoundError) else error
