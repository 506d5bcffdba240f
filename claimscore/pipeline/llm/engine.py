"""Many questions to one provider: cache, single flight, retry, limiter, provider.

A request holds its slot until its answer is committed to the cache, so a kill costs at most the
requests in flight. A failure of one request is a value (`Failure`); an error that stops the run
(wrong key, spent quota, a bug) is raised from every call that waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio
from anyio import lowlevel
from anyio.abc import TaskGroup

from claimscore.cache.base import Cache
from claimscore.cache.entry import Entry
from claimscore.cache.key import request_keys
from claimscore.config import FailureLimit
from claimscore.errors import AskAgain, RejectedError, StoppedEarly, TransientError
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.endpoints import Attempts, Bounds, Dispatcher, OnEvent, ignore_event
from claimscore.pipeline.llm.providers.base import (
    Collecting,
    Provider,
    extra_params,
)
from claimscore.pipeline.llm.question import Answer, Invalid, Parse, Question, validate
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.pipeline.llm.single_flight import GroupCommit, SingleFlight
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import GRACE_S, Closed, Halted, Stop
from claimscore.types import Completion, Failure, Message, OutputSchema, Request

if TYPE_CHECKING:
    from claimscore.retry import Sleep

T = TypeVar("T")

#: Questions whose stored answers are taken before other tasks get a turn.
_BULK = 500

#: Workers of a call that may wait before a retry, for each that can send.
_WAITING_A_SLOT = 3


class Engine:
    """Asks providers, keeps every answer. Enter it (`async with`) before asking.

    `tasks` has the providers of tasks that do not ask `provider`, and `task_bounds` what holds for
    them in place of the numbers that are given for `provider`. All of them have one budget, one
    cache and one stop. Providers and cache are the caller's to close.
    """

    def __init__(
        self,
        provider: Provider,
        cache: Cache,
        *,
        tasks: Mapping[str, Provider] = MappingProxyType({}),
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int = 64,
        max_attempts: int = 8,
        task_bounds: Mapping[str, Bounds] = MappingProxyType({}),
        max_samples: int = 3,
        timeout_s: float | None = 120.0,
        max_outage_s: float = 3600.0,
        failure_limit: FailureLimit | None = None,
        retry_failed: bool = False,
        limiter: Callable[..., RateLimiter] = RateLimiter,
        spending: Budget | None = None,
        on_event: OnEvent | None = None,
        stop: Stop | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self.provider = provider
        self.stats = EngineStats()
        self._spending = spending or Budget()
        self._max_outage_s = max_outage_s
        self._stop = stop or Stop()
        self._tasks_providers = dict(tasks)
        bounds = Bounds(rpm, tpm, max_concurrency, timeout_s, max_attempts)
        self._dispatchers: dict[int, Dispatcher] = {}
        for task, asked in (("", provider), *tasks.items()):
            if id(asked) not in self._dispatchers:
                self._dispatchers[id(asked)] = Dispatcher(
                    asked,
                    task_bounds.get(task, bounds),
                    limiter=limiter,
                    spending=self._spending,
                    max_outage_s=max_outage_s,
                    stop=self._stop,
                    stats=self.stats,
                    on_event=on_event or ignore_event,
                )
        self._dispatcher = self._dispatchers[id(provider)]
        self.max_concurrency = sum(one.max_concurrency for one in self._dispatchers.values())
        self._cache = cache
        self._single_flight = SingleFlight(cache, self._stop, sleep)
        self._commits = GroupCommit(cache, self._spending.flush)
        self._backlog = _Backlog(few=self.max_concurrency)
        self._failure_limit = failure_limit or FailureLimit()
        self._sleep = sleep
        self._max_samples = max_samples
        self._retry_failed = retry_failed
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Engine:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._commits.run)
        for provider in self._collecting():
            provider.start(self._tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._tasks is not None
        self._stop.halt(Closed("the engine is closed"), GRACE_S)
        self._commits.close()
        await self._tasks.__aexit__(None, None, None)

    def provider_for(self, task: str) -> Provider:
        """The provider that a task asks."""
        return self._tasks_providers.get(task, self.provider)

    @property
    def providers(self) -> list[Provider]:
        """All that are asked, once each."""
        return [dispatcher.provider for dispatcher in self._dispatchers.values()]

    def _collecting(self) -> list[Collecting]:
        return [provider for provider in self.providers if isinstance(provider, Collecting)]

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
        extra: Mapping[str, Any] = MappingProxyType({}),
    ) -> Request:
        """A request to this engine's provider; `model` names another one of that server, and
        `extra` are parameters that it gets as they stand."""
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
            extra=extra_params(self.provider, extra),
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
        max_tokens_limit: int | None = None,
        counted: bool = True,
        provider: Provider | None = None,
    ) -> list[Answer[T] | Failure]:
        """An answer or a failure for every request, in their order.

        A call that is cancelled sends nothing more; what it has sent is answered into the cache.

        `parse` judges an answer: its return value is the answer's, and `ParseError` refuses it.
        Then the next sample is asked for, `step` further on: a caller that wants several samples
        of a question, from the first `step` on, never gets one of them twice. An answer that was
        cut off is asked for again with twice as many `max_tokens`, and twice again, up to
        `max_tokens_limit` (four times the request's, unless it is given).

        Stored answers are judged again, so a changed `parse` needs no request. Equal requests are
        asked once. A failure that is not `counted` is no failed row: the caller asks in another
        way.

        Of requests with the same `shared` the first is answered before the others are sent: a
        server that keeps the beginnings of prompts reads and bills it once. Requests that wait so
        hold up no others.

        They are sent to `provider`, one of those that the engine was made with; the first of them
        where it is None.
        """
        self._stop.check()
        if self._tasks is None:
            raise RuntimeError("enter the engine first: async with Engine(...) as engine")
        keys = request_keys(requests)
        positions = dict(zip(keys, range(len(keys)), strict=True))

        def question(key: str) -> Question[T]:
            return Question(requests[positions[key]], key, step, max_tokens_limit)

        dispatcher = self._dispatchers[id(provider or self.provider)]
        call = _Call(self, dispatcher, list(positions), question, parse, counted=counted)
        outcomes = await call.run()
        return [outcomes[key] for key in keys]

    async def landed(self) -> None:
        """Wait until nothing is in flight."""
        for dispatcher in self._dispatchers.values():
            await dispatcher.all_landed()

    async def runs_short(self) -> None:
        """Wait until fewer questions are left to be begun than requests may be in flight, so that
        more would be of use. At once where nothing is asked, or the engine was stopped."""
        await self._backlog.runs_short()

    def stop(self, reason: StoppedEarly | None = None) -> None:
        """Send nothing more. Requests in flight finish and are kept; calls raise the reason."""
        notices = [provider.notice() for provider in self._collecting()]
        said = str(reason or "interrupted")
        self._stop.halt(StoppedEarly("; ".join(filter(None, [said, *notices]))))

    def observe(self) -> EngineStats:
        """The numbers of this moment: `stats` with those of limiter, budget and servers."""
        stats, dispatcher = self.stats, self._dispatcher
        limits, totals = dispatcher.limits(), self._spending.totals
        stats.rpm, stats.tpm, stats.limits_from = limits.rpm, limits.tpm, limits.source
        stats.prompt_tokens = totals.prompt_tokens
        stats.completion_tokens = totals.completion_tokens
        stats.cached_prompt_tokens = totals.cached_prompt_tokens
        stats.usd, stats.possibly_billed_usd = totals.usd, totals.possibly_billed_usd
        stats.answers_at_most = totals.answers_at_most
        stats.waiting_s = max(0.0, limits.paused_until - anyio.current_time())
        stats.why = limits.why if stats.waiting_s else ""
        for provider in self._collecting():
            stats.why, stats.waiting_s = provider.under_way()
        stats.is_down, stats.servers = dispatcher.is_down, dispatcher.servers()
        if stats.is_down:
            stats.waiting_s, stats.why = dispatcher.down_s, f"no answers: {dispatcher.why_down}"
            if dispatcher.times_out:
                stats.why = f"{dispatcher.why_down}; asking one at a time: {self._patience()}"
            elif not stats.answered:
                stats.why = (
                    "nothing has answered yet; is --base-url right? "
                    f"(until --max-outage-s {self._max_outage_s:g}): {dispatcher.why_down}"
                )
        elif limits.window is not None and not stats.why:
            many = "one request" if limits.window == 1 else f"{limits.window} requests"
            stats.why = f"answers time out, so {many} at a time: {self._patience()}"
        return stats

    def _patience(self) -> str:
        return "a lower --max-concurrency or a longer --timeout-s may help"


class _Backlog:
    """Counts the questions of all calls that no worker has begun; fewer than `few` are few."""

    def __init__(self, few: int) -> None:
        self._few = few
        self._n = 0
        self._became_few = anyio.Event()

    def add(self, n: int) -> None:
        """So many more; with a negative number fewer."""
        self._n += n
        if self._n < self._few:
            self._became_few.set()

    async def runs_short(self) -> None:
        """Wait until they are few; at once where they are."""
        while self._n >= self._few:
            if self._became_few.is_set():
                self._became_few = anyio.Event()
            await self._became_few.wait()


class _Call(Generic[T]):
    """One call of `Engine.answer_all`: stored answers first, then workers for what is missing.

    There are as many workers as slots. One that waits before a retry holds no slot, so another
    worker takes its place; many may wait where refusals come with a second to wait. Questions
    whose prompts begin alike come after the first of them.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher,
        keys: Sequence[str],
        question: Callable[[str], Question[T]],
        parse: Parse[T],
        *,
        counted: bool,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._keys = keys
        self._question = question
        self._parse = parse
        self._counted = counted
        self._n_unbegun = 0
        self._n_more = 0
        self._n_workers = 0
        self._is_cancelled = False
        self._missing: deque[Question[T]] = deque()
        self._followers: dict[str, list[Question[T]]] = {}
        self._tasks: TaskGroup

    async def run(self) -> dict[str, Answer[T] | Failure]:
        """The outcome of every key; raise the error that stopped the engine, if one did."""
        self._begin(-len(self._keys))
        try:
            outcomes, missing = await self._take_stored()
            self._begin(len(self._keys) - len(missing))
            if missing:
                await self._ask(list(missing.values()))
        finally:
            self._begin(self._n_unbegun)
        for key, question in missing.items():
            outcomes[key] = cast("Answer[T] | Failure", question.outcome)
        return outcomes

    def _begin(self, n: int = 1) -> None:
        self._n_unbegun -= n
        self._engine._backlog.add(-n)

    async def _take_stored(
        self,
    ) -> tuple[dict[str, Answer[T] | Failure], dict[str, Question[T]]]:
        """Stored answers, in bulk, and the questions that must be asked.

        A question is made only where the first stored answer is not one that can be used.
        """
        found: dict[str, Answer[T] | Failure] = {}
        missing: dict[str, Question[T]] = {}
        cache, stats, parse = self._engine._cache, self._engine.stats, self._parse
        for start in range(0, len(self._keys), _BULK):
            keys = self._keys[start : start + _BULK]
            stored, n_before = cache.get_many(keys), len(found)
            left: dict[str, Question[T]] = {}
            for key in keys:
                entry = stored.get(key)
                if entry is None:
                    missing[key] = self._question(key)
                    continue
                verdict = validate(entry.completion, parse)
                if isinstance(verdict, Invalid):
                    left[key] = self._question(key)
                    left[key].go_on(verdict, is_new=False)
                else:
                    found[key] = Answer(key, entry.completion, verdict, cached=True)
            while left:
                stored, invalid = cache.get_many([each.key for each in left.values()]), {}
                for key, question in left.items():
                    entry = stored.get(question.key)
                    if entry is None:
                        missing[key] = question
                    elif question.use_stored(entry.completion, parse):
                        found[key] = cast("Answer[T]", question.outcome)
                    else:
                        invalid[key] = question
                left = invalid
            stats.hits += len(found) - n_before
            await lowlevel.checkpoint()
        return found, missing

    async def _ask(self, questions: Sequence[Question[T]]) -> None:
        """Let workers ask all questions, in all slots."""
        engine, most = self._engine, self._dispatcher.max_concurrency
        self._n_more = min(max(0, len(questions) - most), _WAITING_A_SLOT * most)
        first = [question for question in questions if not self._follows(question)]
        self._begin(len(questions) - len(first))  # others may be asked while these wait
        done = anyio.Event()

        async def work() -> None:
            with engine._stop.call(grace=not self._dispatcher.collects):
                async with anyio.create_task_group() as self._tasks:
                    self._hand_out(first)
            done.set()

        assert engine._tasks is not None, "entered"
        engine._tasks.start_soon(work)  # not the caller's tasks: what is in flight outlives it
        try:
            await done.wait()
        except BaseException:
            self._is_cancelled = True
            self._missing.clear()
            self._followers.clear()
            raise
        unanswered = any(question.outcome is None for question in questions)
        if unanswered or self._dispatcher.first_answers.are_refused:
            engine._stop.check()

    def _follows(self, question: Question[T]) -> bool:
        """Whether it waits for another that begins alike; else others will wait for it."""
        shared = question.request.shared
        if not shared or self._dispatcher.collects:  # there all would wait for a whole batch job
            return False
        is_later = shared in self._followers
        self._followers.setdefault(shared, []).extend([question] if is_later else [])
        return is_later

    def _hand_out(self, questions: Sequence[Question[T]]) -> None:
        """Put questions before those that are left, and let so many workers more take them."""
        self._missing.extendleft(reversed(questions))
        n_new = min(len(questions), self._dispatcher.max_concurrency - self._n_workers)
        for _ in range(n_new):
            self._n_workers += 1
            self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        """Take question after question, until there are no more or the engine stops."""
        while self._missing:
            question = self._missing.popleft()  # without awaiting: no stream
            self._begin()
            try:
                await self._answer(question)
            except Halted:
                return
            except Exception as exc:
                self._engine._stop.halt(exc)  # `_ask` raises it
                return
            following = self._followers.pop(question.request.shared, [])
            self._begin(-len(following))
            self._hand_out(following)
        self._n_workers -= 1

    async def _answer(self, question: Question[T]) -> None:
        """Go through the samples of a question until it has an outcome."""
        engine, flights = self._engine, self._engine._single_flight
        while question.outcome is None:
            other = flights.under_way(question.key)
            if other is not None:
                question.outcome = await flights.landed(other)  # None: look again
                continue
            with flights.lead(question.key, locks=not self._dispatcher.collects) as flight:
                if flight.stored is not None:
                    used = question.use_stored(flight.stored.completion, self._parse)
                    engine.stats.hits += used
                elif flight.is_elsewhere:
                    pass
                elif not question.may_ask(engine._max_samples, retry_failed=engine._retry_failed):
                    question.outcome = question.failure
                else:
                    question.outcome = outcome = await self._buy(question)
                    flight.failure = outcome if isinstance(outcome, Failure) else None
            if flight.is_elsewhere:
                await flights.wait_for_other_process()
        if self._counted and isinstance(question.outcome, Failure):
            engine.stats.count_failure(question.outcome, engine._failure_limit)

    async def _buy(self, question: Question[T]) -> Answer[T] | Failure | None:
        """Buy an answer, into the cache. None where it is invalid: the question has moved on.

        Sends the request until it is answered, rejected, or has failed too often; a request
        that waits before it is sent again holds no slot.
        """
        from claimscore.retry import Backoff

        engine, request, key = self._engine, question.request, question.key
        attempts, backoff = Attempts(self._dispatcher.max_attempts), Backoff()
        while True:
            with await self._dispatcher.slot(request, attempts) as slot:
                if self._is_cancelled:
                    raise Halted
                try:
                    completion = await slot.send(request, key, attempts)
                except RejectedError as exc:
                    return question.rejected(exc.kind, str(exc), attempts.sent)
                except TransientError as exc:
                    error = exc
                else:
                    with anyio.CancelScope(shield=True):
                        verdict = await self._validate_and_keep(completion, key)
                    break
            if attempts.exhausted:
                return Failure("transient", str(error), attempts.sent, key)
            if isinstance(error, AskAgain):
                continue
            if not self._dispatcher.another_may_answer(attempts):
                await self._back_off(backoff.next_wait_s(error), error)
                attempts.avoid.clear()
        if not isinstance(verdict, Invalid):
            return Answer(key, completion, verdict, cached=False)
        engine.stats.rejected += 1
        question.go_on(verdict, is_new=True)
        return None

    async def _validate_and_keep(self, completion: Completion, key: str) -> T | Invalid:
        """Judge a new answer and return once it is in the cache, valid or not."""
        keep = self._engine._commits.keep
        try:
            verdict = validate(completion, self._parse)
        except Exception:  # a bug in `parse`; the answer is paid for all the same
            await keep(key, Entry(completion))
            raise
        why = verdict.message if isinstance(verdict, Invalid) else None
        await keep(key, Entry(completion, why))
        return verdict

    async def _back_off(self, seconds: float, error: TransientError) -> None:
        """Wait before a retry, while another worker takes this one's place.

        A wait that a server asked for ends with `OutageError` where that is over first.
        """
        engine = self._engine
        if self._dispatcher.is_down:
            return  # the circuit breaker holds it back
        if self._n_more:
            self._n_more -= 1
            self._n_workers += 1
            self._tasks.start_soon(self._work)
        with engine._stop.waiting():
            while error.retry_after_s and seconds > (most_s := self._dispatcher.patience_s()):
                await engine._sleep(most_s)
                seconds -= most_s
            await engine._sleep(seconds)
