"""Many questions to one provider: cache, single flight, retry, limiter, provider.

A request holds its slot until its answer is committed to the cache, so a kill costs at
most the requests in flight. Failures of one request are values (`Failure`); what stops a
run (wrong key, spent quota, a bug) is raised from every call that waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Generic, TypeVar, cast

import anyio
from anyio import lowlevel
from anyio.abc import TaskGroup

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, Entry
from claimscore.config import FailureLimit
from claimscore.errors import ConfigError, RejectedError, StoppedEarly
from claimscore.pipeline.llm.answers import Answers, OwnAnswers, Turn
from claimscore.pipeline.llm.failing import why_stop
from claimscore.pipeline.llm.judge import Parse, Passed, Refused, judge
from claimscore.pipeline.llm.limits import Limiter
from claimscore.pipeline.llm.money import Budgeted, Spending
from claimscore.pipeline.llm.providers.base import Collecting, Provider, servers_of
from claimscore.pipeline.llm.retry import GaveUp, Retry, Sleep
from claimscore.pipeline.llm.sender import OnEvent, Tries, hear_nothing
from claimscore.pipeline.llm.servers import open_sender
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import Closed, Halted, Stop
from claimscore.types import Completion, Failure, Message, OutputSchema, Request

T = TypeVar("T")

#: Rows whose stored answers are taken before other tasks get a turn.
_BULK = 500

#: Seconds between two looks whether another process has got the answer that is wanted here too.
_OTHER_PROCESS_S = (0.05, 0.15)

#: Workers of a call that may sleep before a retry, for each that can send.
_SLEEPERS_A_SLOT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that passed its check; `cached` where nothing was sent for it."""

    key: str
    completion: Completion
    value: T
    cached: bool


@dataclasses.dataclass(slots=True)
class _Row(Generic[T]):
    """A question on its way: the sample asked for next, and what became of earlier ones."""

    request: Request
    key: str
    step: int = 1
    n_refused: int = 0
    n_new: int = 0
    final: bool = False  # a further sample would fare no better
    failure: Failure | None = None  # the row's outcome if no further sample may be asked
    outcome: Answer[T] | Failure | None = None


@dataclasses.dataclass(slots=True)
class _Untaken:
    """How many rows of a call nobody has begun."""

    n: int


@dataclasses.dataclass(slots=True)
class _Call(Generic[T]):
    """One `answer_all`: the rows to ask for, and the workers that go through them.

    A worker that sleeps before a retry holds no slot, so another one takes its place; many may
    sleep where refusals come with a second to wait. `n_more` is how many there may be besides.
    """

    rows: Iterator[_Row[T]]  # shared: one is taken without awaiting, so no stream is needed
    parse: Parse[T]
    retry: Retry
    workers: TaskGroup
    n_more: int
    counted: bool
    untaken: _Untaken
    known: Mapping[str, Failure]


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
        cache: Cache | Answers,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int = 64,
        max_attempts: int = 8,
        max_samples: int = 3,
        timeout_s: float | None = 120.0,
        max_outage_s: float = 3600.0,
        failure_limit: FailureLimit | None = None,
        retry_failed: bool = False,
        limiter: Limiter | Sequence[Limiter] | None = None,
        spending: Budgeted | None = None,
        on_event: OnEvent | None = None,
        on_failure: Callable[[EngineStats, Failure], None] | None = None,
        stop: Stop | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self.provider = provider
        self.max_concurrency = max_concurrency * len(servers_of(provider))
        self.stats = EngineStats()
        self._max_attempts = max_attempts
        self._max_samples = max_samples
        self._failure_limit = failure_limit or FailureLimit()
        self._retry_failed = retry_failed
        self._sleep = sleep
        self._on_event = on_event or hear_nothing
        self._spending = spending or Spending(price=None)
        self._max_outage_s = max_outage_s
        self._stop = stop or Stop()
        self._on_failure = on_failure or self._check_failures
        self._sender = open_sender(
            provider,
            limiter
            or [
                Limiter(rpm=rpm, tpm=tpm, max_concurrency=max_concurrency)
                for _ in servers_of(provider)
            ],
            spending=self._spending,
            max_outage_s=max_outage_s,
            stop=self._stop,
            stats=self.stats,
            max_concurrency=max_concurrency,
            timeout_s=timeout_s,
            on_event=self._on_event,
        )
        # Thousands of locks, for hours: batches have their journal.
        claims = not isinstance(provider, Collecting)
        self._answers: Answers = (
            cache
            if isinstance(cache, Answers)
            else OwnAnswers(cache, self._spending.flush, claims=claims)
        )
        self._n_elsewhere = 0
        self._n_untaken = 0
        self._taken = anyio.Event()
        self._flights: dict[str, _Flight] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Engine:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._sender.start(self._tasks)
        self._tasks.start_soon(self._answers.run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._stop.halt(Closed("the engine is closed"))
        self._answers.close()
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
        top_logprobs: int = 0,
        model: str = "",
    ) -> Request:
        """A request to this engine's provider; `model` names another one of that server."""
        return Request(
            provider=self.provider.family,
            namespace=self.provider.namespace,
            model=model or self.provider.model,
            messages=tuple(messages),
            temperature=temperature,
            max_tokens=max_tokens,
            top_p=top_p,
            output=output,
            sample_index=sample_index,
            top_logprobs=top_logprobs,
        )

    async def answer(self, request: Request, parse: Parse[T]) -> Answer[T] | Failure:
        """The answer to one request; see `answer_all`."""
        (outcome,) = await self.answer_all([request], parse)
        return outcome

    async def answer_all(
        self,
        requests: Sequence[Request],
        parse: Parse[T],
        *,
        step: int = 1,
        counted: bool = True,
        known: Mapping[str, Failure] = MappingProxyType({}),
    ) -> list[Answer[T] | Failure]:
        """An answer or a failure for every request, in their order.

        `parse` judges an answer: what it returns is the answer's value, `ParseError`
        refuses it and the next sample is asked for: `step` after it, so that who wants several
        samples of a question, from the first `step` on, never gets one of them twice. Stored
        answers are judged again, so a changed `parse` needs no request. Equal requests are asked
        once. A failure that is not `counted` is no failed row: the caller asks in another way.
        `known` has failures of earlier, by key: what came to nothing then is not asked again.
        """
        self._check_running()
        rows: dict[str, _Row[T]] = {}
        keys = [request_key(request) for request in requests]
        for key, request in zip(keys, requests, strict=True):
            rows.setdefault(key, _Row(request, key, step))
        with self._to_begin(len(rows)) as untaken:
            try:
                missing = await self._take_stored(list(rows.values()), parse)
            except Halted:
                self._check_running()
                raise
            self._take(untaken, len(rows) - len(missing))
            if missing:
                await self._work(missing, parse, counted, untaken, known)
        return [cast("Answer[T] | Failure", rows[key].outcome) for key in keys]

    async def runs_short(self) -> None:
        """Wait until fewer rows are left to be begun than requests may be in flight, so that those
        of another call would be of use. At once where nothing is asked or it was stopped."""
        while self._n_untaken >= self.max_concurrency:
            if self._taken.is_set():
                self._taken = anyio.Event()
            await self._taken.wait()

    def stop(self) -> None:
        """Send nothing more. Requests in flight finish and are kept; waiting calls then
        raise `StoppedEarly`."""
        provider = self.provider
        notice = provider.notice() if isinstance(provider, Collecting) else None
        self._stop.halt(StoppedEarly("; ".join(filter(None, ["interrupted", notice]))))

    def observe(self) -> EngineStats:
        """The numbers of this moment: `stats` with what the limiter and the budget say."""
        stats, limits, totals = self.stats, self._sender.limits(), self._spending.totals
        stats.rpm, stats.tpm, stats.limits_from = limits.rpm, limits.tpm, limits.source
        stats.prompt_tokens, stats.completion_tokens = (
            totals.prompt_tokens,
            totals.completion_tokens,
        )
        stats.usd, stats.possibly_billed_usd = totals.usd, totals.possibly_billed_usd
        stats.waiting_s = max(0.0, limits.paused_until - anyio.current_time())
        stats.why = limits.why if stats.waiting_s else ""
        if isinstance(self.provider, Collecting):
            stats.why, stats.waiting_s = self.provider.under_way()
        stats.is_down, stats.servers = self._sender.is_down, self._sender.servers()
        if stats.is_down:
            stats.waiting_s, stats.why = self._sender.down_s, self._why_down()
        return stats

    def _why_down(self) -> str:
        """What the outage is, and where nothing was ever answered, what may be wrong."""
        why = f"no answers: {self._sender.why_down}"
        if self.stats.answered:
            return why
        until = f"--max-outage-s {self._max_outage_s:g}"
        return f"nothing has answered yet; is --base-url right? ({until}): {self._sender.why_down}"

    def waiting_for(self) -> str:
        """What the engine waits for, in words; empty where for nothing."""
        stats = self.observe()
        oldest = self._sender.in_flight.oldest()
        parts = [f"{stats.why} ({stats.waiting_s:,.0f} s)"] if stats.why else []
        if self._n_elsewhere:
            parts.append(f"{self._n_elsewhere:,} requests that another process is asking")
        if oldest is not None:
            key, age_s = oldest
            parts.append(
                f"{len(self._sender.in_flight):,} requests in flight, the oldest ({key[:12]}) "
                f"for {age_s:,.0f} s"
            )
        return "; ".join(parts)

    # -- stored answers

    async def _take_stored(self, rows: list[_Row[T]], parse: Parse[T]) -> list[_Row[T]]:
        """Give rows their stored answers, in bulk; return those that must be asked."""
        missing: list[_Row[T]] = []
        for start in range(0, len(rows), _BULK):
            open_rows = rows[start : start + _BULK]
            while open_rows:
                stored = await self._answers.get_many([row.key for row in open_rows])
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
        row.final = why.final
        row.failure = Failure(why.kind, why.message, row.n_refused, row.key, why.raw)
        index = row.request.sample_index + row.step
        row.request = dataclasses.replace(row.request, sample_index=index)
        row.key = request_key(row.request)

    # -- missing answers

    async def _work(
        self,
        rows: list[_Row[T]],
        parse: Parse[T],
        counted: bool,
        untaken: _Untaken,
        known: Mapping[str, Failure],
    ) -> None:
        """Workers over all rows, for all slots; raise what stopped them, if anything did."""
        n_workers = min(len(rows), self._answers.ahead * self.max_concurrency)
        with self._stop.call():
            async with anyio.create_task_group() as workers:
                retry = Retry(lambda seconds: self._back_off(call, seconds))
                n_more = min(len(rows) - n_workers, _SLEEPERS_A_SLOT * self.max_concurrency)
                call = _Call(iter(rows), parse, retry, workers, n_more, counted, untaken, known)
                for _ in range(n_workers):
                    workers.start_soon(self._worker, call)
        if any(row.outcome is None for row in rows):
            # Whoever hears of the stop may end everything: first let what is in flight land,
            # also that of other calls.
            await self._sender.in_flight.landed()
            self._check_running()

    @contextlib.contextmanager
    def _to_begin(self, n: int) -> Iterator[_Untaken]:
        """The rows of a call count as long as nobody begins them; none once it is over."""
        untaken = _Untaken(n)
        self._n_untaken += n
        try:
            yield untaken
        finally:
            self._take(untaken, untaken.n)

    def _take(self, untaken: _Untaken, n: int) -> None:
        untaken.n -= n
        self._n_untaken -= n
        if self._n_untaken < self.max_concurrency:
            self._taken.set()

    async def _worker(self, call: _Call[T]) -> None:
        for row in call.rows:
            self._take(call.untaken, 1)
            try:
                await self._solve(row, call)
            except Halted:
                return
            except Exception as exc:
                self._stop.halt(exc)  # `_work` raises it
                return

    async def _solve(self, row: _Row[T], call: _Call[T]) -> None:
        """Go through the samples of a row until it has an outcome."""
        while row.outcome is None:
            if row.key in self._flights:
                flight = self._flights[row.key]
                with self._stop.waiting():
                    await flight.landed.wait()
                row.outcome = flight.failure  # None: stored by now, or given up; look again
            else:
                await self._look_and_ask(row, call)
        if call.counted and isinstance(row.outcome, Failure):
            self._count_failure(row.outcome)

    async def _look_and_ask(self, row: _Row[T], call: _Call[T]) -> None:
        """One sample of a row that no other task is asking for; who wants the same waits.

        Should this task be cancelled, the next of those who wait takes over.
        """
        key = row.key
        flight = self._flights[key] = _Flight()
        try:
            found = await self._answers.begin(key)
            try:
                await self._go_on(row, call, found, flight)
            finally:
                self._answers.end(key)
        finally:
            del self._flights[key]
            flight.landed.set()
        if found == "elsewhere":
            await self._wait_for_other_process()

    async def _go_on(
        self, row: _Row[T], call: _Call[T], found: Entry | Turn, flight: _Flight
    ) -> None:
        """Use the stored answer, or ask where it is our turn and another sample is allowed."""
        if isinstance(found, Entry):
            self._use_stored(row, found, call.parse)
        elif found == "elsewhere":
            return
        elif not self._may_ask(row):
            row.outcome = row.failure
        elif row.key in call.known:
            row.outcome = call.known[row.key]
        elif self._answers.read_only:
            raise ConfigError(
                "an answer is missing, and the cache can only be read, so it could not be "
                "kept; make it writable for you, or name another folder with --cache-dir"
            )
        else:
            row.outcome = outcome = await self._ask(row, call)
            flight.failure = outcome if isinstance(outcome, Failure) else None

    async def _wait_for_other_process(self) -> None:
        """A while, in which it may have bought the answer; should it end, the claim is free."""
        self._n_elsewhere += 1
        try:
            with self._stop.waiting():
                await self._sleep(random.uniform(*_OTHER_PROCESS_S))
        finally:
            self._n_elsewhere -= 1

    def _may_ask(self, row: _Row[T]) -> bool:
        used = row.n_new if self._retry_failed else row.n_refused
        return used < self._max_samples and not (used and row.final)

    def _count_failure(self, failure: Failure) -> None:
        """Stop the run where that is one too many."""
        self.stats.failed += 1
        self.stats.failures[failure.kind] += 1
        self._on_failure(self.stats, failure)

    def _check_failures(self, stats: EngineStats, failure: Failure) -> None:
        error = why_stop(stats, self._failure_limit, failure.message)
        if error is not None:
            raise error

    async def _ask(self, row: _Row[T], call: _Call[T]) -> Answer[T] | Failure | None:
        """An answer, a failure, or None where the answer was refused and the row moved on."""
        request, key, tries = row.request, row.key, Tries(self._max_attempts)

        async def keep(completion: Completion) -> tuple[Completion, Passed[T] | Refused]:
            with anyio.CancelScope(shield=True):
                verdict = await self._judge_and_keep(completion, key, call.parse)
            return completion, verdict

        async def attempt() -> tuple[Completion, Passed[T] | Refused]:
            return await self._sender.send(request, key, tries, keep)

        try:
            completion, verdict = await call.retry(attempt)
        except RejectedError as exc:
            return Failure(exc.kind, str(exc), tries.sent, key)
        except GaveUp as exc:
            return Failure("transient", str(exc.__cause__), tries.sent, key)
        row.n_new += 1
        if isinstance(verdict, Passed):
            return Answer(key, completion, verdict.value, cached=False)
        self.stats.rejected += 1
        self._next_sample(row, verdict)
        return None

    async def _judge_and_keep(
        self, completion: Completion, key: str, parse: Parse[T]
    ) -> Passed[T] | Refused:
        try:
            verdict = judge(completion, parse)
        except Exception:  # a bug in `parse`; the answer is paid for all the same
            await self._answers.keep(key, Entry(completion))
            raise
        why = verdict.message if isinstance(verdict, Refused) else None
        await self._answers.keep(key, Entry(completion, why))
        return verdict

    async def _back_off(self, call: _Call[T], seconds: float) -> None:
        if self._sender.is_down:
            return  # the gate holds it back
        if call.n_more:
            call.n_more -= 1
            call.workers.start_soon(self._worker, call)
        with self._stop.waiting():
            await self._sleep(seconds)

    def _check_running(self) -> None:
        self._stop.check()
        if self._tasks is None:
            raise RuntimeError("enter the engine first: async with Engine(...) as engine")
