"""Many questions to providers: cache, single flight, retry, limiter, provider.

A request holds its slot until its answer is committed to the cache, so a kill costs at most the
requests in flight. A failure of one request is a value (`Failure`); an error that stops the run
(wrong key, spent quota, a bug) is raised from every call that waits.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio
from anyio import lowlevel
from anyio.abc import TaskGroup

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache
from claimscore.config import FailureLimit, LLMConfig
from claimscore.errors import RejectedError, StoppedEarly, TransientError
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.endpoints import Attempts, Dispatcher, OnEvent, ignore_event
from claimscore.pipeline.llm.providers.base import Collecting, Provider, extra_params
from claimscore.pipeline.llm.question import (
    Answer,
    Invalid,
    Parse,
    Question,
    take_stored,
    validate,
)
from claimscore.pipeline.llm.single_flight import GroupCommit, SingleFlight
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import GRACE_S, Halted, Stop
from claimscore.types import Completion, Failure, Message, Request

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.asyncio import AsyncRetrying

T = TypeVar("T")

#: Questions whose stored answers are taken before other tasks get a turn.
_BULK = 500

#: Workers of a call that may wait before a retry, for each that can send.
_WAITING_A_SLOT = 3


class Engine:
    """Asks providers, keeps every answer. Enter it (`async with`) before asking.

    `tasks` has the providers of tasks that do not ask `provider`. `llm` says what holds for them,
    and for each task (`LLMConfig.of`). All of them have one budget, one cache and one stop.
    Providers and cache are the caller's to close.
    """

    def __init__(
        self,
        provider: Provider,
        cache: Cache,
        *,
        llm: LLMConfig | None = None,
        tasks: Mapping[str, Provider] = MappingProxyType({}),
        retry_failed: bool = False,
        spending: Budget | None = None,
        on_event: OnEvent = ignore_event,
    ) -> None:
        self.provider = provider
        self._task_providers = tasks
        self._cache = cache
        llm = llm or LLMConfig()
        self._max_samples = llm.max_samples
        self._retry_failed = retry_failed
        self._failure_limit = llm.failure_limit() or FailureLimit()
        self._spending = spending or Budget()
        self._stop = Stop()
        self._stats = EngineStats()
        self._single_flight = SingleFlight(cache, self._stop)
        self._commits = GroupCommit(cache, self._spending.ledger.flush)
        self._dispatchers: dict[int, Dispatcher] = {}
        for task, asked in (*tasks.items(), ("", provider)):
            if id(asked) not in self._dispatchers:
                self._dispatchers[id(asked)] = Dispatcher(
                    asked,
                    llm.of(task),
                    spending=self._spending,
                    stop=self._stop,
                    stats=self._stats,
                    on_event=on_event,
                )
        self.max_concurrency = sum(one.max_concurrency for one in self._dispatchers.values())
        #: The questions of every call that no worker has begun.
        self._unbegun: dict[object, Sized] = {}
        self._ran_short: anyio.Event | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Engine:
        self._tasks = await anyio.create_task_group().__aenter__()
        for provider in self._collecting():
            provider.start(self._tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._tasks is not None
        self._stop.halt(StoppedEarly("the engine is closed"), GRACE_S)
        await self._tasks.__aexit__(None, None, None)

    def provider_for(self, task: str) -> Provider:
        """The provider that a task asks."""
        return self._task_providers.get(task, self.provider)

    @property
    def providers(self) -> list[Provider]:
        """All that are asked, once each."""
        return [dispatcher.provider for dispatcher in self._dispatchers.values()]

    def _collecting(self) -> list[Collecting]:
        return [provider for provider in self.providers if isinstance(provider, Collecting)]

    def request(self, messages: Sequence[Message], **settings: Any) -> Request:
        """A request to this engine's provider; `settings` are other fields of `Request`."""
        provider = self.provider
        settings["extra"] = extra_params(provider, settings.get("extra", {}))
        asked = {"model": provider.model, "messages": tuple(messages), **settings}
        return Request(provider.family, provider.namespace, **asked)

    async def answer_all(
        self,
        requests: Sequence[Request],
        parse: Parse[T],
        *,
        step: int = 1,
        max_tokens_limit: int | None = None,
        counted: bool = True,
        provider: Provider | None = None,
        of: str = "",
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
        way. The others count for the step of a chain that the requests are `of`.

        Of requests with the same `shared` the first is answered before the others are sent: a
        server that keeps the beginnings of prompts reads and bills it once. Requests that wait so
        hold up no others.

        They are sent to `provider`, one of those that the engine was made with; the first of them
        where it is None.
        """
        self._stop.check()
        if self._tasks is None:
            raise RuntimeError("enter the engine first: async with Engine(...) as engine")
        keys = list(map(request_key, requests))
        positions = dict(zip(keys, range(len(keys)), strict=True))

        def question(key: str) -> Question[T]:
            return Question(requests[positions[key]], key, step, max_tokens_limit)

        dispatcher = self._dispatchers[id(provider or self.provider)]
        call = _Call(self, dispatcher, list(positions), question, parse, counted, of)
        outcomes = await call.run()
        if n_equal := len(keys) - len(outcomes):
            n_failed = [isinstance(outcomes[key], Failure) for key in keys].count(True)
            n_failed -= [isinstance(outcome, Failure) for outcome in outcomes.values()].count(True)
            self._stats.hits += n_equal - n_failed
        return [outcomes[key] for key in keys]

    async def runs_short(self) -> None:
        """Wait until fewer questions are left to be begun than requests may be in flight, so that
        more would be of use. At once where nothing is asked, or the engine was stopped."""
        while not self._is_short():
            self._ran_short = self._ran_short or anyio.Event()
            await self._ran_short.wait()

    def _is_short(self) -> bool:
        return sum(map(len, self._unbegun.values())) < self.max_concurrency

    def _tell_if_short(self) -> None:
        if self._ran_short is not None and self._is_short():
            self._ran_short.set()
            self._ran_short = None

    def stop(self, reason: StoppedEarly | None = None) -> None:
        """Send nothing more. Requests in flight finish and are kept; calls raise the reason."""
        why = str(reason or "interrupted")
        jobs = "; ".join(filter(None, (provider.under_way()[0] for provider in self._collecting())))
        if jobs:
            why += f"; {jobs}; run the same command to collect the answers"
        self._stop.halt(StoppedEarly(why))

    @property
    def stats(self) -> EngineStats:
        """The numbers of this moment; the same object every time."""
        providers = [one.endpoints for one in self._dispatchers.values()]
        servers = [[endpoint.stats() for endpoint in endpoints] for endpoints in providers]
        self._stats.see(servers, self._spending.ledger.now)
        return self._stats


@dataclasses.dataclass(eq=False)
class _Call(Generic[T]):
    """One call of `Engine.answer_all`: stored answers first, then workers for what is missing.

    There are as many workers as slots. One that waits before a retry holds no slot, so another
    worker takes its place; many may wait where refusals come with a second to wait. Questions
    whose prompts begin alike come after the first of them.
    """

    engine: Engine
    dispatcher: Dispatcher
    keys: Sequence[str]
    question: Callable[[str], Question[T]]
    parse: Parse[T]
    counted: bool
    of: str
    n_more: int = 0
    n_workers: int = 0
    given_up: anyio.Event = dataclasses.field(default_factory=anyio.Event)
    left: deque[Question[T]] = dataclasses.field(default_factory=deque)
    followers: dict[str, list[Question[T]]] = dataclasses.field(default_factory=dict)
    tasks: TaskGroup = dataclasses.field(init=False)

    async def run(self) -> dict[str, Answer[T] | Failure]:
        """The outcome of every key; raise the error that stopped the engine, if one did."""
        unbegun = self.engine._unbegun
        unbegun[self] = self.keys
        try:
            outcomes, missing = await self._take_stored()
            unbegun[self] = self.left
            if missing:
                await self._ask(list(missing.values()))
        finally:
            del unbegun[self]
            self.engine._tell_if_short()
        for key, question in missing.items():
            outcomes[key] = cast("Answer[T] | Failure", question.outcome)
        return outcomes

    async def _take_stored(self) -> tuple[dict[str, Answer[T] | Failure], dict[str, Question[T]]]:
        """Stored answers, in bulk, and the questions that must be asked."""
        outcomes: dict[str, Answer[T] | Failure] = {}
        missing: dict[str, Question[T]] = {}
        for start in range(0, len(self.keys), _BULK):
            block = {key: self.question(key) for key in self.keys[start : start + _BULK]}
            take_stored(self.engine._cache.get_many, list(block.values()), self.parse)
            for key, question in block.items():
                if question.outcome is None:
                    missing[key] = question
                else:
                    outcomes[key] = question.outcome
            await lowlevel.checkpoint()
        self.engine._stats.hits += len(outcomes)
        self.engine._stats.done_of[self.of] += len(outcomes)
        return outcomes, missing

    async def _ask(self, questions: Sequence[Question[T]]) -> None:
        """Let workers ask all questions, in all slots."""
        engine, most = self.engine, self.dispatcher.max_concurrency
        self.n_more = min(max(0, len(questions) - most), _WAITING_A_SLOT * most)
        first = [question for question in questions if not self._follows(question)]
        done = anyio.Event()

        async def work() -> None:
            with engine._stop.call(grace=not self.dispatcher.collects):
                async with anyio.create_task_group() as self.tasks:
                    self._hand_out(first)
            done.set()

        assert engine._tasks is not None, "entered"
        engine._tasks.start_soon(work)  # not the caller's tasks: what is in flight outlives it
        try:
            await done.wait()
        except BaseException:
            self.given_up.set()
            self.left.clear()
            self.followers.clear()
            raise
        if not all(isinstance(question.outcome, Answer) for question in questions):
            engine._stop.check()

    def _follows(self, question: Question[T]) -> bool:
        """Whether it waits for another that begins alike; else others will wait for it."""
        shared = question.request.shared
        if not shared or self.dispatcher.collects:  # there all would wait for a whole batch job
            return False
        is_later = shared in self.followers
        self.followers.setdefault(shared, []).extend([question] if is_later else [])
        return is_later

    def _hand_out(self, questions: Sequence[Question[T]]) -> None:
        """Put questions before those that are left, and let so many workers more take them."""
        self.left.extendleft(reversed(questions))
        for _ in range(min(len(questions), self.dispatcher.max_concurrency - self.n_workers)):
            self._start_worker()

    def _start_worker(self) -> None:
        self.n_workers += 1
        self.tasks.start_soon(self._work)

    async def _work(self) -> None:
        """Take question after question, until there are no more or the engine stops."""
        from claimscore.retry import POLICY

        policy = POLICY.copy(
            stop=lambda state: state.args[0].are_exhausted(),
            wait=lambda state: state.args[0].wait_s(state),
            before_sleep=self._back_off,
            sleep=_slept,
        )
        while self.left:
            question = self.left.popleft()  # without awaiting: no stream
            self.engine._tell_if_short()
            try:
                await self._answer(question, policy)
            except Halted:
                return
            except Exception as exc:
                self.engine._stop.halt(exc)  # `_ask` raises it
                return
            self._hand_out(self.followers.pop(question.request.shared, []))
        self.n_workers -= 1

    async def _answer(self, question: Question[T], policy: AsyncRetrying) -> None:
        """Go through the samples of a question until it has an outcome."""
        engine, flights = self.engine, self.engine._single_flight
        while question.outcome is None:
            other = flights.under_way.get(question.key)
            if other is not None:
                question.outcome = await flights.follow(other)  # None: look again
                continue
            with flights.lead(question.key, locks=not self.dispatcher.collects) as flight:
                if flight.stored is not None:
                    used = question.use_stored(flight.stored, self.parse)
                    engine._stats.hits += used
                elif flight.is_elsewhere:
                    pass
                elif not question.may_ask(engine._max_samples, retry_failed=engine._retry_failed):
                    question.outcome = question.failure
                else:
                    question.outcome = outcome = await self._buy(question, policy)
                    flight.failure = outcome if isinstance(outcome, Failure) else None
            if flight.is_elsewhere:
                await flights.wait_for_other_process()
        outcome = question.outcome
        if self.counted or isinstance(outcome, Answer):
            engine._stats.done_of[self.of] += 1
        if self.counted and isinstance(outcome, Failure):
            engine._stats.count_failure(outcome, engine._failure_limit, self.of)

    async def _buy(
        self, question: Question[T], policy: AsyncRetrying
    ) -> Answer[T] | Failure | None:
        """Buy an answer, into the cache. None where it is invalid: the question has moved on.

        Sends the request until it is answered, rejected, or has failed too often; a request
        that waits before it is sent again holds no slot.
        """
        key = question.key
        attempts = Attempts(self.dispatcher, question.request, key, self.given_up)
        bought: tuple[Completion, T | Invalid]
        try:
            bought = await policy(self.dispatcher.ask, attempts, self._validate_and_keep)
        except RejectedError as exc:
            return Failure(exc.kind, str(exc), attempts.sent, key)
        except TransientError as exc:
            return Failure("transient", str(exc), attempts.sent, key)
        completion, verdict = bought
        if not isinstance(verdict, Invalid):
            return Answer(key, completion, verdict, cached=False)
        self.engine._stats.rejected += 1
        question.go_on(verdict, is_new=True)
        return None

    async def _validate_and_keep(
        self, key: str, completion: Completion
    ) -> tuple[Completion, T | Invalid]:
        """Judge a new answer and return once it is in the cache, valid or not."""
        keep = self.engine._commits.keep
        try:
            verdict = validate(completion, self.parse)
        except Exception:  # a bug in `parse`; the answer is paid for all the same
            await keep(key, completion)
            raise
        await keep(key, completion)
        return completion, verdict

    async def _back_off(self, state: RetryCallState) -> None:
        """Wait before a retry, while another worker takes this one's place.

        A wait that a server asked for ends with `OutageError` where that is over first.
        """
        engine, dispatcher, attempts = self.engine, self.dispatcher, state.args[0]
        seconds = state.upcoming_sleep
        if not seconds:
            return
        attempts.avoid.clear()
        if dispatcher.is_down:
            return  # the circuit breaker holds it back
        if self.n_more:
            self.n_more -= 1
            self._start_worker()
        with engine._stop.waiting():
            is_asked_for = attempts.error.retry_after_s
            while is_asked_for and seconds > (most_s := dispatcher.check_patience()):
                await anyio.sleep(most_s)
                seconds -= most_s
            await anyio.sleep(seconds)


async def _slept(_: float) -> None:
    """For tenacity: `_back_off` has waited."""
