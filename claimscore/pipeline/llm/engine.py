"""Many questions to one provider: cache, single flight, retry, limiter, provider.

A request holds its slot until its answer is committed to the cache, so a kill costs at
most the requests in flight. Failures of one request are values (`Failure`); what stops a
run (wrong key, spent quota, a bug) is raised from every call that waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Generic, TypeVar, cast

import anyio
from anyio import lowlevel
from anyio.abc import TaskGroup

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, Entry
from claimscore.errors import (
    ConfigError,
    RateLimitError,
    RejectedError,
    StoppedEarly,
    TransientError,
)
from claimscore.pipeline.llm.commit import GroupCommit
from claimscore.pipeline.llm.judge import Parse, Passed, Refused, judge
from claimscore.pipeline.llm.limiter import Limiter, Sleep, TokenEstimate
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.retry import Retry
from claimscore.types import Completion, Failure, Message, OutputSchema, Request

T = TypeVar("T")

#: Rows whose stored answers are taken before other tasks get a turn.
_BULK = 500

#: How long requests in flight may still bring their answer home after a fatal error.
GRACE_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that passed its check; `cached` where nothing was sent for it."""

    key: str
    completion: Completion
    value: T
    cached: bool


@dataclasses.dataclass(slots=True)
class EngineStats:
    """What an engine has done so far, for whoever draws it.

    `sent` counts requests to the provider, attempts included; `answered` those that
    brought an answer; `hits` stored answers used; `rejected` new answers that failed their
    check; `failed` rows given a `Failure`. `paused_until` is a time of `anyio.current_time`;
    `last_error` is why something was last tried again.
    """

    sent: int = 0
    answered: int = 0
    hits: int = 0
    retries: int = 0
    rejected: int = 0
    failed: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    paused_until: float = 0.0
    last_error: str = ""


@dataclasses.dataclass(slots=True)
class _Row(Generic[T]):
    """A question on its way: the sample asked for next, and what became of earlier ones."""

    request: Request
    key: str
    n_refused: int = 0
    n_new: int = 0
    failure: Failure | None = None  # the row's outcome if no further sample may be asked
    outcome: Answer[T] | Failure | None = None


class _Halted(Exception):
    """Ends a worker after the engine stopped; the call that it worked for raises the reason."""


class _Flight:
    """A request that is being asked; `failure` is what all who wait for it get."""

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.failure: Failure | None = None


class Engine:
    """Asks a provider, keeps every answer. Enter it (`async with`) before asking.

    The provider and the cache are the caller's to close.
    """

    def __init__(
        self,
        provider: Provider,
        cache: Cache,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int = 64,
        max_attempts: int = 8,
        max_samples: int = 3,
        timeout_s: float = 120.0,
        retry_failed: bool = False,
        limiter: Limiter | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self.provider = provider
        self.cache = cache
        self.stats = EngineStats()
        self._max_samples = max_samples
        self._timeout_s = timeout_s
        self._retry_failed = retry_failed
        self._rates = (rpm, tpm)
        self._limiter = limiter
        self._estimate = TokenEstimate()
        self._sleep = sleep
        self._retry = Retry(max_attempts, self._back_off)
        self._slots = anyio.Semaphore(max_concurrency, fast_acquire=True)
        # More workers than slots: one that sleeps before a retry holds no slot.
        self._n_workers = 2 * max_concurrency
        self._commits = GroupCommit(cache)
        self._flights: dict[str, _Flight] = {}
        self._waiting: set[anyio.CancelScope] = set()
        self._calls: set[anyio.CancelScope] = set()
        self._error: BaseException | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Engine:
        if self._limiter is None:
            rpm, tpm = self._rates
            self._limiter = Limiter(rpm=rpm, tpm=tpm)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._commits.run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._halt(StoppedEarly("the engine is closed"))
        self._commits.close()
        await self._tasks.__aexit__(None, None, None)

    def request(
        self,
        messages: Sequence[Message],
        *,
        temperature: float = 0.0,
        max_tokens: int = 256,
        top_p: float = 1.0,
        output: OutputSchema | None = None,
        sample_index: int = 0,
    ) -> Request:
        """A request to this engine's provider."""
        return Request(
            provider=self.provider.family,
            namespace=self.provider.namespace,
            model=self.provider.model,
            messages=tuple(messages),
            temperature=temperature,
            max_tokens=max_tokens,
            top_p=top_p,
            output=output,
            sample_index=sample_index,
        )

    async def answer(self, request: Request, parse: Parse[T]) -> Answer[T] | Failure:
        """The answer to one request; see `answer_all`."""
        (outcome,) = await self.answer_all([request], parse)
        return outcome

    async def answer_all(
        self, requests: Sequence[Request], parse: Parse[T]
    ) -> list[Answer[T] | Failure]:
        """An answer or a failure for every request, in their order.

        `parse` judges an answer: what it returns is the answer's value, `ParseError`
        refuses it and the next sample is asked for. Stored answers are judged again, so a
        changed `parse` needs no request. Equal requests are asked once.
        """
        self._check_running()
        rows: dict[str, _Row[T]] = {}
        keys = [request_key(request) for request in requests]
        for key, request in zip(keys, requests, strict=True):
            rows.setdefault(key, _Row(request, key))
        missing = await self._take_stored(list(rows.values()), parse)
        if missing:
            await self._work(missing, parse)
        return [cast("Answer[T] | Failure", rows[key].outcome) for key in keys]

    def stop(self) -> None:
        """Send nothing more. Requests in flight finish and are kept; waiting calls then
        raise `StoppedEarly`."""
        self._halt(StoppedEarly("interrupted"))

    # -- stored answers

    async def _take_stored(self, rows: list[_Row[T]], parse: Parse[T]) -> list[_Row[T]]:
        """Give rows their stored answers, in bulk; return those that must be asked."""
        missing: list[_Row[T]] = []
        for start in range(0, len(rows), _BULK):
            open_rows = rows[start : start + _BULK]
            while open_rows:
                stored = self.cache.get_many([row.key for row in open_rows])
                missing += [row for row in open_rows if row.key not in stored]
                open_rows = [
                    row
                    for row in open_rows
                    if row.key in stored and not self._use_stored(row, stored[row.key], parse)
                ]
            await lowlevel.checkpoint()
        return missing

    def _use_stored(self, row: _Row[T], entry: Entry, parse: Parse[T]) -> bool:
        """Judge a stored answer; where it is refused, the row moves on to its next sample."""
        verdict = judge(entry.completion, parse)
        if isinstance(verdict, Refused):
            self._next_sample(row, verdict)
            return False
        self.stats.hits += 1
        row.outcome = Answer(row.key, entry.completion, verdict.value, cached=True)
        return True

    def _next_sample(self, row: _Row[T], why: Refused) -> None:
        row.n_refused += 1
        row.failure = Failure(why.kind, why.message, row.n_refused, row.key, why.raw)
        index = row.request.sample_index + 1
        row.request = dataclasses.replace(row.request, sample_index=index)
        row.key = request_key(row.request)

    # -- missing answers

    async def _work(self, rows: list[_Row[T]], parse: Parse[T]) -> None:
        """A fixed number of workers over all rows; raise what stopped them, if anything did."""
        queue = iter(rows)  # shared: a row is taken without awaiting, so no stream is needed
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                async with anyio.create_task_group() as workers:
                    for _ in range(min(len(rows), self._n_workers)):
                        workers.start_soon(self._worker, queue, parse)
            finally:
                self._calls.discard(scope)
        if any(row.outcome is None for row in rows):
            self._check_running()

    async def _worker(self, queue: Iterator[_Row[T]], parse: Parse[T]) -> None:
        for row in queue:
            try:
                await self._solve(row, parse)
            except _Halted:
                return
            except Exception as exc:
                self._halt(exc)  # `_work` raises it
                return

    async def _solve(self, row: _Row[T], parse: Parse[T]) -> None:
        """Go through the samples of a row until it has an outcome."""
        while row.outcome is None:
            entry = self.cache.get_many([row.key]).get(row.key)
            if entry is not None:
                self._use_stored(row, entry, parse)
            elif not self._may_ask(row):
                row.outcome = row.failure
            elif row.key in self._flights:
                flight = self._flights[row.key]
                with self._until_stopped():
                    await flight.landed.wait()
                row.outcome = flight.failure  # None: stored by now, or given up; look again
            else:
                await self._fly(row, parse)
        self.stats.failed += isinstance(row.outcome, Failure)

    def _may_ask(self, row: _Row[T]) -> bool:
        used = row.n_new if self._retry_failed else row.n_refused
        return used < self._max_samples

    async def _fly(self, row: _Row[T], parse: Parse[T]) -> None:
        """Ask for the row's sample; whoever wants the same meanwhile waits for this flight.

        Should this task be cancelled, the next of those who wait takes over.
        """
        key = row.key
        flight = self._flights[key] = _Flight()
        try:
            row.outcome = outcome = await self._ask(row, parse)
            flight.failure = outcome if isinstance(outcome, Failure) else None
        finally:
            del self._flights[key]
            flight.landed.set()

    async def _ask(self, row: _Row[T], parse: Parse[T]) -> Answer[T] | Failure | None:
        """An answer, a failure, or None where the answer was refused and the row moved on."""
        request, key, n_sent = row.request, row.key, 0

        async def attempt() -> tuple[Completion, Passed[T] | Refused]:
            nonlocal n_sent
            async with self._slot():
                reserved = await self._reserve(request)
                n_sent += 1
                return await self._attempt(request, key, parse, reserved)

        try:
            completion, verdict = await self._retry(attempt)
        except RejectedError as exc:
            return Failure(exc.kind, str(exc), n_sent, key)
        except TransientError as exc:
            kind = "rate_limit" if isinstance(exc, RateLimitError) else "transient"
            return Failure(kind, str(exc), n_sent, key)
        row.n_new += 1
        if isinstance(verdict, Passed):
            return Answer(key, completion, verdict.value, cached=False)
        self.stats.rejected += 1
        self._next_sample(row, verdict)
        return None

    async def _attempt(
        self, request: Request, key: str, parse: Parse[T], reserved: int
    ) -> tuple[Completion, Passed[T] | Refused]:
        """Send once. From the moment there is an answer, nothing keeps it from the cache."""
        self.stats.in_flight += 1
        try:
            completion = await self._send(request, reserved)
            if completion.finish_reason == "content_filter":
                raise RejectedError("the server's filter stopped the answer", "content_filter")
            with anyio.CancelScope(shield=True):
                verdict = await self._judge_and_keep(completion, key, parse)
            return completion, verdict
        finally:
            self.stats.in_flight -= 1

    async def _judge_and_keep(
        self, completion: Completion, key: str, parse: Parse[T]
    ) -> Passed[T] | Refused:
        try:
            verdict = judge(completion, parse)
        except Exception:  # a bug in `parse`; the answer is paid for all the same
            await self._commits.put(key, Entry(completion))
            raise
        why = verdict.message if isinstance(verdict, Refused) else None
        await self._commits.put(key, Entry(completion, why))
        return verdict

    async def _reserve(self, request: Request) -> int:
        """Wait for the limits; return the tokens set aside."""
        limiter = cast(Limiter, self._limiter)
        tokens = self._estimate.expect(request) if limiter.counts_tokens else 0
        if not limiter.free:
            with self._until_stopped():
                await limiter.reserve(tokens)
        if self._error is not None:
            raise _Halted
        return tokens

    async def _send(self, request: Request, reserved: int) -> Completion:
        """One request to the provider, within its time."""
        limiter = cast(Limiter, self._limiter)
        self.stats.sent += 1
        try:
            with anyio.fail_after(self._timeout_s):
                completion = await self.provider.complete(request)
        except TimeoutError:
            self.stats.last_error = f"no answer within {self._timeout_s:g} s"
            raise TransientError(self.stats.last_error) from None
        except RateLimitError as exc:
            self.stats.last_error = str(exc)
            if exc.retry_after_s is not None:
                limiter.pause(exc.retry_after_s)
                self.stats.paused_until = limiter.paused_until
            raise
        except TransientError as exc:
            self.stats.last_error = str(exc)
            raise
        except (ConfigError, StoppedEarly) as exc:
            self._halt(exc)
            raise
        self._count(completion)
        limiter.settle(reserved, self._estimate.learn(request, completion))
        return completion

    def _count(self, completion: Completion) -> None:
        self.stats.answered += 1
        self.stats.prompt_tokens += completion.usage.prompt_tokens or 0
        self.stats.completion_tokens += completion.usage.completion_tokens or 0

    # -- slots, waiting, stopping

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            self._slots.acquire_nowait()
        except anyio.WouldBlock:
            with self._until_stopped():
                await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def _back_off(self, seconds: float) -> None:
        self.stats.retries += 1
        with self._until_stopped():
            await self._sleep(seconds)

    @contextlib.contextmanager
    def _until_stopped(self) -> Iterator[None]:
        """Wait for something that is not an answer: `stop` and fatal errors end it."""
        if self._error is not None:
            raise _Halted
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            raise _Halted

    def _check_running(self) -> None:
        if self._error is not None:
            raise self._error
        if self._tasks is None:
            raise RuntimeError("enter the engine first: async with Engine(...) as engine")

    def _halt(self, error: BaseException) -> None:
        """The first reason to stop wakes all who wait; answers in flight get time to land."""
        if self._error is not None:
            return
        self._error = error
        for scope in list(self._waiting):
            scope.cancel()
        if type(error) is not StoppedEarly:
            deadline = anyio.current_time() + GRACE_S
            for scope in list(self._calls):
                scope.deadline = min(scope.deadline, deadline)
