"""The servers of a provider, and the one queue of requests that wait for them.

A request is sent once a server can take it: the server's circuit breaker is closed (or the
request is its probe), a slot is free, and its limiter lets the request pass. Then the request's
greatest cost is reserved, and it is sent. How the attempt ended is told to limiter, budget and
circuit breaker. One server is the usual case of several.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence, Set
from typing import Any

import anyio

from claimscore.errors import (
    AskAgain,
    ClaimscoreError,
    ConfigError,
    RateLimitError,
    StoppedEarly,
    TransientError,
)
from claimscore.pipeline.llm.budget.cap import Budget, Reservation
from claimscore.pipeline.llm.circuit_breaker import CircuitBreaker
from claimscore.pipeline.llm.providers.base import Collecting, Provider, base_urls, servers_of
from claimscore.pipeline.llm.providers.errors import probable_cause
from claimscore.pipeline.llm.ratelimit.limiter import LimiterState, Permit, RateLimiter
from claimscore.pipeline.llm.stats import EngineStats, ServerStats
from claimscore.pipeline.llm.stopping import FirstAnswers, Halted, Stop
from claimscore.pipeline.llm.tokens import TokenEstimate
from claimscore.types import Completion, Request

#: Is told of rare events: a kind and fields, for the events of a run.
OnEvent = Callable[..., None]

logger = logging.getLogger(__name__)

#: An attempt that timed out was long, and may be billed: it counts as two.
TIMEOUT_COUNTS = 2

#: The first of the line does not look again sooner than this, in seconds.
_LEAST_NAP_S = 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What holds for each server of a provider, and for each request to it.

    `rpm` and `tpm` are requests and tokens a minute; None where headers and refusals tell them.
    """

    rpm: float | None = None
    tpm: float | None = None
    max_concurrency: int = 64
    timeout_s: float | None = 120.0
    max_attempts: int = 8


@dataclasses.dataclass(slots=True)
class _FailedAt:
    """The failures of a request at one endpoint: how many answers that had given when it first
    failed there, and the attempts that count against the request."""

    answered_before: int
    used: int = 0


class Attempts:
    """The attempts at one request; `allowed` of them may count against it.

    `sent` are all attempts. `exhausted` says that no further one is allowed. `avoid` are the
    endpoints where the request failed since its last wait: others are asked first.
    """

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.sent = 0
        self.exhausted = False
        self.avoid: set[Endpoint] = set()
        self._failed_at: dict[Endpoint, _FailedAt] = {}

    @property
    def used(self) -> int:
        """Attempts that count: none of those at an endpoint that turned out to be down."""
        return sum(at.used for endpoint, at in self._failed_at.items() if not endpoint.is_down)

    @property
    def others_answered(self) -> bool:
        """Whether an endpoint where this request failed has answered others since."""
        return any(e.answered > at.answered_before for e, at in self._failed_at.items())

    def at(self, endpoint: Endpoint) -> _FailedAt:
        """The record of one endpoint, begun with the first failure there."""
        return self._failed_at.setdefault(endpoint, _FailedAt(endpoint.answered))


class Slot:
    """The right to send one request to an endpoint, which holds a slot and a permit for it.

    A context manager, which frees the slot at its end: once the answer is in the cache.
    """

    __slots__ = ("_is_in_flight", "_permit", "endpoint", "is_probe")

    def __init__(self, endpoint: Endpoint, permit: Permit, *, is_probe: bool) -> None:
        self.endpoint = endpoint
        self.is_probe = is_probe
        self._permit: Permit | None = permit
        self._is_in_flight = False

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        """Let another request have the slot; a permit that was not used is given back."""
        if self._permit is not None:
            self.endpoint.limiter.failed(self._permit, counted=False)
        if self.is_probe:
            self.endpoint.breaker.end_probe()
        if self._is_in_flight:
            self.endpoint.dispatcher.landed()
        self.endpoint.n_free += 1
        self.endpoint.dispatcher.look_again()

    async def send(self, request: Request, key: str, attempts: Attempts) -> Completion:
        """Send the request, once, and return its answer.

        Raises `TransientError` where it may be sent again (`attempts.exhausted`: it may not),
        `RejectedError`, and whatever stops the run.
        """
        endpoint, dispatcher = self.endpoint, self.endpoint.dispatcher
        reservation = dispatcher.spending.try_reserve(request)
        if reservation is None:
            with dispatcher.stop.waiting():
                reservation = await dispatcher.spending.reserve(request)
        attempts.sent += 1
        endpoint.sent += 1
        self._is_in_flight = True
        dispatcher.took_off()
        try:
            with anyio.move_on_after(endpoint.timeout_s) as time_limit:
                completion = await endpoint.provider.complete(request)
            if time_limit.cancelled_caught:
                raise TransientError(f"no answer within {endpoint.timeout_s:g} s", "timeout")
        except BaseException as exc:
            self._give_back(exc, reservation)
            dispatcher.refused(exc, endpoint)
            if isinstance(exc, TransientError) and not isinstance(exc, AskAgain):
                endpoint.failed(key, exc, attempts, probe=self.is_probe)
            raise
        permit, self._permit = self._permit, None
        dispatcher.spending.settle(reservation, completion.usage)
        endpoint.succeeded(request, completion, permit)
        return completion

    def _give_back(self, error: BaseException, reservation: Reservation) -> None:
        """Tell limiter and budget of an attempt that failed, and whether it may be billed."""
        endpoint, permit, self._permit = self.endpoint, self._permit, None
        assert permit is not None, "a slot is for one attempt"
        limits = error.limits if isinstance(error, TransientError) else None
        if isinstance(error, TransientError):
            may_be_billed = error.may_be_billed
        else:  # cancelled, or a bug: the server may have done the work
            may_be_billed = not isinstance(error, ClaimscoreError)
        if isinstance(error, RateLimitError):
            endpoint.limiter.refused(permit, error.retry_after_s, limits)
        else:
            timed_out = isinstance(error, TransientError) and error.kind == "timeout"
            endpoint.limiter.failed(
                permit, counted=may_be_billed, limits=limits, timed_out=timed_out
            )
        spending = endpoint.dispatcher.spending
        if may_be_billed:
            spending.keep(reservation)
            return
        received = not (isinstance(error, TransientError) and error.kind == "connect")
        spending.release(reservation, sent=received)
        if not received:  # a refused connection is no request
            endpoint.sent -= 1
            endpoint.dispatcher.stats.sent -= 1


class Endpoint:
    """One server of a provider: its limiter, its circuit breaker, its slots, its numbers."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        provider: Provider,
        limiter: RateLimiter,
        breaker: CircuitBreaker,
        *,
        max_concurrency: int,
        timeout_s: float | None,
        on_event: OnEvent,
    ) -> None:
        own_s = getattr(provider, "timeout_s", None)
        self.dispatcher = dispatcher
        self.provider = provider
        self.limiter = limiter
        self.breaker = breaker
        self.address = "".join(base_urls(provider)[:1]) or provider.namespace
        #: None where the provider itself waits no longer for an answer.
        self.timeout_s = None if timeout_s and own_s and own_s <= timeout_s else timeout_s
        self.n_free = max_concurrency
        self.sent = 0
        self.answered = 0
        self._max_concurrency = max_concurrency
        self._on_event = on_event
        self._estimate = TokenEstimate()

    @property
    def is_down(self) -> bool:
        """Whether the server is taken to be down."""
        return self.breaker.is_open

    @property
    def down_s(self) -> float:
        """For how many seconds it has been down; 0.0 where it is up."""
        return self.breaker.failing_s if self.breaker.is_open else 0.0

    @property
    def n_held(self) -> int:
        """Slots that are taken."""
        return self._max_concurrency - self.n_free

    @property
    def is_to_be_probed(self) -> bool:
        """Whether the server is down and its next probe is due."""
        return self.breaker.is_open and self.breaker.probe_in_s == 0

    def stats(self) -> ServerStats:
        """The numbers of this moment."""
        why = self.breaker.why if self.is_down else ""
        return ServerStats(self.address, self.sent, self.answered, self.n_held, self.down_s, why)

    def wait_s(self, request: Request) -> float:
        """Seconds until the request could be sent, as far as is known before the next outcome."""
        if not self.n_free:
            return math.inf
        wait_s = self.breaker.probe_in_s if self.is_down else 0.0
        return max(wait_s, self.limiter.wait_s(self._estimate.expect(request)))

    def take(self, request: Request) -> Slot | None:
        """A slot for the request if it can be sent now; as the probe where that is due."""
        is_probe = self.is_to_be_probed
        if not self.n_free or (self.is_down and not is_probe):
            return None
        permit = self.limiter.try_reserve(self._estimate.expect(request))
        if permit is None:
            return None
        self.n_free -= 1
        if is_probe:
            self.breaker.begin_probe()
        return Slot(self, permit, is_probe=is_probe)

    def succeeded(self, request: Request, completion: Completion, permit: Permit | None) -> None:
        """An attempt was answered."""
        assert permit is not None, "a slot is for one attempt"
        self.answered += 1
        self.dispatcher.stats.answered += 1
        self.dispatcher.first_answers.accepted()
        used_tokens = self._estimate.learn(request, completion)
        self.limiter.answered(permit, used_tokens, completion.limits)
        down_s = self.breaker.answered()
        if down_s:
            self.limiter.resume_gently()
            self._on_event("outage ended", seconds=round(down_s, 3))
        self.dispatcher.look_again()  # the limiter may let one pass before this slot is free

    def failed(
        self, key: str, error: TransientError, attempts: Attempts, *, probe: bool = False
    ) -> None:
        """An attempt at the request `key` failed; decides whether that counts against it.

        Raises `OutageError` where no server has answered for too long.
        """
        stats, breaker = self.dispatcher.stats, self.breaker
        attempts.avoid.add(self)
        logger.debug("request %s failed: %s: %s", key, error.kind, error)
        stats.last_error = str(error)
        if error.kind not in stats.retries:
            self._on_event("first retry", error_kind=error.kind, error=str(error))
        stats.retries[error.kind] += 1
        if isinstance(error, RateLimitError):
            breaker.refused(error)
            return
        here, was_open = attempts.at(self), breaker.is_open
        counts = breaker.failed(key, error, probe=probe, others_answered=attempts.others_answered)
        if breaker.is_open and not was_open:
            self._on_event("outage began", error=str(error))
        if counts:
            here.used += TIMEOUT_COUNTS if error.kind == "timeout" else 1
            attempts.exhausted = attempts.used >= attempts.allowed


class Dispatcher:
    """Gives each request a slot at the endpoint that can take it first, first come, first served.

    Of several endpoints the one with the fewest requests in flight is used, so each gets what it
    can do, and one that is down is left out. `on_event` is then told which endpoint an event is
    about (`server`), and of an outage only when all endpoints are down.
    """

    def __init__(
        self,
        provider: Provider,
        bounds: Bounds,
        *,
        limiter: Callable[..., RateLimiter],
        spending: Budget,
        stop: Stop,
        stats: EngineStats,
        max_outage_s: float,
        on_event: OnEvent,
    ) -> None:
        self.provider = provider
        #: Its answers come in batch jobs: it limits and repeats them itself, has a journal of its
        #: own, and what it has sent goes on when the process ends.
        self.collects = isinstance(provider, Collecting)
        if isinstance(provider, Collecting):
            bounds = Bounds(max_concurrency=provider.batch_size, timeout_s=None, max_attempts=1)
        self.max_attempts = bounds.max_attempts
        self.spending = spending
        self.stop = stop
        self.first_answers = FirstAnswers()
        self.stats = stats
        self._on_event = on_event
        self._all_landed: anyio.Event | None = None
        self._line = anyio.Lock(fast_acquire=True)  # first come, first served
        self._changed = anyio.Event()
        self._all_down_since: float | None = None
        group: list[CircuitBreaker] = []
        self._in_flight = 0
        servers = servers_of(provider)
        self.max_concurrency = bounds.max_concurrency * len(servers)

        def limiter_of(server: Provider) -> RateLimiter:
            address = {} if len(servers) == 1 else {"server": base_urls(server)[0]}
            return limiter(
                rpm=bounds.rpm,
                tpm=bounds.tpm,
                max_concurrency=bounds.max_concurrency,
                slow_start=not self.collects,
                on_event=functools.partial(on_event, **address),
            )

        self.endpoints = tuple(
            Endpoint(
                self,
                server,
                limiter_of(server),
                CircuitBreaker(max_outage_s, group=group),
                max_concurrency=bounds.max_concurrency,
                timeout_s=bounds.timeout_s,
                on_event=on_event if len(servers) == 1 else self._event_of(server),
            )
            for server in servers
        )

    # -- its state

    @property
    def is_down(self) -> bool:
        """Whether no endpoint is up."""
        return all(endpoint.is_down for endpoint in self.endpoints)

    @property
    def down_s(self) -> float:
        """For how many seconds all endpoints have been down."""
        return min(endpoint.down_s for endpoint in self.endpoints)

    @property
    def why_down(self) -> str:
        """The last failure at the endpoint that went down last."""
        return min(self.endpoints, key=lambda endpoint: endpoint.down_s).breaker.why

    @property
    def times_out(self) -> bool:
        """Whether the servers are taken to be down because no answer came in time."""
        return self.is_down and all(one.breaker.times_out for one in self.endpoints)

    def refused(self, error: BaseException, endpoint: Endpoint) -> None:
        """Stop where the first answers are all the same refusal: the next would be too."""
        if not isinstance(error, ClaimscoreError) or not self.first_answers.refused(error):
            return
        status = error.status if isinstance(error, TransientError) else None
        server = getattr(endpoint.provider, "server", None)
        cause = probable_cause(str(error), status, has_key=server is None or server.may_be_known)
        said = f"the first answers are all the same refusal, and none is accepted: {error}; {cause}"
        was_accepted = self.stats.hits or self.spending.before.prompt_tokens
        self.stop.halt(StoppedEarly(said) if was_accepted else ConfigError(said))

    def limits(self) -> LimiterState:
        """The sum of the limits of all endpoints that are up, and the shortest of their pauses."""
        up = [endpoint for endpoint in self.endpoints if not endpoint.is_down] or self.endpoints
        states = [endpoint.limiter.state() for endpoint in up]
        first = min(states, key=lambda state: state.paused_until)
        rpm, tpm = _sum([state.rpm for state in states]), _sum([state.tpm for state in states])
        told = next((state for state in states if state.source != "none"), first)
        source = "none" if rpm is None and tpm is None else told.source
        windows = [state.window for state in states if state.window is not None]
        window = sum(windows) if len(windows) == len(states) else None
        return LimiterState(rpm, tpm, source, first.paused_until, first.why, window)

    def servers(self) -> list[ServerStats]:
        """The numbers of each of several endpoints; none of an only one."""
        return [endpoint.stats() for endpoint in self.endpoints] if self._are_several else []

    @property
    def _are_several(self) -> bool:
        return len(self.endpoints) > 1

    # -- slots

    async def slot(self, request: Request, attempts: Attempts) -> Slot:
        """Wait for a slot for the request. Raises `Halted` where the engine stops, `OutageError`
        where every server is down and asks for a longer wait than `max_outage_s` allows.

        Requests wait in a line, and the first of it looks. Those that must avoid an endpoint where
        they failed look beside it, so that they keep nothing from the others.
        """
        if self.stop.reason is None and not self._line.locked():
            slot = self._best(request, attempts.avoid)
            if slot is not None:
                return slot
        with self.stop.waiting():
            async with contextlib.nullcontext() if attempts.avoid else self._line:
                while self.stop.reason is None:
                    slot = self._best(request, attempts.avoid)
                    if slot is not None:
                        return slot
                    choice = self._choice(attempts.avoid)
                    wait_s = min(endpoint.wait_s(request) for endpoint in choice)
                    if all(endpoint.breaker.asks_too_much for endpoint in self.endpoints):
                        wait_s = min(wait_s, self.patience_s())
                    with anyio.move_on_after(max(wait_s, _LEAST_NAP_S)):
                        await self._changed.wait()
        raise Halted

    def patience_s(self) -> float:
        """Seconds for which a wait that a server asked for may go on before this is called again.

        Raises `OutageError` where no server has answered for `max_outage_s`.
        """
        breaker = self.endpoints[0].breaker
        breaker.check_patience()
        return max(breaker.patience_s, _LEAST_NAP_S)

    def look_again(self) -> None:
        """Let those who wait look whether they can have a slot now."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def another_may_answer(self, attempts: Attempts) -> bool:
        """Whether an endpoint is up where the request has not failed since its last wait."""
        return self._are_several and not all(
            endpoint.is_down for endpoint in self.endpoints if endpoint not in attempts.avoid
        )

    def took_off(self) -> None:
        """A request was sent."""
        self.stats.sent += 1
        self.stats.in_flight += 1
        self._in_flight += 1

    def landed(self) -> None:
        """A request has ended, and its answer, if there is one, is in the cache."""
        self.stats.in_flight -= 1
        self._in_flight -= 1
        if self._all_landed is not None and not self._in_flight:
            self._all_landed.set()
            self._all_landed = None

    async def all_landed(self) -> None:
        """Return when no request is in flight."""
        while self._in_flight:
            self._all_landed = self._all_landed or anyio.Event()
            await self._all_landed.wait()

    def _best(self, request: Request, avoid: Set[Endpoint]) -> Slot | None:
        """A slot at an endpoint whose probe is due, else where fewest requests are in flight."""
        choice = self._choice(avoid)
        if len(choice) == 1:
            return choice[0].take(request)
        probes = [endpoint for endpoint in choice if endpoint.is_to_be_probed]
        up = [endpoint for endpoint in choice if endpoint.n_free and not endpoint.is_down]
        up.sort(key=lambda endpoint: (endpoint.n_held, endpoint.sent))
        for endpoint in (*probes, *up):
            slot = endpoint.take(request)
            if slot is not None:
                return slot
        return None

    def _choice(self, avoid: Set[Endpoint]) -> Sequence[Endpoint]:
        """The endpoints to be asked; all of them where only some that are down would be left."""
        if not avoid:
            return self.endpoints
        others = [endpoint for endpoint in self.endpoints if endpoint not in avoid]
        return self.endpoints if all(endpoint.is_down for endpoint in others) else others

    # -- events of several endpoints

    def _event_of(self, server: Provider) -> OnEvent:
        """Events of one endpoint, by its address: it goes down and comes back; only all of them
        together are an outage."""
        address = "".join(base_urls(server)[:1])

        def tell(kind: str, **fields: Any) -> None:
            if kind == "outage began":
                why = fields["error"].removeprefix(f"{address}: ")
                fields["notice"] = f"{address} is down and left out: {why}"
                self._on_event("server down", server=address, **fields)
                if self.is_down:
                    self._all_down_since = anyio.current_time()
                    self._on_event("outage began", error=fields["error"])
            elif kind == "outage ended":
                fields["notice"] = f"{address} answers again, after {fields['seconds']:,.0f} s"
                self._on_event("server back", server=address, **fields)
                if self._all_down_since is not None:
                    lasted_s = anyio.current_time() - self._all_down_since
                    self._all_down_since = None
                    self._on_event("outage ended", seconds=round(lasted_s, 3))
            else:
                self._on_event(kind, server=address, **fields)

        return tell


def _sum(figures: Sequence[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def ignore_event(kind: str, **fields: object) -> None:
    """For callers that want to hear of no events."""
