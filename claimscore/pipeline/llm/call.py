"""One call of an engine: its rows through stored answers, single flight, samples and retries."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import anyio
from anyio import lowlevel
from anyio.abc import TaskGroup

from claimscore.cache.entry import Entry
from claimscore.config import FailureLimit
from claimscore.errors import ConfigError, RejectedError, TransientError
from claimscore.pipeline.llm.answers import StoredAnswers
from claimscore.pipeline.llm.backlog import Backlog, Unbegun
from claimscore.pipeline.llm.endpoints import Attempts, Dispatcher
from claimscore.pipeline.llm.failing import why_stop
from claimscore.pipeline.llm.question import Answer, Question
from claimscore.pipeline.llm.single_flight import Begun, SingleFlight
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import Halted, Stop
from claimscore.pipeline.llm.validation import Invalid, Parse, Valid, validate
from claimscore.retry import Backoff, Sleep
from claimscore.types import Completion, Failure

T = TypeVar("T")

#: Rows whose stored answers are taken before other tasks get a turn.
_BULK = 500

#: Workers of a call that may sleep before a retry, for each that can send.
_SLEEPERS_A_SLOT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Common:
    """What all calls of an engine have in common.

    The run stops where more rows fail than `failure_limit` allows.
    """

    answers: StoredAnswers
    single_flight: SingleFlight
    dispatcher: Dispatcher
    stop: Stop
    stats: EngineStats
    backlog: Backlog
    failure_limit: FailureLimit
    sleep: Sleep
    max_concurrency: int
    max_attempts: int
    max_samples: int
    retry_failed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What `Engine.answer_all` was told of all rows of a call.

    `known` has failures of earlier, by key: what came to nothing then is not asked again.
    """

    parse: Parse[T]
    counted: bool
    known: Mapping[str, Failure]


async def answer_rows(common: Common, rows: Sequence[Question[T]], asked: Asked[T]) -> None:
    """Give every row its outcome; raise what stopped the engine, if anything did."""
    with common.backlog.call(len(rows)) as unbegun:
        missing = await _take_stored(common, rows, asked.parse)
        common.backlog.begin(unbegun, len(rows) - len(missing))
        if missing:
            await _ask_for(common, missing, asked, unbegun)


async def _take_stored(
    common: Common, rows: Sequence[Question[T]], parse: Parse[T]
) -> list[Question[T]]:
    """Give rows their stored answers, in bulk; return those that must be asked."""
    missing: list[Question[T]] = []
    for start in range(0, len(rows), _BULK):
        open_rows = list(rows[start : start + _BULK])
        while open_rows:
            stored = common.answers.get_many([row.key for row in open_rows])
            refused = []
            for row in open_rows:
                if row.key not in stored:
                    missing.append(row)
                elif row.use_stored(stored[row.key].completion, parse):
                    common.stats.hits += 1
                else:
                    refused.append(row)
            open_rows = refused
        await lowlevel.checkpoint()
    return missing


async def _ask_for(
    common: Common, rows: list[Question[T]], asked: Asked[T], unbegun: Unbegun
) -> None:
    """Workers over all rows, for all slots."""
    n_workers = min(len(rows), common.max_concurrency)
    n_more = min(len(rows) - n_workers, _SLEEPERS_A_SLOT * common.max_concurrency)
    with common.stop.call():
        async with anyio.create_task_group() as tasks:
            workers = _Workers(common, rows, asked, unbegun, tasks, n_more)
            for _ in range(n_workers):
                tasks.start_soon(workers.work)
    if any(row.outcome is None for row in rows):
        # Whoever hears of the stop may end everything: first let what is in flight land,
        # also that of other calls.
        await common.dispatcher.all_landed()
        common.stop.check()


class _Workers(Generic[T]):
    """Those who go through the rows of a call that must be asked.

    A worker that sleeps before a retry holds no slot, so another one takes its place; many may
    sleep where refusals come with a second to wait. `n_more` is how many there may be besides.
    """

    def __init__(
        self,
        common: Common,
        rows: list[Question[T]],
        asked: Asked[T],
        unbegun: Unbegun,
        tasks: TaskGroup,
        n_more: int,
    ) -> None:
        self._common = common
        self._rows: Iterator[Question[T]] = iter(rows)  # one is taken without awaiting: no stream
        self._asked = asked
        self._unbegun = unbegun
        self._tasks = tasks
        self._n_more = n_more

    async def work(self) -> None:
        """Row after row, until there are no more or the engine stops."""
        for row in self._rows:
            self._common.backlog.begin(self._unbegun)
            try:
                await self._solve(row)
            except Halted:
                return
            except Exception as exc:
                self._common.stop.halt(exc)  # `_ask_for` raises it
                return

    async def _solve(self, row: Question[T]) -> None:
        """Go through the samples of a row until it has an outcome."""
        single_flight = self._common.single_flight
        while row.outcome is None:
            flight = single_flight.under_way(row.key)
            if flight is not None:
                row.outcome = await single_flight.landed(flight)  # None: look again
                continue
            async with single_flight.begin(row.key) as begun:
                await self._go_on(row, begun)
            if begun.found == "elsewhere":
                await single_flight.wait_for_other_process()
        if self._asked.counted and isinstance(row.outcome, Failure):
            self._count_failure(row.outcome)

    async def _go_on(self, row: Question[T], begun: Begun) -> None:
        """Use the stored answer, or ask where it is our turn and another sample is allowed."""
        common, found = self._common, begun.found
        if isinstance(found, Entry):
            if row.use_stored(found.completion, self._asked.parse):
                common.stats.hits += 1
        elif found == "elsewhere":
            return
        elif not row.may_ask(common.max_samples, retry_failed=common.retry_failed):
            row.outcome = row.failure
        elif row.key in self._asked.known:
            row.outcome = self._asked.known[row.key]
        elif common.answers.read_only:
            raise ConfigError(
                "an answer is missing, and the cache can only be read, so it could not be "
                "kept; make it writable for you, or name another folder with --cache-dir"
            )
        else:
            await self._ask(row)
            begun.flight.failure = row.outcome if isinstance(row.outcome, Failure) else None

    def _count_failure(self, failure: Failure) -> None:
        """Stop the run where that is one too many."""
        stats = self._common.stats
        stats.failed += 1
        stats.failures[failure.kind] += 1
        error = why_stop(stats, self._common.failure_limit, failure.message)
        if error is not None:
            raise error

    async def _ask(self, row: Question[T]) -> None:
        """Buy an answer: the row has an outcome, or has moved on to its next request.

        Sends the request until it is answered, rejected, or has failed too often; a request
        that waits before it is sent again holds no slot.
        """
        common, request, key = self._common, row.request, row.key
        attempts, backoff = Attempts(common.max_attempts), Backoff()
        while True:
            with await common.dispatcher.slot(request, attempts) as slot:
                try:
                    completion = await slot.send(request, key, attempts)
                except RejectedError as exc:
                    row.rejected(exc.kind, str(exc), attempts.sent)
                    return
                except TransientError as exc:
                    error = exc
                else:
                    with anyio.CancelScope(shield=True):
                        verdict = await self._validate_and_keep(completion, key)
                    break
            if attempts.exhausted:
                row.outcome = Failure("transient", str(error), attempts.sent, key)
                return
            if not common.dispatcher.another_may_answer(attempts):
                await self._back_off(backoff.next_wait_s(error))
                attempts.avoid.clear()
        if isinstance(verdict, Valid):
            row.outcome = Answer(key, completion, verdict.value, cached=False)
        else:
            common.stats.rejected += 1
            row.go_on(verdict, is_new=True)

    async def _validate_and_keep(self, completion: Completion, key: str) -> Valid[T] | Invalid:
        answers = self._common.answers
        try:
            verdict = validate(completion, self._asked.parse)
        except Exception:  # a bug in `parse`; the answer is paid for all the same
            await answers.keep(key, Entry(completion))
            raise
        why = verdict.message if isinstance(verdict, Invalid) else None
        await answers.keep(key, Entry(completion, why))
        return verdict

    async def _back_off(self, seconds: float) -> None:
        if self._common.dispatcher.is_down:
            return  # the circuit breaker holds it back
        if self._n_more:
            self._n_more -= 1
            self._tasks.start_soon(self.work)
        with self._common.stop.waiting():
            await self._common.sleep(seconds)
