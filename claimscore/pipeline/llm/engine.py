"""Many questions to one provider: cache, single flight, retry, limiter, provider.

A request holds its slot until its answer is committed to the cache, so a kill costs at
most the requests in flight. Failures of one request are values (`Failure`); what stops a
run (wrong key, spent quota, a bug) is raised from every call that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from claimscore.cache.base import Cache
from claimscore.cache.key import request_key
from claimscore.config import FailureLimit
from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.answers import StoredAnswers
from claimscore.pipeline.llm.backlog import Backlog
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.call import Asked, Common, answer_rows
from claimscore.pipeline.llm.endpoints import Dispatcher, OnEvent, ignore_event
from claimscore.pipeline.llm.limits import Limiter
from claimscore.pipeline.llm.providers.base import Collecting, Provider, servers_of
from claimscore.pipeline.llm.question import Answer, Question
from claimscore.pipeline.llm.single_flight import SingleFlight
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import Closed, Stop
from claimscore.pipeline.llm.validation import Parse
from claimscore.retry import Sleep
from claimscore.types import Failure, Message, OutputSchema, Request

T = TypeVar("T")


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
        timeout_s: float | None = 120.0,
        max_outage_s: float = 3600.0,
        failure_limit: FailureLimit | None = None,
        retry_failed: bool = False,
        limiter: Limiter | Sequence[Limiter] | None = None,
        spending: Budget | None = None,
        on_event: OnEvent | None = None,
        stop: Stop | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self.provider = provider
        self.max_concurrency = max_concurrency * len(servers_of(provider))
        self.stats = EngineStats()
        self._spending = spending or Budget(price=None)
        self._max_outage_s = max_outage_s
        self._stop = stop or Stop()
        if limiter is None:
            limiter = [
                Limiter(rpm=rpm, tpm=tpm, max_concurrency=max_concurrency)
                for _ in servers_of(provider)
            ]
        self._dispatcher = Dispatcher(
            provider,
            [limiter] if isinstance(limiter, Limiter) else limiter,
            spending=self._spending,
            max_outage_s=max_outage_s,
            stop=self._stop,
            stats=self.stats,
            max_concurrency=max_concurrency,
            timeout_s=timeout_s,
            on_event=on_event or ignore_event,
        )
        # Thousands of locks, for hours: batches have their journal.
        claims = not isinstance(provider, Collecting)
        answers = StoredAnswers(cache, self._spending.flush, claims=claims)
        self._common = Common(
            answers=answers,
            single_flight=SingleFlight(answers, self._stop, sleep),
            dispatcher=self._dispatcher,
            stop=self._stop,
            stats=self.stats,
            backlog=Backlog(few=self.max_concurrency),
            failure_limit=failure_limit or FailureLimit(),
            sleep=sleep,
            max_concurrency=self.max_concurrency,
            max_attempts=max_attempts,
            max_samples=max_samples,
            retry_failed=retry_failed,
        )
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Engine:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._dispatcher.start(self._tasks)
        self._tasks.start_soon(self._common.answers.run)
        if isinstance(self.provider, Collecting):
            self.provider.start(self._tasks)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._stop.halt(Closed("the engine is closed"))
        self._common.answers.close()
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
        max_tokens_limit: int | None = None,
        counted: bool = True,
        known: Mapping[str, Failure] = MappingProxyType({}),
    ) -> list[Answer[T] | Failure]:
        """An answer or a failure for every request, in their order.

        `parse` judges an answer: its return value is the answer's, and `ParseError` refuses it.
        Then the next sample is asked for, `step` further on: a caller that wants several samples
        of a question, from the first `step` on, never gets one of them twice. An answer that was
        cut off is asked for again with twice as many `max_tokens`, and twice again, up to
        `max_tokens_limit` (four times the request's, unless it is given).

        Stored answers are judged again, so a changed `parse` needs no request. Equal requests are
        asked once. A failure that is not `counted` is no failed row: the caller asks in another
        way. `known` are failures of earlier calls by key, which are not asked again.
        """
        self._check_running()
        rows: dict[str, Question[T]] = {}
        keys = [request_key(request) for request in requests]
        for key, request in zip(keys, requests, strict=True):
            rows.setdefault(key, Question(request, key, step, max_tokens_limit))
        await answer_rows(self._common, list(rows.values()), Asked(parse, counted, known))
        return [cast("Answer[T] | Failure", rows[key].outcome) for key in keys]

    async def runs_short(self) -> None:
        """Wait until fewer rows are left to be begun than requests may be in flight, so that those
        of another call would be of use. At once where nothing is asked or it was stopped."""
        await self._common.backlog.runs_short()

    def stop(self) -> None:
        """Send nothing more. Requests in flight finish and are kept; waiting calls then
        raise `StoppedEarly`."""
        provider = self.provider
        notice = provider.notice() if isinstance(provider, Collecting) else None
        self._stop.halt(StoppedEarly("; ".join(filter(None, ["interrupted", notice]))))

    def observe(self) -> EngineStats:
        """The numbers of this moment: `stats` with what the limiter and the budget say."""
        stats, limits, totals = self.stats, self._dispatcher.limits(), self._spending.totals
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
        stats.is_down, stats.servers = self._dispatcher.is_down, self._dispatcher.servers()
        if stats.is_down:
            stats.waiting_s, stats.why = self._dispatcher.down_s, self._why_down()
        return stats

    def _why_down(self) -> str:
        """What the outage is, and where nothing was ever answered, what may be wrong."""
        why = f"no answers: {self._dispatcher.why_down}"
        if self.stats.answered:
            return why
        until = f"--max-outage-s {self._max_outage_s:g}"
        return (
            f"nothing has answered yet; is --base-url right? ({until}): {self._dispatcher.why_down}"
        )

    def waiting_for(self) -> str:
        """What the engine waits for, in words; empty where for nothing."""
        stats = self.observe()
        oldest = self._dispatcher.oldest_in_flight()
        parts = [f"{stats.why} ({stats.waiting_s:,.0f} s)"] if stats.why else []
        if n_elsewhere := self._common.single_flight.n_elsewhere:
            parts.append(f"{n_elsewhere:,} requests that another process is asking")
        if oldest is not None:
            key, age_s = oldest
            parts.append(
                f"{self._dispatcher.n_in_flight:,} requests in flight, the oldest ({key[:12]}) "
                f"for {age_s:,.0f} s"
            )
        return "; ".join(parts)

    def _check_running(self) -> None:
        self._stop.check()
        if self._tasks is None:
            raise RuntimeError("enter the engine first: async with Engine(...) as engine")
