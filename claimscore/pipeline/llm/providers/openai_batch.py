"""`openai-batch:MODEL`: the answers of `openai:MODEL` at half the price, some hours later.

Requests are collected, sent as a file, and waited for. What is to be sent is on disk before it
is sent, so a kill at any moment loses nothing and buys nothing twice (`batch_files`,
`batch_course`). The tasks that wait do the work (`batch_waiting`).

A batch costs money from the moment it is created on the server. Before that, it may be thrown
away: requests that are still wanted are collected again. After that, it is looked for until its
answers are kept, by whichever process comes first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio
from anyio import to_thread

from claimscore.atomic import os_errors
from claimscore.cache.key import request_key
from claimscore.config import LLMConfig, api_key, user_cache_dir
from claimscore.errors import (
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RejectedError,
    StoppedEarly,
    TransientError,
)
from claimscore.pipeline.llm.providers.base import Find, Keep
from claimscore.pipeline.llm.providers.batch_course import (
    FIRST_POLL_S,
    Batch,
    Course,
    NoRoomError,
    Patience,
    Sleep,
)
from claimscore.pipeline.llm.providers.batch_files import BatchFolder, batch_folder, named
from claimscore.pipeline.llm.providers.batch_lines import (
    ENDED,
    GoneError,
    LineReader,
    Result,
    ServerBatch,
    input_line,
    is_no_room,
)
from claimscore.pipeline.llm.providers.batch_room import Room
from claimscore.pipeline.llm.providers.batch_waiting import Crowd, Job, Waiter
from claimscore.pipeline.llm.providers.complaints import Complaint
from claimscore.pipeline.llm.providers.dialect import Dialect, learnt_from
from claimscore.pipeline.llm.providers.openai import DEFAULT_BASE_URL, OpenAIProvider
from claimscore.types import Completion, Request

if TYPE_CHECKING:
    import httpx2

    from claimscore.pipeline.llm.providers.batch_api import BatchAPI

#: OpenAI's limits for one batch.
MAX_REQUESTS = 50_000
MAX_BYTES = 200_000_000

#: How many requests should wait at once: so many go into one batch. Each takes 6 KB and more.
BATCH_SIZE = 10_000

#: Batches that a request may be in without an answer.
MAX_TRIES = 3

#: A refusal of a whole batch that is no fault of ours.
_PASSES = re.compile(r"internal|server_error|timeout|timed out|unavailable|try again")

#: Answers that are kept at a time.
_GROUP = 1000
_CLAIM_POLL_S = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class BatchProgress:
    """What is under way, for whoever draws it. `trouble` is why it takes longer than it should."""

    collecting: int
    batches: int
    requests: int
    answered: int
    failed: int
    oldest_s: float
    trouble: str


class OpenAIBatchProvider:
    """`openai-batch:MODEL`. The cache keys are those of `openai:MODEL`.

    `state` may be replaced before anything is asked. `on_event` hears of what happens seldom;
    `dialect` and `on_dialect` are as in `OpenAIProvider`.
    """

    family = "openai"
    batch_size = BATCH_SIZE

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        key: str | None = None,
        namespace: str | None = None,
        timeout_s: float = 120.0,
        allow_http_key: bool = False,
        state: Path | None = None,
        max_requests: int = MAX_REQUESTS,
        max_bytes: int = MAX_BYTES,
        linger_s: float = 2.0,
        max_outage_s: float = 3600.0,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self._online = OpenAIProvider(  # it checks the URL and the key by the rules for both
            model,
            base_url=base_url,
            key=key,
            namespace=namespace,
            timeout_s=timeout_s,
            allow_http_key=allow_http_key,
            transport=transport,
        )
        self.model = model
        self.base_url = self._online.base_url
        self.namespace = self._online.namespace
        self.dialect = Dialect()
        self.on_dialect: Callable[[Dialect], None] | None = None
        self.on_event: Callable[..., None] | None = None
        self._key = (key or "").strip() or None
        self._timeout_s = timeout_s
        self._transport = transport
        self._linger_s = linger_s
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._now = now
        self._sleep = sleep
        self._reader = LineReader(self.base_url, model, self._key)
        self._patience = Patience(max_outage_s, clock, sleep)
        self._room = Room(max_requests, max_outage_s, clock)
        self._keep: Keep = _keep_nothing
        self._find: Find = _find_nothing
        self._lazy_api: BatchAPI | None = None
        self._collection = Job()
        self._crowd = Crowd(self._collection, self._work)
        self._batches: dict[str, Batch] = {}
        self._fatal: Exception | None = None
        self.state = state or batch_folder(user_cache_dir(), self.namespace)

    @classmethod
    def from_config(cls, config: LLMConfig, *, state: Path | None = None) -> OpenAIBatchProvider:
        _, _, model = config.model.partition(":")
        if not model:
            raise ConfigError("--llm openai-batch: name a model, as in openai-batch:gpt-5-mini")
        if len(config.base_urls) > 1:
            raise ConfigError(
                f"{config.model}: a batch is one server's; give --base-url once, or ask several "
                f"servers with --llm openai:{model}"
            )
        online = OpenAIProvider.from_config(config)
        return cls(
            model,
            base_url=online.base_url,
            key=api_key(),
            namespace=online.namespace,
            timeout_s=config.timeout_s,
            allow_http_key=config.allow_http_key,
            state=state,
            max_outage_s=config.max_outage_s,
        )

    def __repr__(self) -> str:
        return f"OpenAIBatchProvider({self.model!r}, base_url={self.base_url!r})"

    @property
    def state(self) -> Path:
        """The folder where batches are remembered; the same in every run that may collect them."""
        return self._folder.path

    @state.setter
    def state(self, path: Path) -> None:
        self._folder = BatchFolder(path, now=self._now)
        self._course = Course(
            self._api, self._folder, self._patience, now=self._now, sleep=self._sleep
        )

    async def complete(self, request: Request) -> Completion:
        """The answer, when the batch that holds the request is done: after minutes or hours.

        A cancelled call loses nothing: what was sent is collected by the next run, what was
        not is not sent.
        """
        if self._fatal is not None:
            raise self._fatal.with_traceback(None)
        return await self._crowd.outcome(request_key(request), request)

    async def recover(self, keep: Keep, find: Find | None = None) -> None:
        """Collect what earlier runs have sent and what is done by now; call it once, first.

        From then on all answers go to `keep` before anybody gets them, and `find` says which
        answers other processes have bought meanwhile. A server that cannot be reached or
        refuses stops nothing here: whoever needs one of the batches will meet the error.
        """
        self._keep, self._find = keep, find or _find_nothing
        if not self.state.is_dir():
            return
        claim = self._folder.claim()
        if claim is not None:
            self._folder.sweep()
            claim.release()
        await self._refresh()
        for batch in list(self._batches.values()):
            try:
                await self._look_after(batch)
            except (TransientError, GoneError, ConfigError, RejectedError, QuotaError) as exc:
                self._patience.trouble = str(exc)

    async def diagnose(self) -> None:
        """Raise what will not change by waiting: a wrong key, an unknown model."""
        await self._online.diagnose()

    async def aclose(self) -> None:
        for batch in self._batches.values():
            batch.release()
        api, self._lazy_api = self._lazy_api, None
        if api is not None:
            await api.aclose()
        await self._online.aclose()

    # -- what people see

    def progress(self) -> BatchProgress:
        """The numbers of this moment, as the server told them last."""
        batches = list(self._batches.values())
        told = [batch.server for batch in batches if batch.server is not None]
        oldest = min((batch.state.prepared_at for batch in batches), default=self._now())
        return BatchProgress(
            collecting=len(self._collection.waiters),
            batches=len(batches),
            requests=sum(batch.state.n_requests for batch in batches),
            answered=sum(server.completed for server in told),
            failed=sum(server.failed for server in told),
            oldest_s=max(0.0, self._now() - oldest),
            trouble=self._patience.trouble,
        )

    def notice(self) -> str | None:
        """What a user must know who stops now; None where nothing is under way."""
        states = [batch.state for batch in self._batches.values()]
        sent = [state for state in states if state.status in ("creating", "created")]
        if not sent:
            return None
        n_requests = sum(state.n_requests for state in sent)
        go_on = "which goes on" if len(sent) == 1 else "which go on"
        return (
            f"{n_requests:,} requests are in {named(sent)}, {go_on}; "
            "run the same command to collect the answers"
        )

    def under_way(self) -> tuple[str, float]:
        """What is waited for, in words, and for how many seconds already; "" for nothing."""
        waited_for = [batch for batch in self._batches.values() if batch.waiters]
        sent = [batch for batch in waited_for if batch.state.batch_id is not None]
        trouble = f"; {self._patience.trouble}" if self._patience.trouble else ""
        if not sent:
            n_requests = len(self._crowd.waiters)
            return (f"{n_requests:,} requests are put together{trouble}" if n_requests else ""), 0.0
        told = [batch.server for batch in sent if batch.server is not None]
        status = ", ".join(sorted({server.status for server in told})) or "sent"
        words = (
            f"{sum(batch.state.n_requests for batch in sent):,} requests are in "
            f"{named([batch.state for batch in sent])} ({status}, "
            f"{sum(server.completed for server in told):,} answered){trouble}"
        )
        return words, max(0.0, self._now() - min(batch.state.prepared_at for batch in sent))

    def _tell(self, kind: str, **fields: Any) -> None:
        if self.on_event is not None:
            self.on_event(kind, **fields)

    # -- the two pieces of work: to make a batch of what is collected, to see a batch through

    async def _work(self, job: Job) -> None:
        """Do it for all who wait for it; what is raised for one is raised for all."""
        try:
            if isinstance(job, Batch):
                await self._see_through(job)
            else:
                await self._send_collection()
        except ClaimscoreError as exc:
            if isinstance(exc, ConfigError | StoppedEarly):
                self._stop(exc)
            for waiter in list(job.waiters.values()):
                waiter.settle(exc)

    def _stop(self, error: Exception) -> None:
        """Send nothing more; what is under way may still be collected."""
        self._fatal = self._fatal or error
        for waiter in list(self._collection.waiters.values()):
            waiter.settle(error)

    async def _send_collection(self) -> None:
        """One batch of the requests that have come together; the rest is for the next."""
        await self._linger()
        await self._sleep(self._room.wait_s)
        while self._room.is_taken(self._batches.values()):
            await self._sleep(FIRST_POLL_S)
        async with self._claim():
            await self._refresh()
            waiters = await self._unclaimed()
            if waiters:
                await self._prepare(waiters)

    async def _see_through(self, batch: Batch) -> None:
        """From wherever it stands to its answers."""
        try:
            if not await self._submitted(batch):
                self._collect_anew(batch)
                return
            server = await self._course.ended(batch)
            if server.status == "failed":
                self._refused(batch, server)
            else:
                await self._collect(batch, server, self._patience)
        except NoRoomError as exc:
            self._no_room(batch, str(exc))
        except GoneError as exc:
            raise self._gone(batch, exc) from None
        except RejectedError as exc:  # of a call, not of a request
            raise ConfigError(str(exc)) from None

    async def _submitted(self, batch: Batch) -> bool:
        was_created = batch.state.status == "created"
        try:
            submitted = await self._course.submitted(batch)
        except ClaimscoreError:
            if batch.state.status != "creating":  # else it may be there, and cost money
                self._drop(batch)
            raise
        if submitted and not was_created:
            self._tell("batch sent", batch=batch.state.batch_id, requests=batch.state.n_requests)
        return submitted

    # -- collecting requests

    async def _linger(self) -> None:
        """Until nobody has joined for a while, or there is enough for a batch."""
        n_seen = -1
        waiters = self._collection.waiters
        while n_seen < len(waiters) < self._max_requests:
            n_seen = len(waiters)
            await self._sleep(self._linger_s)

    @contextlib.asynccontextmanager
    async def _claim(self) -> AsyncIterator[None]:
        """The right to add batches, so that no two processes send the same request."""
        self._folder.make()
        while (lock := self._folder.claim()) is None:
            await self._sleep(_CLAIM_POLL_S)
            self._folder.make()
        try:
            yield
        finally:
            lock.release()

    async def _refresh(self) -> None:
        """See what other processes have sent, and have done with."""
        names = set(await to_thread.run_sync(self._folder.names))
        for name in self._batches.keys() - names:
            batch = self._batches[name]
            if not batch.waiters and not batch.led:
                batch.release()
                del self._batches[name]
        missing = names - self._batches.keys()  # those that ended meanwhile cannot be read
        for batch in await to_thread.run_sync(self._read, missing):
            self._batches[batch.state.uuid] = batch

    def _read(self, names: Iterable[str]) -> list[Batch]:
        states = [state for name in names if (state := self._folder.read(name)) is not None]
        return [Batch(state, frozenset(self._folder.keys(state.uuid)), None) for state in states]

    async def _unclaimed(self) -> list[Waiter]:
        """Those of the collected requests that are in no batch and have no answer yet."""
        waiters = self._collection.waiters
        for batch in self._batches.values():
            for waiter in list(waiters.values()):
                if waiter.key in batch.keys:
                    waiter.move(batch)
            batch.call_for_leader()
        found = await to_thread.run_sync(self._find, list(waiters))
        for key, completion in found.items():
            if key in waiters:
                waiters[key].settle(completion)
        return list(waiters.values())

    async def _prepare(self, waiters: list[Waiter]) -> None:
        """Write a batch of as many as may be; from then on it is the batch's waiters' work."""
        dialect = self.dialect
        chosen = waiters[: self._room.limit]
        lines = ((w.key, input_line(w.key, w.request, dialect)) for w in chosen)
        prepare = functools.partial(
            self._folder.prepare,
            lines,
            model=self.model,
            dialect=dialect.to_json(),
            max_bytes=self._max_bytes,
        )
        prepared = await to_thread.run_sync(prepare)
        if prepared is None:
            words = f"larger than a batch may be: {self._max_bytes:,} bytes"
            waiters[0].settle(RejectedError(words, "too_large"))
            return
        batch = Batch(prepared.state, frozenset(prepared.keys), prepared.lock)
        self._batches[prepared.state.uuid] = batch
        for waiter in chosen:
            if waiter.key in batch.keys and waiter.key in self._collection.waiters:
                waiter.move(batch)
        batch.call_for_leader()

    # -- what came of it

    async def _look_after(self, batch: Batch) -> None:
        """Find out what became of a batch that nobody waits for, and collect it if it is done."""
        if batch.state.status != "created":
            batch.lock = self._folder.lock(batch.state.uuid)
            if batch.lock is None:  # its process is at work
                return
            try:
                if not await self._course.found(batch):
                    if self._course.is_stale(batch):
                        self._drop(batch)
                    return
            finally:
                batch.release()
        server = await self._course.looked_at(batch)
        if server.status == "failed":
            self._drop(batch)
        elif server.status in ENDED:
            await self._collect(batch, server, _at_once)

    async def _collect(
        self, batch: Batch, server: ServerBatch, patiently: Callable[..., Awaitable[int]]
    ) -> None:
        """Take all answers; only then is the batch forgotten and the rest seen to."""
        complaints: dict[str, Result] = {}
        n_answered = 0
        for file_id in (server.output_file_id, server.error_file_id):
            if file_id is not None:
                take = functools.partial(self._take, batch, file_id, complaints)
                n_answered += await patiently(take)
        self._drop(batch)
        self._room.landed()
        self._tell("batch ended", batch=server.id, status=server.status, answered=n_answered)
        self._settle_rest(batch, server, complaints, n_answered)

    async def _take(self, batch: Batch, file_id: str, complaints: dict[str, Result]) -> int:
        """Hand out the answers of one file, and return their number; gather its complaints."""
        n_answered = 0
        with os_errors(self.state), tempfile.TemporaryFile(dir=self.state) as stream:
            await self._api().download(file_id, stream)
            stream.seek(0)
            while (results := await to_thread.run_sync(self._read_group, stream)) is not None:
                for result in results:
                    if not isinstance(result.outcome, Completion):
                        complaints[result.key] = result
                        continue
                    n_answered += 1
                    waiter = batch.waiters.get(result.key)
                    if waiter is not None:
                        waiter.settle(result.outcome)
        return n_answered

    def _read_group(self, stream: BinaryIO) -> list[Result] | None:
        """The next lines, their answers kept already; None at the end."""
        lines = list(itertools.islice(stream, _GROUP))
        if not lines:
            return None
        results = [result for line in lines if (result := self._reader.read(line)) is not None]
        answers = {r.key: r.outcome for r in results if isinstance(r.outcome, Completion)}
        if answers:
            self._keep(answers)
        return results

    def _settle_rest(
        self, batch: Batch, server: ServerBatch, complaints: Mapping[str, Result], n_answered: int
    ) -> None:
        """What was not answered is asked again, in another dialect or as it was, or not at all."""
        unheard = TransientError(f"{self.base_url}: {server.id} is {server.status}, without it")
        stop: Exception | None = None
        for waiter in list(batch.waiters.values()):
            result = complaints.get(waiter.key)
            error = unheard if result is None else result.outcome
            assert isinstance(error, ClaimscoreError), "answers have found their waiters"
            if n_answered == 0 and result is not None and self._teaches(batch, result.complaint):
                self._join_collection(waiter)
            elif isinstance(error, TransientError):
                self._try_again(waiter, error)
            else:
                waiter.settle(error)
                if isinstance(error, ConfigError | StoppedEarly):
                    stop = error
        if stop is not None:
            self._stop(stop)

    def _refused(self, batch: Batch, server: ServerBatch) -> None:
        """The server would not begin with a batch."""
        self._drop(batch)
        results = [self._reader.refusal(fault) for fault in server.faults]
        words = "; ".join(str(result.outcome) for result in results) or "no reason given"
        lower = " ".join(result.complaint.words for result in results if result.complaint)
        self._tell("batch refused", batch=server.id, reason=words)
        if is_no_room(lower):
            self._no_room(batch, words)
            return
        if any(self._teaches(batch, result.complaint) for result in results):
            self._collect_anew(batch)
            return
        for result in results:
            if isinstance(result.outcome, ConfigError | StoppedEarly):
                raise result.outcome
        if results and not _PASSES.search(lower):
            raise ConfigError(f"the batch was refused: {words}")
        for waiter in list(batch.waiters.values()):
            self._try_again(waiter, TransientError(f"the batch was refused: {words}"))

    def _teaches(self, batch: Batch, complaint: Complaint | None) -> bool:
        """Whether a complaint is about how we ask; if so, the next batch asks otherwise."""
        if complaint is None:
            return False
        asked = Dialect.from_json(batch.state.dialect)
        learnt = learnt_from(complaint, asked)
        if learnt is not None and self.dialect == asked:  # else another batch has taught it
            self.dialect = learnt
            if self.on_dialect is not None:
                self.on_dialect(learnt)
        return learnt is not None

    def _no_room(self, batch: Batch, words: str) -> None:
        self._drop(batch)
        self._patience.trouble = words
        self._room.refused(batch, self._batches.values(), words)
        self._collect_anew(batch)

    def _try_again(self, waiter: Waiter, error: TransientError) -> None:
        waiter.n_tries += 1
        if waiter.n_tries < MAX_TRIES:
            self._join_collection(waiter)
        else:
            waiter.settle(error)

    def _collect_anew(self, batch: Batch) -> None:
        """Forget a batch that costs nothing; its requests are collected like new ones."""
        self._drop(batch)
        for waiter in list(batch.waiters.values()):
            self._join_collection(waiter)

    def _join_collection(self, waiter: Waiter) -> None:
        if self._fatal is not None:
            waiter.settle(self._fatal)
            return
        waiter.move(self._collection)
        self._collection.call_for_leader()

    def _drop(self, batch: Batch) -> None:
        """It is done with: nothing of it is needed any more, here or on disk."""
        self._folder.remove(batch.state.uuid)
        self._batches.pop(batch.state.uuid, None)
        batch.release()

    def _gone(self, batch: Batch, error: GoneError) -> ConfigError:
        state = batch.state
        return ConfigError(
            f"{named([state])} is not there for this key ({error}); to buy its "
            f"{state.n_requests:,} requests again, delete {self.state / state.uuid}"
        )

    def _api(self) -> BatchAPI:
        """Made when first needed: the SDK takes long to import."""
        if self._lazy_api is None:
            from claimscore.pipeline.llm.providers.batch_api import BatchAPI

            self._lazy_api = BatchAPI(
                self.base_url,
                key=self._key,
                model=self.model,
                timeout_s=self._timeout_s,
                transport=self._transport,
            )
        return self._lazy_api


async def _at_once(call: Callable[[], Awaitable[int]]) -> int:
    return await call()


def _keep_nothing(answers: Mapping[str, Completion]) -> None:
    """Until `recover` names a cache, answers go only to those who wait."""


def _find_nothing(keys: Sequence[str]) -> Mapping[str, Completion]:
    """Until `recover` names a cache, nobody else's answers are known."""
    return {}
