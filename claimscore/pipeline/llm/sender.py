"""One attempt at one request, under everything that may hold it back.

In this order: the outage gate, a slot, the limits, the budget, the provider. What comes back,
an answer or an error, is told to all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from claimscore.errors import (
    ClaimscoreError,
    ConfigError,
    RateLimitError,
    StoppedEarly,
    TransientError,
)
from claimscore.pipeline.llm.inflight import InFlight
from claimscore.pipeline.llm.limits import Limiter, Permit, TokenEstimate
from claimscore.pipeline.llm.money import Budgeted, Reservation
from claimscore.pipeline.llm.outage import Outage
from claimscore.pipeline.llm.providers.base import Diagnosable, Provider
from claimscore.pipeline.llm.retry import GaveUp
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import Halted, Stop
from claimscore.types import Completion, Request

T = TypeVar("T")

#: Told of what happens seldom: a kind and fields, for the events of a run.
OnEvent = Callable[..., None]


#: An attempt that timed out was long, and may be billed: it counts as two.
TIMEOUT_COUNTS = 2


@dataclasses.dataclass(slots=True)
class Tries:
    """What was tried for one request: attempts sent, those that count against it, and how
    much had been answered to anybody when it first failed."""

    allowed: int
    sent: int = 0
    used: int = 0
    answered_before: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Held:
    """What an attempt has been given: by the limits, by the budget, by the outage gate."""

    permit: Permit
    reservation: Reservation
    probe: bool


class Sender:
    """Sends requests to one provider within its limits and the run's budget."""

    def __init__(
        self,
        provider: Provider,
        *,
        limiter: Limiter,
        spending: Budgeted,
        outage: Outage,
        stop: Stop,
        stats: EngineStats,
        max_concurrency: int,
        timeout_s: float | None,
        on_event: OnEvent,
    ) -> None:
        self._provider = provider
        self._limiter = limiter
        self._spending = spending
        self._outage = outage
        self._stop = stop
        self._stats = stats
        self._timeout_s = _unless_its_own(timeout_s, provider)
        self._on_event = on_event
        self._estimate = TokenEstimate()
        self._slots = anyio.Semaphore(max_concurrency, fast_acquire=True)
        self._diagnosed = False
        self.in_flight = InFlight()
        self._idle = anyio.Event()
        self.background: TaskGroup | None = None

    async def send(
        self, request: Request, key: str, tries: Tries, keep: Callable[[Completion], Awaitable[T]]
    ) -> T:
        """One attempt: what `keep` made of the answer.

        The slot is held until `keep` returns, which must not let itself be cancelled: from the
        moment there is an answer nothing prevents that it is kept. Raises `TransientError`
        where it may be tried again, `GaveUp` from one where it has been tried often enough,
        `RejectedError`, and what stops the run.
        """
        while True:
            probe = await self._pass_gate()
            try:
                await self._take_slot()
                try:
                    permit = await self._permit(request)
                    if probe or not self._outage.is_open:
                        reservation = await self._reservation(request, permit)
                        held = _Held(permit, reservation, probe)
                        return await self._send(request, key, tries, keep, held)
                    self._limiter.failed(permit, counted=False)  # it went down meanwhile
                finally:
                    self._slots.release()
            finally:
                if probe:
                    self._outage.lost_probe()

    async def _send(
        self,
        request: Request,
        key: str,
        tries: Tries,
        keep: Callable[[Completion], Awaitable[T]],
        held: _Held,
    ) -> T:
        stats = self._stats
        tries.sent += 1
        stats.sent += 1
        stats.in_flight += 1
        flight = self.in_flight.enter(key)
        try:
            completion = await self._attempt(request, held.permit, held.reservation)
            return await keep(completion)
        except TransientError as exc:
            self._failed(key, tries, exc, held.probe)
            raise
        finally:
            self.in_flight.leave(flight)
            stats.in_flight -= 1
            if stats.in_flight == 0:
                self._idle.set()
                self._idle = anyio.Event()

    async def landed(self) -> None:
        """Return when nothing is in flight."""
        while self._stats.in_flight:
            await self._idle.wait()

    async def _pass_gate(self) -> bool:
        """Wait until the server is there; True where this attempt is to find that out."""
        probe = False
        if self._outage.is_open:
            with self._stop.waiting():
                probe = await self._outage.gate()
        return probe

    async def _take_slot(self) -> None:
        try:
            self._slots.acquire_nowait()
        except anyio.WouldBlock:
            with self._stop.waiting():
                await self._slots.acquire()

    async def _permit(self, request: Request) -> Permit:
        permit = self._limiter.try_reserve(self._estimate.expect(request))
        if permit is None:
            with self._stop.waiting():
                permit = await self._limiter.reserve(lambda: self._estimate.expect(request))
        if self._stop.reason is not None:
            self._limiter.failed(permit, counted=False)
            raise Halted
        return permit

    async def _reservation(self, request: Request, permit: Permit) -> Reservation:
        try:
            reservation = self._spending.try_reserve(request)
            if reservation is None:
                with self._stop.waiting():
                    reservation = await self._spending.reserve(request)
        except BaseException:
            self._limiter.failed(permit, counted=False)
            raise
        return reservation

    async def _attempt(
        self, request: Request, permit: Permit, reservation: Reservation
    ) -> Completion:
        """Send, and tell the limits and the budget what came of it."""
        try:
            completion = await self._complete(request)
        except RateLimitError as exc:
            self._limiter.refused(permit, exc.retry_after_s, exc.limits)
            self._spending.release(reservation)
            raise
        except TransientError as exc:
            self._limiter.failed(permit, counted=exc.may_be_billed, limits=exc.limits)
            if exc.may_be_billed:
                self._spending.keep(reservation)
            else:
                self._spending.release(reservation)
            raise
        except BaseException as exc:
            refused = isinstance(exc, ClaimscoreError)  # else cancelled or a bug: it may be billed
            self._limiter.failed(permit, counted=not refused)
            (self._spending.release if refused else self._spending.keep)(reservation)
            raise
        self._stats.answered += 1
        self._spending.settle(reservation, completion.usage)
        used = self._estimate.learn(request, completion)
        self._limiter.answered(permit, used, completion.limits)
        self._answered()
        return completion

    async def _complete(self, request: Request) -> Completion:
        """The provider's answer, within its time."""
        if self._timeout_s is None:
            return await self._provider.complete(request)
        try:
            with anyio.fail_after(self._timeout_s):
                return await self._provider.complete(request)
        except TimeoutError:
            raise TransientError(f"no answer within {self._timeout_s:g} s", "timeout") from None

    def _answered(self) -> None:
        down_s = self._outage.answered()
        if down_s:
            self._limiter.resume_gently()
            self._on_event("outage ended", seconds=round(down_s, 3))

    def _failed(self, key: str, tries: Tries, error: TransientError, probe: bool) -> None:
        """Tell the outage gate; raise `GaveUp` where the row has used up its attempts."""
        stats = self._stats
        stats.last_error = str(error)
        self._note_retry(error)
        if isinstance(error, RateLimitError):
            self._outage.refused(error)
            return
        if tries.answered_before is None:
            tries.answered_before = stats.answered
        others_answered = stats.answered > tries.answered_before
        was_open = self._outage.is_open
        counts = self._outage.failed(key, error, probe=probe, others_answered=others_answered)
        if self._outage.is_open and not was_open:
            self._on_event("outage began", error=str(error))
            self._diagnose()
        if counts:
            tries.used += TIMEOUT_COUNTS if error.kind == "timeout" else 1
            if tries.used >= tries.allowed:
                raise GaveUp from error

    def _note_retry(self, error: TransientError) -> None:
        """The first of each kind is an event; all are counted."""
        if error.kind not in self._stats.retries:
            self._on_event("first retry", error_kind=error.kind, error=str(error))
        self._stats.retries[error.kind] += 1

    def _diagnose(self) -> None:
        """Where nothing was ever answered, ask once whether anything can be."""
        provider, again = self._provider, self._diagnosed
        self._diagnosed = True
        if self._stats.answered == 0 and not again and isinstance(provider, Diagnosable):
            assert self.background is not None, "the engine is entered before anything is sent"
            self.background.start_soon(self._run_diagnosis, provider)

    async def _run_diagnosis(self, provider: Diagnosable) -> None:
        try:
            with anyio.move_on_after(self._timeout_s):
                await provider.diagnose()
        except (ConfigError, StoppedEarly) as exc:
            self._stop.halt(exc)
        except ClaimscoreError:
            pass  # it could not find out; the outage goes on as one


def _unless_its_own(timeout_s: float | None, provider: Provider) -> float | None:
    """The time for an answer, or None where the provider itself waits no longer than that."""
    own = getattr(provider, "timeout_s", None)
    return None if own is not None and timeout_s is not None and own <= timeout_s else timeout_s


def hear_nothing(kind: str, **fields: object) -> None:
    """Nobody wants to hear of events."""
