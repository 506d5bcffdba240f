"""Counts the cost of requests, and never lets it pass the caps.

Before a request is sent, the most that it can cost is set aside; when it has ended, what it
really cost takes that place. So what is spent and what is set aside together never pass the
cap, whatever is answered, cancelled or killed, provided that no answer costs more than was
set aside. A server that ignores `max_tokens` can break that: what it reports is counted all
the same, the later requests are taken to cost as much more, and the cap is passed by no more
than what those in flight went over.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path

import anyio

from claimscore.errors import BudgetError, ConfigError, StoppedEarly
from claimscore.pipeline.llm.budget.ledger import Ledger, Spent, read_spent
from claimscore.pipeline.llm.budget.pricing import GIVEN, PICO, Price, unknown_price
from claimscore.pipeline.llm.tokens import most_tokens
from claimscore.types import Request, Usage

#: The name of a run's ledger in its state folder.
SPEND_FILE = "spend.jsonl"

#: Tiers of service that cost no more than the price of the table.
_PRICED_TIERS = (None, "auto", "default", "flex")


@dataclasses.dataclass(slots=True)
class SpendTotals:
    """Requests, tokens as servers reported them, and dollars.

    `usd` is what answers cost, None where the price is unknown; `possibly_billed_usd` is what
    may be billed besides, for requests that were sent and whose answer never came. Of
    `answers_without_usage` the server told no tokens: `usd` has the most that they can have cost.
    `cached_prompt_tokens` are those of `prompt_tokens` that servers had in a cache of their own.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    possibly_billed_usd: float = 0.0
    answers_without_usage: int = 0
    cached_prompt_tokens: int = 0


class Reservation:
    """One attempt that may be sent. It is ended once: settled, released or kept."""

    __slots__ = ("number", "pico_usd", "request")

    def __init__(self, request: Request, number: int = 0, pico_usd: int = 0) -> None:
        self.request = request
        self.number = number
        self.pico_usd = pico_usd


class _WaitingRequest:
    """A request that waits until there is room, or until there never will be."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.wake = anyio.Event()
        self.reservation: Reservation | None = None
        self.error: Exception | None = None
        self.wanted: tuple[int, int] | None = None  # sums that the store must allow first


class Budget:
    """Counts what a run spends, over all its invocations, and keeps it within its caps.

    `max_cost` is in dollars. `price_of` gives the price of a request's model, None where it is
    not known. Used on the event loop, except for `flush`. Without a cap nothing is written before
    a request is sent, and no request waits.
    """

    def __init__(
        self,
        *,
        price_of: Callable[[Request], Price | None] = lambda request: None,
        max_cost: float | None = None,
        max_requests: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._price_of = price_of
        self._max_requests = max_requests
        self._cap = None if max_cost is None else math.floor(max_cost * PICO)
        self._capped = max_cost is not None or max_requests is not None
        self._ledger = ledger
        self._allowance = ledger.allowance if ledger is not None and self._capped else None
        #: What earlier invocations have spent.
        self.before = Spent() if ledger is None else ledger.earlier
        self._now = Spent()
        self._sent = 0
        self._held_pico = 0
        self._in_flight = 0
        self._stretch = 1.0
        self._waiters: collections.deque[_WaitingRequest] = collections.deque()
        #: What has ended since the last line of the ledger, with the numbers of reservations.
        self._unwritten: collections.deque[tuple[int, Spent]] = collections.deque()
        self._flushing = threading.Lock()

    @property
    def totals(self) -> SpendTotals:
        """What this invocation has spent."""
        now = dataclasses.replace(self._now, requests=self._sent)
        return totals_of(now)

    # -- before a request is sent

    def try_reserve(self, request: Request) -> Reservation | None:
        """The right to send it, or None where that must be waited for. Never waits.

        Raises `ConfigError` where a cap is in dollars and the request, or the tier that it asks
        for, has no known price.
        """
        if not self._capped:
            self._sent += 1
            return Reservation(request)
        tier = request.extra.get("service_tier")
        price = self._price_of(request) if self._cap is not None else None
        if self._cap is not None and price is None:
            raise unknown_price(request.model)
        if price is not None and price.source != GIVEN and tier not in _PRICED_TIERS:
            raise ConfigError(
                f"--max-cost: what service_tier {json.dumps(tier)} costs is not known; name "
                "--input-price and --output-price, or bound the run by --max-requests"
            )
        return None if self._waiters else self._take(request)

    async def reserve(self, request: Request) -> Reservation:
        """The right to send it, first come, first served.

        Waits while requests in flight may turn out cheaper than what was set aside for them.
        Raises `BudgetError` when there is none of those left and no room, `StoppedEarly` where
        the ledger or the store cannot be written. Cancelled, it has taken nothing.
        """
        reservation = self.try_reserve(request)
        if reservation is not None:
            return reservation
        waiter = _WaitingRequest(request)
        self._waiters.append(waiter)
        self._serve()
        try:
            while waiter.reservation is None and waiter.error is None:
                await waiter.wake.wait()
                if waiter.wanted is not None and self._allowance is not None:
                    wanted, waiter.wanted, waiter.wake = waiter.wanted, None, anyio.Event()
                    await self._allowance.extend(*wanted)
                    self._serve()
        except BaseException:
            if waiter.reservation is not None:
                self.release(waiter.reservation, sent=False)
            elif waiter.error is None:
                self._waiters.remove(waiter)
                self._serve()
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.reservation is not None, "decided"
        return waiter.reservation

    # -- after it has ended

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """It was answered: count what it cost, and where usage is missing the most it can have."""
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        reported_prompt, reported_completion = prompt or 0, completion or 0
        without_usage = int(prompt is None or completion is None)
        if prompt is None or completion is None:
            most_prompt, most_completion = most_tokens(reservation.request)
            prompt = most_prompt if prompt is None else prompt
            completion = most_completion if completion is None else completion
        price, pico, cached = (
            self._price_of(reservation.request),
            0,
            usage.cached_prompt_tokens or 0,
        )
        if price is not None:
            pico = price.cost(prompt, completion, cached)
            prompt = completion = 0  # priced
        reported = reported_prompt, reported_completion, pico, 0
        self._end(reservation, Spent(1, *reported, prompt, completion, without_usage, cached))

    def release(self, reservation: Reservation, *, sent: bool = True) -> None:
        """It cost nothing: refused by the server, or never sent or received, and then it is no
        request."""
        self._sent -= not sent
        self._end(reservation, Spent(int(sent)))

    def keep(self, reservation: Reservation) -> None:
        """Its answer did not arrive and may have been billed: it counts in full."""
        prompt, completion = most_tokens(reservation.request)
        price, pico = self._price_of(reservation.request), 0
        if price is not None:
            pico = reservation.pico_usd or price.most(prompt, completion)
            prompt = completion = 0  # priced
        self._end(reservation, Spent(1, 0, 0, 0, pico, prompt, completion))

    def flush(self) -> None:
        """Write what has ended since the last time as one line of the ledger.

        For the thread that commits answers, after each group; the last one is the caller's.
        Raises `StoppedEarly` where the ledger cannot be written; the next call tries again.
        """
        if self._ledger is None or not self._unwritten:
            return
        with self._flushing:
            group = [self._unwritten.popleft() for _ in range(len(self._unwritten))]
            sums = Spent()
            for _, spent in group:
                sums.add(spent)
            try:
                self._ledger.settle([number for number, _ in group if number], sums)
            except BaseException:
                self._unwritten.extendleft(reversed(group))
                raise

    def _end(self, reservation: Reservation, spent: Spent) -> None:
        self._now.add(spent)
        if self._ledger is not None:
            self._unwritten.append((reservation.number, spent))
        if self._capped:
            self._free(reservation, spent.worst_pico_usd)

    def _free(self, reservation: Reservation, cost_pico: int) -> None:
        """Let go of what was set aside for a request that has cost this much."""
        if cost_pico > reservation.pico_usd:
            most = self._most_pico(reservation.request)
            if most:
                self._stretch = max(self._stretch, cost_pico / most)
        self._held_pico -= reservation.pico_usd
        self._in_flight -= 1
        if self._waiters:
            self._serve()

    # -- room

    def _take(self, request: Request) -> Reservation | None:
        """Set aside what a request can cost, and count it; None where that does not fit yet."""
        pico = self._set_aside(request)
        if self._why_not(pico) is not None:
            return None
        if self._allowance is not None and not self._allowance.covers(*self._sums_with(pico)):
            return None
        number = 0
        if self._ledger is not None:
            known = None if self._price_of(request) is None else pico
            number = self._ledger.reserve(*most_tokens(request), known)
        self._held_pico += pico
        self._in_flight += 1
        self._sent += 1
        return Reservation(request, number, pico)

    def _serve(self) -> None:
        """Decide about the first who waits, and the next, as far as can be decided now."""
        while self._waiters:
            waiter = self._waiters[0]
            try:
                waiter.reservation = self._take(waiter.request)
                if waiter.reservation is None:
                    pico = self._set_aside(waiter.request)
                    why = self._why_not(pico)
                    if why is None:
                        waiter.wanted = self._sums_with(pico)
                        waiter.wake.set()
                        return
                    if self._in_flight:
                        return
                    waiter.error = BudgetError(why)
            except StoppedEarly as exc:  # the ledger cannot be written
                waiter.error = exc
            self._waiters.popleft()
            waiter.wake.set()

    def _why_not(self, pico: int) -> str | None:
        """Why a request of this cost may not be sent; None where it may."""
        if self._max_requests is not None:
            sent = self.before.requests + self._sent
            if sent >= self._max_requests:
                return (
                    f"--max-requests {self._max_requests} is used up: {sent} requests were sent; "
                    "the same command with a higher --max-requests goes on"
                )
        if self._cap is None:
            return None
        billed = self.before.pico_usd + self._now.pico_usd
        possibly = self.before.possibly_pico_usd + self._now.possibly_pico_usd
        if billed + possibly + self._held_pico + pico <= self._cap:
            return None
        besides = f" and {_dollars(possibly)} possibly billed besides" if possibly else ""
        return (
            f"{_dollars(billed)} of --max-cost {_dollars(self._cap)} is spent{besides}; the next "
            f"request may cost up to {_dollars(pico)}; the same command with a higher --max-cost "
            "goes on"
        )

    def _sums_with(self, pico: int) -> tuple[int, int]:
        """Requests and picodollars that the run comes to with one request more."""
        spent = self.before.worst_pico_usd + self._now.worst_pico_usd + self._held_pico
        return self.before.requests + self._sent + 1, spent + pico

    # -- bounds of one request

    def _set_aside(self, request: Request) -> int:
        """Picodollars: its most, and more where earlier ones cost more than they could."""
        most = self._most_pico(request)
        return most if self._stretch == 1.0 else math.ceil(most * self._stretch)

    def _most_pico(self, request: Request) -> int:
        price = self._price_of(request)
        return 0 if price is None else price.most(*most_tokens(request))


def spent_so_far(path: Path) -> SpendTotals:
    """The totals of a run from its ledger: for those who only look."""
    return totals_of(read_spent(path))


def totals_of(spent: Spent) -> SpendTotals:
    """The totals that a ledger's sums come to, in dollars where those can be told."""
    unpriced = spent.unpriced_prompt_tokens or spent.unpriced_completion_tokens
    return SpendTotals(
        spent.requests,
        spent.prompt_tokens,
        spent.completion_tokens,
        None if unpriced else spent.pico_usd / PICO,
        spent.possibly_pico_usd / PICO,
        spent.without_usage,
        spent.cached_prompt_tokens,
    )


def _dollars(pico: int) -> str:
    """Dollars and cents, and as many digits more as a sum below a dollar has, up to seven."""
    usd = pico / PICO
    cents = f"{usd:,.2f}"
    digits = f"{usd:.7f}".rstrip("0")
    return f"${digits if pico < PICO and len(digits) > len(cents) else cents}"
