"""A provider whose answers come in batch jobs: half the price, some hours later.

`complete` puts a request among those that wait. One background task does everything else, as long
as a caller waits: it makes jobs of the requests that are in none, looks how jobs stand, and takes
their answers (`_work`). A request is in no job (`_unsent`), in one (`_jobs`), or done.

A job costs money from the moment it is made on the server. It is in the journal before that, and
until its answers are kept, by whichever process comes first: a kill at any moment loses nothing
and buys nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import lowlevel, to_thread
from anyio.abc import TaskGroup

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, MemoryCache
from claimscore.config import LLMConfig, user_cache_dir
from claimscore.errors import (
    AskAgain,
    ClaimscoreError,
    ConfigError,
    OutageError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal, journal_folder
from claimscore.pipeline.llm.batch_jobs.server import (
    BatchServer,
    JobRecord,
    NoSuchJobError,
    Outcome,
    QueueFullError,
    ServerJob,
)
from claimscore.retry import POLICY
from claimscore.types import Completion, Request

#: How many requests may wait at once: so many go into one job. Each takes 6 KB and more.
BATCH_SIZE = 10_000

#: Bytes of a job: fewer than any server allows, as they are held in memory.
MAX_BYTES = 100_000_000

#: Requests are sent when none has come for so many seconds.
LINGER_S = 2.0

#: How often jobs are looked at: first, and after hours.
FIRST_POLL_S, LONGEST_POLL_S, POLL_GROWTH = 5.0, 60.0, 1.5

#: How long after a lost answer to `make` the server's list of jobs is surely complete.
SETTLE_S = 15.0

#: Jobs that a request may be in without an answer.
MAX_JOBS = 3

_LOCK_POLL_S = 0.2


@dataclasses.dataclass(slots=True)
class _Waiting:
    """A request that a caller waits for; `n_jobs` jobs left it without an answer."""

    request: Request
    n_jobs: int = 0
    outcome: Completion | Exception | None = None
    done: anyio.Event = dataclasses.field(default_factory=anyio.Event)


class BatchProvider:
    """Answers through a server's batch jobs; the cache keys are those of its online provider.

    An engine calls `open`, then `start`, then `complete`, for a key by one caller at a time.
    """

    def __init__(self, server: BatchServer, config: LLMConfig) -> None:
        online = server.provider
        self.family, self.namespace, self.model = online.family, online.namespace, online.model
        self.params, self.base_url = online.params, online.base_url
        self.check_key, self.aclose = online.check_key, online.aclose
        self.batch_size = BATCH_SIZE
        self._server = server
        self._max_outage_s = config.max_outage_s
        self._journal = JobJournal(journal_folder(user_cache_dir(), self))
        self._cache: Cache = MemoryCache()
        self._tasks: TaskGroup | None = None
        self._worker: anyio.CancelScope | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._unsent: dict[str, _Waiting] = {}
        self._jobs: dict[str, JobRecord] = {}
        #: The keys in all jobs of the journal that are known here.
        self._in_jobs: set[str] = set()
        #: Why it takes longer than it should.
        self._trouble = ""
        #: How large the next job may be, and when it may be sent: found out by being refused.
        self._most, self._send_at = BATCH_SIZE, 0.0

    def open(self, folder: Path, cache: Cache, on_write: Callable[[Path], None]) -> None:
        """Take the journal's folder, the same for all runs that may collect the jobs; `on_write` is
        the journal's.

        All answers go to the cache before a caller gets them; in it are those, too, that other
        processes have bought meanwhile.
        """
        self._journal = JobJournal(folder, on_write)
        self._cache = cache
        for record in self._journal.read():
            n_kept = len(cache.get_many(record.keys))
            if n_kept == len(record.keys):  # killed after the last was kept
                self._journal.remove(record)
            else:
                self._in_jobs.update(record.keys)

    def start(self, tasks: TaskGroup) -> None:
        """Take the task group for the background task, which ends when no caller waits."""
        self._tasks = tasks

    async def complete(self, request: Request) -> Completion:
        """The answer, when the job that holds the request has ended: after minutes or hours.

        A cancelled call loses nothing: the next run collects what was sent; what was not sent
        is not sent any more. Raises only `claimscore.errors`.
        """
        assert self._tasks is not None, "start() comes first"
        key = request_key(request)
        waiting = self._waiting[key] = self._unsent[key] = _Waiting(request)
        if self._worker is None:
            self._worker = anyio.CancelScope()
            self._tasks.start_soon(self._work, self._worker)
        try:
            await waiting.done.wait()
        finally:
            del self._waiting[key]
            self._unsent.pop(key, None)
            if not self._waiting and self._worker is not None:
                self._worker.cancel()
                self._worker = None
        if isinstance(waiting.outcome, Completion):
            return waiting.outcome
        assert waiting.outcome is not None, "the request is done"
        raise waiting.outcome.with_traceback(None)  # many callers raise the same

    def is_sent(self, key: str) -> bool:
        """Whether a request is in a job, perhaps of an earlier run, that may cost money."""
        return key in self._in_jobs

    def under_way(self) -> tuple[str, float]:
        """The jobs that are waited for, in words, and for how many seconds already; "" without
        any, unless something keeps them from being made."""
        if not self._jobs:
            return self._trouble, 0.0
        records = self._jobs.values()
        n_requests = sum(len(record.keys) for record in records)
        ids = ", ".join(record.batch_id for record in records)
        why = f"; {self._trouble}" if self._trouble else ""
        words = f"{n_requests:,} requests to {self.model} are in {ids}{why}"
        return words, max(0.0, time.time() - min(record.sent_at for record in records))

    # -- the background task

    async def _work(self, scope: anyio.CancelScope) -> None:
        """Send what waits, look at what was sent, take what has come, until no caller waits."""
        n_before, look_at, poll_s = -1, 0.0, FIRST_POLL_S
        with scope:
            try:
                while True:
                    n, now = len(self._unsent), anyio.current_time()
                    if n and (n == n_before or n >= self._most) and now >= self._send_at:
                        await self._persist(self._send)
                        look_at, poll_s = 0.0, FIRST_POLL_S
                    if now >= look_at:
                        for record in list(self._jobs.values()):
                            await self._persist(partial(self._look, record))
                        look_at = now + poll_s
                        poll_s = min(poll_s * POLL_GROWTH, LONGEST_POLL_S)
                    n_before = len(self._unsent)
                    await anyio.sleep(LINGER_S)
            except Exception as exc:  # a bug too must reach the callers
                error = ConfigError(str(exc)) if isinstance(exc, RejectedError) else exc
                for key in self._waiting:
                    self._settle(key, error)
            finally:
                if self._worker is scope:
                    self._worker = None

    async def _persist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat a call while its errors may pass; `OutageError` after `max_outage_s` of that."""
        end = anyio.current_time() + self._max_outage_s

        def note(state: Any) -> None:
            self._trouble = str(state.outcome.exception())

        def is_over(state: Any) -> bool:
            return bool(anyio.current_time() + state.upcoming_sleep > end)

        try:
            await POLICY.copy(sleep=anyio.sleep, stop=is_over, before_sleep=note)(call)
        except TransientError as exc:
            after = f"{self._max_outage_s:,.0f} s (--max-outage-s)"
            raise OutageError(f"tried in vain for {after}: {exc}") from None
        if anyio.current_time() >= self._send_at:
            self._trouble = ""

    def _settle(self, key: str, outcome: Completion | Exception) -> None:
        """Give the outcome of a request to the caller, if one waits for it."""
        self._unsent.pop(key, None)
        if (waiting := self._waiting.get(key)) is not None:
            waiting.outcome = outcome
            waiting.done.set()

    # -- from requests to a job

    async def _send(self) -> None:
        """Make a job of requests that are in none, of as many as it may hold.

        A call that failed may have made the job all the same, so it stays in the journal: the
        next call looks for it first.
        """
        keys = list(self._unsent)  # one that comes later may be in a job that is passed by now
        async with self._locked():
            await self._join_jobs(keys)
            lines = self._lines(keys)
            if not lines:
                return
            provider = self._server.provider
            await to_thread.run_sync(getattr, provider, "sdk")  # to import it takes a while
            await lowlevel.checkpoint_if_cancelled()  # after a stop, no step costs money
            model = self._unsent[next(iter(lines))].request.model
            record = JobRecord(uuid.uuid4().hex, model, tuple(lines), time.time())
            self._journal.write(record)
            self._in_jobs.update(lines)
            self._server.asked[record.name] = provider.dialect(model)
            try:
                job = await self._server.make(record, list(lines.values()))
            except ClaimscoreError as exc:
                if not isinstance(exc, TransientError) or exc.kind in ("connect", "rate_limit"):
                    self._forget(record)  # surely there is none
                if not isinstance(exc, QueueFullError):
                    raise
                self._no_room(record, str(exc))
                return
            self._follow(self._journal.write(dataclasses.replace(record, batch_id=job.id)))

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """One process at a time makes jobs, so that no two send the same request."""
        while (lock := self._journal.lock()) is None:
            await anyio.sleep(_LOCK_POLL_S)
        with lock:
            yield

    async def _join_jobs(self, keys: list[str]) -> None:
        """See which requests are in a job already, or have an answer by now."""
        for record in await to_thread.run_sync(self._journal.read):
            if record.batch_id:
                self._follow(record)
            elif not self._unsent.keys().isdisjoint(record.keys):
                await self._resolve(record)
        unsent = [key for key in keys if key in self._unsent]
        for key, completion in (await to_thread.run_sync(self._cache.get_many, unsent)).items():
            self._settle(key, completion)

    async def _resolve(self, record: JobRecord) -> None:
        """Find out whether a job was made: its process has ended, or the answer was lost."""
        wait_s = SETTLE_S - (time.time() - record.sent_at)
        await anyio.sleep(min(max(0.0, wait_s), SETTLE_S))
        known = {other.batch_id for other in self._journal.read()}
        fitting = [one for one in await self._server.find(record) if one not in known]
        if len(fitting) > 1:
            raise ConfigError(
                f"{self._journal.path(record)}: a batch of {len(record.keys):,} requests, whose "
                f"creation had no answer, may be {' or '.join(fitting)}; delete the file to buy "
                "them again"
            )
        if fitting:
            self._follow(self._journal.write(dataclasses.replace(record, batch_id=fitting[0])))
        else:
            self._forget(record)

    def _lines(self, keys: list[str]) -> dict[str, bytes]:
        """The requests of the next job: all to one model, and as many as it may hold."""
        lines: dict[str, bytes] = {}
        left, model = MAX_BYTES, ""
        for key in keys:
            if key not in self._unsent or len(lines) == self._most:
                continue
            request = self._unsent[key].request
            line, model = self._server.line(key, request), model or request.model
            if len(line) > MAX_BYTES:
                words = f"larger than a batch may be: {MAX_BYTES:,} bytes"
                self._settle(key, RejectedError(words, "too_large"))
            elif request.model == model and len(line) <= left:
                lines[key] = line
                left -= len(line)
        return lines

    def _follow(self, record: JobRecord) -> None:
        """From now on its requests are in this job."""
        self._jobs.setdefault(record.name, record)
        for key in record.keys:
            self._unsent.pop(key, None)

    def _no_room(self, record: JobRecord, words: str) -> None:
        """Wait until a job of ours has ended; where none is under way, try a smaller one."""
        self._trouble = words
        if self._jobs:
            self._send_at = float("inf")
        else:
            self._send_at = anyio.current_time() + LONGEST_POLL_S
            self._most = max(1, len(record.keys) // 2)

    def _forget(self, record: JobRecord) -> None:
        """A job has ended, or was never made."""
        self._journal.remove(record)
        self._jobs.pop(record.name, None)
        self._in_jobs.difference_update(record.keys)

    # -- from a job to answers

    async def _look(self, record: JobRecord) -> None:
        """See how a job stands; if the server has ended it, see to its requests."""
        try:
            view = await self._server.look(record)
            if view.has_ended and view.refusal is not None:
                self._end(record, view, dict.fromkeys(record.keys, view.refusal))
            elif view.has_ended:
                await self._collect(record, view)
        except NoSuchJobError as exc:
            raise ConfigError(
                f"batch {record.batch_id} is not there for this key ({exc}); to buy its "
                f"{len(record.keys):,} requests again, delete {self._journal.path(record)}"
            ) from None

    async def _collect(self, record: JobRecord, view: ServerJob) -> None:
        """Take all results of a job; only then is it forgotten."""
        errors, has_lines = dict[str, ClaimscoreError](), False
        for path in view.files:
            content = await self._server.download(path)
            has_lines |= bool(content.strip())
            outcomes = await to_thread.run_sync(self._read, content, record)
            for key, outcome in outcomes.items():
                if isinstance(outcome, Completion):
                    self._settle(key, outcome)
                else:
                    errors[key] = outcome
        if view.files and not has_lines:
            raise TransientError(f"{self.base_url}: the files of {view.id} are empty", "body")
        self._end(record, view, errors)

    def _read(self, content: bytes, record: JobRecord) -> dict[str, Outcome]:
        """The outcomes in a file of results, their answers kept.

        Lines that cannot be read, and keys that the job did not send, are left out. Raises
        `TransientError` where the file ends within a line, or holds none that can be read.
        """
        lines = [line for line in content.split(b"\n") if line.strip()]
        results = [self._server.read(line, record) for line in lines]
        wanted = frozenset(record.keys)
        outcomes = {one[0]: one[1] for one in results if one is not None and one[0] in wanted}
        answers = {key: one for key, one in outcomes.items() if isinstance(one, Completion)}
        if answers:
            self._cache.put_many(answers)
        is_cut = results[-1:] == [None] and not content.endswith(b"\n")
        if is_cut or (results and not any(results)):
            raise TransientError(f"{self.base_url}: a file of answers ended early", "body")
        return outcomes

    def _end(
        self, record: JobRecord, view: ServerJob, errors: Mapping[str, ClaimscoreError]
    ) -> None:
        """Forget a job that has ended; what it left open is sent again, or fails."""
        self._forget(record)
        if isinstance(view.refusal, QueueFullError):
            self._no_room(record, str(view.refusal))
        else:
            self._send_at, self._most = 0.0, min(self.batch_size, 2 * self._most)
        absent = TransientError(f"{self.base_url}: {view.id} is {view.status}, without it")
        for key in record.keys:
            waiting = self._waiting.get(key)
            if waiting is None or waiting.done.is_set():
                continue
            error = errors.get(key, absent)
            was_refused = isinstance(view.refusal, QueueFullError)
            waiting.n_jobs += not (was_refused or isinstance(error, AskAgain))
            if isinstance(error, TransientError) and waiting.n_jobs < MAX_JOBS:
                self._unsent[key] = waiting
            else:
                self._settle(key, error)
