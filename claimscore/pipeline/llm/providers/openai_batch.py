"""`openai-batch:MODEL`: the answers of `openai:MODEL` at half the price, some hours later.

Requests are collected, sent as a file, and waited for. What is to be sent is on disk before it
is sent, so a kill at any moment loses nothing and buys nothing twice (`batch.files`,
`batch.course`). The tasks that wait do the work (`batch.waiting`): what is wanted comes together
in a `Collection` and becomes one of the `KnownBatches`; what a batch leaves without an answer is
seen to by `Unanswered`.

A batch costs money from the moment it is created on the server. Before that, it may be thrown
away: requests that are still wanted are collected again. After that, it is looked for until its
answers are kept, by whichever process comes first.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

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
from claimscore.pipeline.llm.providers.batch import progress
from claimscore.pipeline.llm.providers.batch.answers import hand_out
from claimscore.pipeline.llm.providers.batch.collecting import Collection
from claimscore.pipeline.llm.providers.batch.course import (
    FIRST_POLL_S,
    Batch,
    Course,
    NoRoomError,
    Patience,
    Sleep,
)
from claimscore.pipeline.llm.providers.batch.files import BatchFolder, batch_folder, named
from claimscore.pipeline.llm.providers.batch.known import KnownBatches
from claimscore.pipeline.llm.providers.batch.lines import (
    ENDED,
    GoneError,
    LineReader,
    Result,
    ServerBatch,
    input_line,
)
from claimscore.pipeline.llm.providers.batch.progress import BatchProgress
from claimscore.pipeline.llm.providers.batch.room import Room
from claimscore.pipeline.llm.providers.batch.unanswered import Unanswered
from claimscore.pipeline.llm.providers.batch.waiting import Crowd, Job, Waiter
from claimscore.pipeline.llm.providers.errors import Refusal
from claimscore.pipeline.llm.providers.openai import DEFAULT_BASE_URL, OpenAIProvider
from claimscore.pipeline.llm.providers.schema import Dialect, learn_dialect
from claimscore.types import Completion, Request

if TYPE_CHECKING:
    import httpx2

    from claimscore.pipeline.llm.providers.batch.api import BatchAPI

#: OpenAI's limits for one batch.
MAX_REQUESTS = 50_000
MAX_BYTES = 200_000_000

#: How many requests should wait at once: so many go into one batch. Each takes 6 KB and more.
BATCH_SIZE = 10_000


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
        self._max_bytes = max_bytes
        self._now = now
        self._sleep = sleep
        self._reader = LineReader(self.base_url, model, self._key)
        self._patience = Patience(max_outage_s, clock, sleep)
        self._room = Room(max_requests, max_outage_s, clock)
        self._keep: Keep = _keep_nothing
        self._find: Find = _find_nothing
        self._lazy_api: BatchAPI | None = None
        self._collection = Collection(max_requests, linger_s, sleep)
        self._crowd = Crowd(self._collection, self._work)
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
        return self._known.folder.path

    @state.setter
    def state(self, path: Path) -> None:
        folder = BatchFolder(path, now=self._now)
        self._known = KnownBatches(folder, self._sleep)
        self._course = Course(self._api, folder, self._patience, now=self._now, sleep=self._sleep)
        self._unanswered = Unanswered(
            self._known,
            self._collection,
            self._room,
            self._patience,
            reader=self._reader,
            teaches=self._teaches,
            tell=self._tell,
        )

    async def complete(self, request: Request) -> Completion:
        """The answer, when the batch that holds the request is done: after minutes or hours.

        A cancelled call loses nothing: what was sent is collected by the next run, what was
        not is not sent.
        """
        if self._collection.why_closed is not None:
            raise self._collection.why_closed.with_traceback(None)
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
        claim = self._known.folder.claim()
        if claim is not None:
            self._known.folder.sweep()
            claim.release()
        await self._known.refresh()
        for batch in self._known:
            try:
                await self._look_after(batch)
            except (TransientError, GoneError, ConfigError, RejectedError, QuotaError) as exc:
                self._patience.trouble = str(exc)

    async def diagnose(self) -> None:
        """Raise what will not change by waiting: a wrong key, an unknown model."""
        await self._online.diagnose()

    async def aclose(self) -> None:
        self._known.release()
        api, self._lazy_api = self._lazy_api, None
        if api is not None:
            await api.aclose()
        await self._online.aclose()

    # -- what people see

    def progress(self) -> BatchProgress:
        """The numbers of this moment, as the server told them last."""
        return progress.progress(
            self._known,
            collecting=len(self._collection.waiters),
            trouble=self._patience.trouble,
            now=self._now(),
        )

    def notice(self) -> str | None:
        """What a user must know who stops now; None where nothing is under way."""
        return progress.notice(self._known)

    def under_way(self) -> tuple[str, float]:
        """What is waited for, in words, and for how many seconds already; "" for nothing."""
        return progress.under_way(
            self._known,
            n_waiting=len(self._crowd.waiters),
            trouble=self._patience.trouble,
            now=self._now(),
        )

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
                self._collection.close(exc)
            for waiter in list(job.waiters.values()):
                waiter.settle(exc)

    async def _send_collection(self) -> None:
        """One batch of the requests that have come together; the rest is for the next."""
        await self._collection.linger()
        await self._sleep(self._room.wait_s)
        while self._room.is_taken(self._known):
            await self._sleep(FIRST_POLL_S)
        async with self._known.claim():
            await self._known.refresh()
            waiters = await self._unclaimed()
            if waiters:
                await self._prepare(waiters)

    async def _see_through(self, batch: Batch) -> None:
        """From wherever it stands to its answers."""
        try:
            if not await self._submitted(batch):
                self._unanswered.collect_anew(batch)
                return
            server = await self._course.ended(batch)
            if server.status == "failed":
                self._unanswered.refused(batch, server)
            else:
                await self._collect(batch, server, self._patience)
        except NoRoomError as exc:
            self._unanswered.no_room(batch, str(exc))
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
                self._known.drop(batch)
            raise
        if submitted and not was_created:
            self._tell("batch sent", batch=batch.state.batch_id, requests=batch.state.n_requests)
        return submitted

    # -- collecting requests

    async def _unclaimed(self) -> list[Waiter]:
        """Those of the collected requests that are in no batch and have no answer yet."""
        waiters = self._collection.waiters
        for batch in self._known:
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
            self._known.folder.prepare,
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
        batch = self._known.add(prepared)
        for waiter in chosen:
            if waiter.key in batch.keys and waiter.key in self._collection.waiters:
                waiter.move(batch)
        batch.call_for_leader()

    # -- what came of it

    async def _look_after(self, batch: Batch) -> None:
        """Find out what became of a batch that nobody waits for, and collect it if it is done."""
        if batch.state.status != "created":
            batch.lock = self._known.folder.lock(batch.state.uuid)
            if batch.lock is None:  # its process is at work
                return
            try:
                if not await self._course.found(batch):
                    if self._course.is_stale(batch):
                        self._known.drop(batch)
                    return
            finally:
                batch.release()
        server = await self._course.looked_at(batch)
        if server.status == "failed":
            self._known.drop(batch)
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
                n_answered += await patiently(
                    functools.partial(
                        hand_out,
                        self._api(),
                        file_id,
                        batch,
                        complaints,
                        reader=self._reader,
                        keep=self._keep,
                        folder=self.state,
                    )
                )
        self._known.drop(batch)
        self._room.landed()
        self._tell("batch ended", batch=server.id, status=server.status, answered=n_answered)
        self._unanswered.settle(batch, server, complaints, n_answered)

    def _teaches(self, batch: Batch, complaint: Refusal | None) -> bool:
        """Whether a complaint is about how we ask; if so, the next batch asks otherwise."""
        if complaint is None:
            return False
        asked = Dialect.from_json(batch.state.dialect)
        learnt = learn_dialect(complaint, asked)
        if learnt is not None and self.dialect == asked:  # else another batch has taught it
            self.dialect = learnt
            if self.on_dialect is not None:
                self.on_dialect(learnt)
        return learnt is not None

    def _gone(self, batch: Batch, error: GoneError) -> ConfigError:
        state = batch.state
        return ConfigError(
            f"{named([state])} is not there for this key ({error}); to buy its "
            f"{state.n_requests:,} requests again, delete {self.state / state.uuid}"
        )

    def _api(self) -> BatchAPI:
        """Made when first needed: the SDK takes long to import."""
        if self._lazy_api is None:
            from claimscore.pipeline.llm.providers.batch.api import BatchAPI

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
