"""What requests cost, and never more than was allowed.

Before a request is sent, the most that it can cost is set aside; when it has ended, what it
really cost takes that place. So what is spent and what is set aside together never pass the
cap, whatever is answered, cancelled or killed, provided that no answer costs more than was
set aside. A server that ignores `max_tokens` can break that: what it reports is counted all
the same, the later requests are taken to cost as much more, and the cap is passed by no more
than what those in flight went over.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

import anyio

from claimscore.errors import BudgetError, StoppedEarly
from claimscore.pipeline.llm.account import Account, Ended, SpendTotals, spent_so_far
from claimscore.pipeline.llm.ahead import ASK_AGAIN_S
from claimscore.pipeline.llm.billing import Billing, Reservation
from claimscore.pipeline.llm.ledger import Ledger
from claimscore.pipeline.llm.prices import Price
from claimscore.types import Request, Usage

__all__ = [
    "SPEND_FILE",
    "Reservation",
    "SpendTotals",
    "Spending",
    "spent_so_far",
]

#: The name of a run's ledger in its state folder.
SPEND_FILE = "spend.jsonl"


class _Waiter:
    """Someone who waits until there is room, or until there never will be."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.decided = anyio.Event()
        self.reservation: Reservation | None = None
        self.error: Exception | None = None


class Spending:
    """Counts what a run spends, over all its invocations, and keeps it within its caps.

    `others` are the prices of models that requests name besides the one of `price`. Used on the
    event loop, except for `flush`. Without a cap nothing is written before a
    request is sent, and nobody waits.
    """

    def __init__(
        self,
        *,
        price: Price | None,
        others: Mapping[str, Price] | None = None,
        max_cost: float | None = None,
        max_requests: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._billing = Billing(price, others)
        self._account = Account(
            price=price, max_cost=max_cost, max_requests=max_requests, ledger=ledger
        )
        self._waiters: collections.deque[_Waiter] = collections.deque()

    @property
    def earlier(self) -> SpendTotals:
        """What earlier invocations have spent."""
        return self._account.earlier

    @property
    def totals(self) -> SpendTotals:
        """What this one has."""
        return self._account.totals

    # -- before a request is sent

    def try_reserve(self, request: Request) -> Reservation | None:
        """The right to send it, or None where that must be waited for. Never waits."""
        if not self._account.capped:
            self._account.totals.requests += 1
            return Reservation(request)
        if self._waiters:
            return None
        return self._take_if_it_fits(request)

    async def reserve(self, request: Request) -> Reservation:
        """The right to send it, first come, first served.

        Waits while requests in flight may turn out cheaper than what was set aside for them.
        Raises `BudgetError` when there is none of those left and no room. Cancelled, it has
        taken nothing.
        """
        reservation = self.try_reserve(request)
        if reservation is not None:
            return reservation
        waiter = _Waiter(request)
        self._waiters.append(waiter)
        self._serve()
        try:
            await self._decided(waiter)
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

    async def _decided(self, waiter: _Waiter) -> None:
        """Where more must be allowed elsewhere, nobody calls when it is: then one looks."""
        while self._account.is_bound and not waiter.decided.is_set():
            with anyio.move_on_after(ASK_AGAIN_S):
                await waiter.decided.wait()
            self._serve()
        await waiter.decided.wait()

    # -- after it has ended

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """It was answered: count what it cost, and where usage is missing the most it can have."""
        self._end(reservation, self._billing.answered(reservation, usage))

    def release(self, reservation: Reservation, *, sent: bool = True) -> None:
        """It cost nothing: refused by the server, or never sent, and then it is no request."""
        self._end(reservation, Ended(reservation.number, int(sent)))

    def keep(self, reservation: Reservation) -> None:
        """Nobody knows whether it was answered and billed: it counts as if it was, in full."""
        self._end(reservation, self._billing.unanswered(reservation))

    def flush(self) -> None:
        """Write what has ended since the last time as one line of the ledger.

        For the thread that commits answers, after each group; the last one is the caller's.
        """
        self._account.flush()

    def _end(self, reservation: Reservation, ended: Ended) -> None:
        self._account.count(ended)
        if self._account.capped:
            most = self._billing.most(reservation.request)
            self._account.free(reservation.pico_usd, ended, most)
            if self._waiters:
                self._serve()

    # -- room

    def _take_if_it_fits(self, request: Request) -> Reservation | None:
        hold = self._account.take(self._billing.most(request))
        return None if hold is None else Reservation(request, *hold)

    def _serve(self) -> None:
        """Decide about the first who waits, and the next, as far as can be decided now."""
        while self._waiters:
            waiter = self._waiters[0]
            try:
                waiter.reservation = self._take_if_it_fits(waiter.request)
                if waiter.reservation is None:
                    if self._account.in_flight or self._account.is_short:
                        return
                    waiter.error = self._no_room(waiter.request)
            except StoppedEarly as exc:  # the ledger cannot be written
                waiter.error = exc
            self._waiters.popleft()
            waiter.decided.set()

    def _no_room(self, request: Request) -> BudgetError:
        pico = self._account.stretched(self._billing.most(request))
        return BudgetError(self._account.why_not(pico) or "the budget is used up")
