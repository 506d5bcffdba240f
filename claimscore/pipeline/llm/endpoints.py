"""The servers of a provider, and the one queue of requests that wait for them.

A request is sent once a server can take it: the server's circuit breaker is closed (or the
request is its probe), a slot is free, and its limiter lets the request pass. Then the request's
greatest cost is reserved, and it is sent. How the attempt ended is told to limiter, budget and
circuit breaker. One server is the usual case of several.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import TYPE_CHECKING, TypeVar

import anyio

from claimscore.config import LLMConfig
from claimscore.errors import (
    AskAgain,
    ClaimscoreError,
    ConfigError,
    RateLimitError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.budget.cap import Budget, Reservation
from claimscore.pipeline.llm.circuit_breaker import CircuitBreaker, in_words
from claimscore.pipeline.llm.providers.base import Collecting, Provider, base_urls, servers_of
from claimscore.pipeline.llm.rate_limits import Permit, RateLimiter
from claimscore.pipeline.llm.stats import EngineStats, ServerStats
from claimscore.pipeline.llm.stopping import Halted, Stop
from claimscore.pipeline.llm.tokens import TokenEstimate
from claimscore.types import Completion, Request

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

#: Is told of rare events: a kind and fields, for the events of a run.
OnEvent = Callable[..., None]

logger = logging.getLogger(__name__)

#: An attempt that timed out was long, and may be billed: it counts as two.
TIMEOUT_COUNTS = 2

#: From so many counted attempts on, a 429 counts although no others are answered meanwhile.
REFUSED_ALONE = 2

#: The first of the line does not look again sooner than this, in seconds.
_LEAST_NAP_S = 0.001

#: So many refusals, and nothing accepted: then it is all requests that are refused.
_ALL_REFUSED = 10

#: The status of a server that fails for a reason that it does not tell.
_SERVER_ERROR = 500


def ignore_event(kind: str, **fields: object) -> None:
    """For callers that want to hear of no events."""


class Attempts:
    """The attempts at one request through a dispatcher; for the policy, when to wait and to stop.

    `sent` are all attempts, `error` is the last failure. `avoid` are the endpoints where the
    request failed since its last wait: others are asked first. Once `given_up` is set, the request
    is sent no more.
    """

    def __init__(
        self, dispatcher: Dispatcher, request: Request, key: str, given_up: anyio.Event
    ) -> None:
        self.request = request
        self.key = key
        self.given_up = given_up
        self.sent = 0
        self.error: TransientError | None = None
        self.avoid: set[Endpoint] = set()
        self._dispatcher = dispatcher
        #: Where it failed, how much that counts, and the answers that others had there by then.
        self._failures: list[tuple[Endpoint, int, int]] = []

    def failed(self, endpoint: Endpoint, counts: int) -> None:
        """Note a failure, and as how many attempts it counts against the request."""
        self._failures.append((endpoint, counts, endpoint.answered))

    def refused(self, endpoint: Endpoint) -> None:
        """Note a 429, which counts where others have been answered since the last failure, or were
        so often that the limit is not the reason."""
        here = [failure for failure in self._failures if failure[0] is endpoint]
        others_answered = bool(here) and endpoint.answered > here[-1][2]
        often = sum(counts for _, counts, _ in here) >= REFUSED_ALONE
        self.failed(endpoint, int(others_answered or often))

    def others_answered(self) -> bool:
        """Whether an endpoint where this request failed has answered others since."""
        return any(endpoint.answered > before for endpoint, _, before in self._failures)

    def are_exhausted(self) -> bool:
        """Whether so many attempts count against it as may: none at an endpoint that is down."""
        used = sum(counts for endpoint, counts, _ in self._failures if not endpoint.is_down)
        return used >= self._dispatcher.max_attempts

    def wait_s(self, state: RetryCallState) -> float:
        """Seconds to wait before the next one; 0.0 where another way, or endpoint, is at hand."""
        from claimscore.retry import retry_wait_s

        at_once = isinstance(self.error, AskAgain) or self._dispatcher.another_may_answer(self)
        return 0.0 if at_once else retry_wait_s(state)


class Endpoint:
    """One server of a provider: its limiter, its circuit breaker, its slots, its numbers.

    `begun` attempts were made, of which `ended` are over and `unreached` did not reach the server;
    `answered` brought an answer. `n_held` slots are taken.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        provider: Provider,
        n_slots: int,
        limiter: RateLimiter,
        breaker: CircuitBreaker,
    ) -> None:
        self.dispatcher = dispatcher
        self.provider = provider
        self.limiter = limiter
        self.breaker = breaker
        self.address = "".join(base_urls(provider)[:1]) or provider.namespace
        self.begun = self.ended = self.unreached = self.answered = self.n_held = 0
        self._n_slots = n_slots
        self._batches = provider if isinstance(provider, Collecting) else None
        self._estimate = TokenEstimate()

    @property
    def is_down(self) -> bool:
        """Whether the server is taken to be down."""
        return self.breaker.is_open

    @property
    def in_flight(self) -> int:
        """Requests that were sent and whose answers are not in the cache."""
        return self.begun - self.ended

    def stats(self) -> ServerStats:
        """The numbers of this moment."""
        breaker, why = self.breaker, ""
        down_s = breaker.failing_s if breaker.is_open else 0.0
        waiting_s = self.limiter.pause_s
        if self._batches is not None:
            why, waiting_s = self._batches.under_way()
        elif breaker.is_open and breaker.last_error is not None:
            never = "nothing has answered yet; is --base-url right?"
            about = "no answers:" if self.answered else never
            waiting_s, why = down_s, f"{about} {in_words(breaker.last_error)}"
        elif waiting_s:
            why = self.limiter.why_paused
        counts = self.begun - self.unreached, self.answered, self.in_flight
        return ServerStats(self.address, *counts, down_s, waiting_s, why, *self.limiter.limits())

    def wait_s(self, request: Request) -> float:
        """Seconds until the request could be sent, as far as is known before the next outcome."""
        tokens = self._estimate.expect(request)
        return max(self._closed_s(), self.limiter.wait_s(tokens, self.n_held))

    def _closed_s(self) -> float:
        """Seconds until a slot is free: the only one, for probes, where the server is down."""
        if self.n_held >= (1 if self.is_down else self._n_slots):
            return math.inf
        return self.breaker.probe_in_s if self.is_down else 0.0

    def take(self, request: Request) -> Permit | None:
        """Take a slot for the request if it can be sent now; `ask` frees it."""
        if self._closed_s():
            return None
        permit = self.limiter.try_reserve(self._estimate.expect(request), self.n_held)
        self.n_held += permit is not None
        return permit

    async def ask(
        self, attempts: Attempts, permit: Permit, keep: Callable[[str, Completion], Awaitable[T]]
    ) -> T:
        """Send the request, once, and return what `keep` makes of its key and answer; the slot is
        held until then.

        Raises `TransientError` where it may be sent again, `RejectedError`, and whatever stops
        the run.
        """
        dispatcher, request, is_sent = self.dispatcher, attempts.request, False
        is_counted = self._batches is not None and self._batches.is_sent(attempts.key)
        try:
            reservation = None if is_counted else dispatcher.spending.try_reserve(request)
            if reservation is None and not is_counted:
                with dispatcher.stop.waiting():
                    reservation = await dispatcher.spending.reserve(request)
            is_sent = True
            attempts.sent += 1
            self.begun += 1
            try:
                completion = await self.provider.complete(request)
            except BaseException as exc:
                self._end_failed(exc, attempts.key, permit, reservation)
                dispatcher.refused(exc)
                if isinstance(exc, TransientError):
                    attempts.error = exc
                    self._count_failure(exc, attempts)
                raise
            if reservation is not None:
                dispatcher.spending.settle(reservation, completion.usage)
            self._succeeded(request, completion, permit)
            return await keep(attempts.key, completion)
        finally:
            self.ended += is_sent
            if not is_sent:
                self.limiter.failed(permit, counted=False)
            self.n_held -= 1
            dispatcher.look_again()

    def _succeeded(self, request: Request, completion: Completion, permit: Permit) -> None:
        self.answered += 1
        used_tokens = self._estimate.learn(request, completion)
        self.limiter.answered(permit, used_tokens, completion.limits)
        down_s = self.breaker.answered()
        if down_s:
            notice = f"{self.address} answers again, after {down_s:,.0f} s"
            self.dispatcher.tell(self, "server back", notice, seconds=round(down_s, 3))
        self.dispatcher.look_again()  # the limiter may let one pass before this slot is free

    def _end_failed(
        self, error: BaseException, key: str, permit: Permit, reservation: Reservation | None
    ) -> None:
        """Tell limiter and budget of an attempt that failed, and whether it may be billed."""
        kind, limits = "", None
        may_be_billed = not isinstance(error, ClaimscoreError)  # cancelled, or a bug
        if isinstance(error, TransientError):
            kind, limits, may_be_billed = error.kind, error.limits, error.may_be_billed
        if isinstance(error, RateLimitError):
            self.limiter.refused(permit, error.retry_after_s, limits)
        else:
            timed_out = kind == "timeout"
            self.limiter.failed(permit, counted=may_be_billed, limits=limits, timed_out=timed_out)
        self.unreached += kind == "connect"
        if reservation is None:
            return
        is_sent = kind != "connect" and (self._batches is None or self._batches.is_sent(key))
        if may_be_billed and is_sent:
            self.dispatcher.spending.keep(reservation)
        else:
            self.dispatcher.spending.release(reservation, sent=is_sent)

    def _count_failure(self, error: TransientError, attempts: Attempts) -> None:
        """Whether it is evidence against the server, and counts against the request, or is an
        outage."""
        if isinstance(error, AskAgain):
            return
        stats, breaker, was_down = self.dispatcher.stats, self.breaker, self.is_down
        attempts.avoid.add(self)
        logger.debug("request %s failed: %s: %s", attempts.key, error.kind, error)
        stats.last_error = in_words(error)
        if error.kind not in stats.retries:
            self.dispatcher.tell(self, "first retry", error_kind=error.kind, error=str(error))
        stats.retries[error.kind] += 1
        if isinstance(error, RateLimitError):
            breaker.refused(error)
            attempts.refused(self)
            return
        others_answered = attempts.others_answered()
        counts = breaker.failed(attempts.key, error, others_answered=others_answered)
        attempts.failed(self, counts * (TIMEOUT_COUNTS if error.kind == "timeout" else 1))
        if self.is_down and not was_down:
            why = str(error).removeprefix(f"{self.address}: ")
            notice = f"{self.address} is down and left out: {why}"
            self.dispatcher.tell(self, "server down", notice, error=str(error))


class Dispatcher:
    """Gives each request a slot at the endpoint that can take it first, first come, first served.

    Of several endpoints the one with the fewest requests in flight is used, so each gets what it
    can do, and one that is down is left out. `on_event` is then told which endpoint an event is
    about (`server`).

    A provider that `collects` answers by batch jobs limits and repeats them itself, and what it
    has sent goes on when the process ends.
    """

    def __init__(
        self,
        provider: Provider,
        llm: LLMConfig,
        *,
        spending: Budget,
        stop: Stop,
        stats: EngineStats,
        on_event: OnEvent,
    ) -> None:
        if isinstance(provider, Collecting):
            llm = dataclasses.replace(llm, max_concurrency=provider.batch_size, max_attempts=1)
            llm = dataclasses.replace(llm, rpm=None, tpm=None)
        servers, group = servers_of(provider), list[CircuitBreaker]()
        self.provider = provider
        self.collects = isinstance(provider, Collecting)
        self.max_attempts = llm.max_attempts
        self.max_concurrency = llm.max_concurrency * len(servers)
        self.spending = spending
        self.stop = stop
        self.stats = stats
        self._on_event = on_event
        self._line = anyio.Lock(fast_acquire=True)  # first come, first served
        self._changed = anyio.Event()
        self._n_refused = 0
        self.endpoints: tuple[Endpoint, ...] = ()
        for server in servers:
            limiter = RateLimiter(rpm=llm.rpm, tpm=llm.tpm, slow_start=not self.collects)
            breaker = CircuitBreaker(llm.max_outage_s, group=group)
            breaker.was_reached = spending.ledger.earlier.prompt_tokens > 0
            self.endpoints += (Endpoint(self, server, llm.max_concurrency, limiter, breaker),)

    @property
    def is_down(self) -> bool:
        """Whether no endpoint is up."""
        return all(endpoint.is_down for endpoint in self.endpoints)

    async def ask(self, attempts: Attempts, keep: Callable[[str, Completion], Awaitable[T]]) -> T:
        """Send the request, once, as soon as an endpoint can take it; see `Endpoint.ask`.

        Raises besides `Halted` where the engine stops or the request is given up, `OutageError`.
        """
        endpoint, permit = await self._slot(attempts)
        return await endpoint.ask(attempts, permit, keep)

    async def _slot(self, attempts: Attempts) -> tuple[Endpoint, Permit]:
        """Wait for a slot.

        Requests wait in a line, and the first of it looks. Those that must avoid an endpoint where
        they failed look beside it, so that they keep nothing from the others.
        """
        if not self._line.locked() and (slot := self._best(attempts)):
            return slot
        with self.stop.waiting():
            async with contextlib.nullcontext() if attempts.avoid else self._line:
                while (slot := self._best(attempts)) is None:
                    choice = self._choice(attempts.avoid)
                    wait_s = min(endpoint.wait_s(attempts.request) for endpoint in choice)
                    if self.is_down:
                        wait_s = min(wait_s, self.check_patience())
                    with anyio.move_on_after(max(wait_s, _LEAST_NAP_S)):
                        await self._changed.wait()
                return slot

    def check_patience(self) -> float:
        """Seconds for which a wait that a server asked for may go on before this is called again;
        `OutageError` where patience has ended."""
        return max(self.endpoints[0].breaker.check_patience(), _LEAST_NAP_S)

    def look_again(self) -> None:
        """Let those who wait look whether they can have a slot now."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def another_may_answer(self, attempts: Attempts) -> bool:
        """Whether an endpoint is up where the request has not failed since its last wait."""
        return len(self.endpoints) > 1 and not all(
            endpoint.is_down for endpoint in self.endpoints if endpoint not in attempts.avoid
        )

    def _best(self, attempts: Attempts) -> tuple[Endpoint, Permit] | None:
        """A slot at an endpoint that is to be probed, else where fewest requests are in flight."""
        if attempts.given_up.is_set() or self.stop.reason is not None:
            raise Halted
        choice = self._choice(attempts.avoid)
        if len(choice) > 1:
            choice = sorted(choice, key=lambda one: (not one.is_down, one.n_held, one.begun))
        for endpoint in choice:
            permit = endpoint.take(attempts.request)
            if permit is not None:
                return endpoint, permit
        return None

    def _choice(self, avoid: Set[Endpoint]) -> Sequence[Endpoint]:
        """The endpoints to be asked; all of them where only some that are down would be left."""
        if not avoid:
            return self.endpoints
        others = [endpoint for endpoint in self.endpoints if endpoint not in avoid]
        return self.endpoints if all(endpoint.is_down for endpoint in others) else others

    # -- what endpoints tell

    def tell(self, endpoint: Endpoint, kind: str, notice: str = "", **fields: object) -> None:
        """An event of an endpoint. Of several it is named, and people are told the notice."""
        if len(self.endpoints) > 1:
            fields["server"] = endpoint.address
            fields |= {"notice": notice} if notice else {}
        self._on_event(kind, **fields)

    def refused(self, error: BaseException) -> None:
        """Stop where the first requests of all are refused: the next ones would be too.

        Not counted are refusals that pass (too fast, overloaded, no connection) and those of a
        filter.
        """
        if isinstance(error, RejectedError):
            self._n_refused += error.kind in ("rejected", "context_length")
        elif isinstance(error, TransientError):
            self._n_refused += error.status == _SERVER_ERROR
        was_accepted = self.stats.hits or self.spending.ledger.earlier.prompt_tokens
        was_accepted = was_accepted or any(one.answered for one in self.endpoints)
        if self._n_refused >= _ALL_REFUSED and not was_accepted:
            self.stop.halt(
                ConfigError(
                    f"the first requests are all refused, the last one by: {error}; check the key, "
                    "--llm, --base-url, --header, the length of the texts, --llm-param and the "
                    "prompt's [settings]"
                )
            )
