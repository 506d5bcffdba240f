"""Counts the cost of requests, and never lets it pass the caps.

Before a request is sent, the most that it can cost is set aside in the ledger; when it has ended,
what it really cost takes that place. So what is spent and what is set aside together never pass
the cap, whatever is answered, cancelled or killed, provided that no answer costs more than was
set aside. Where a server ignores `max_tokens`, what it reports is counted all the same, and the cap
is passed by no more than what those in flight went over.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import anyio

from claimscore.errors import BudgetError, ConfigError
from claimscore.pipeline.llm.budget.ledger import PICO, Ledger, Spent, in_doubt
from claimscore.pipeline.llm.budget.pricing import Price, asked_tier, unknown_price
from claimscore.pipeline.llm.tokens import most_tokens
from claimscore.types import Request, Usage


@dataclasses.dataclass(frozen=True, slots=True)
class Reservation:
    """One attempt that may be sent, with what is set aside for it. It is ended once: settled,
    released or kept."""

    price: Price | None
    pico_usd: int
    number: int


class Budget:
    """Counts what a run spends, over all its invocations, and keeps it within its caps.

    `max_cost` is in dollars. `price_of` gives the price of a request's model, None where it is
    not known. `ledger` has what was spent; without one it is kept in memory. Used on the event
    loop. Without a cap no request waits.
    """

    def __init__(
        self,
        price_of: Callable[[Request], Price | None] = lambda request: None,
        *,
        max_cost: float | None = None,
        max_requests: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._price_of = price_of
        self._max_requests = max_requests
        self._cap = None if max_cost is None else math.floor(max_cost * PICO)
        self.ledger = ledger or Ledger()
        self._freed: anyio.Event | None = None

    # -- before a request is sent

    def try_reserve(self, request: Request) -> Reservation | None:
        """The right to send it, or None where that must be waited for. Never waits.

        Raises `ConfigError` where a cap is in dollars and the price of the request is not known,
        `StoppedEarly` where the ledger cannot be written.
        """
        price = self._price_of(request)
        if self._cap is not None:
            self._check_known(request, price)
        pico_usd = _most(request, price)
        if self._why_not(pico_usd) is not None:
            return None
        number = self.ledger.reserve(None if price is None else pico_usd)
        return Reservation(price, pico_usd, number)

    async def reserve(self, request: Request) -> Reservation:
        """The right to send it.

        Waits while requests in flight may turn out cheaper than what was set aside for them.
        Raises `BudgetError` when there is none of those left and no room, and as `try_reserve`.
        """
        while (reservation := self.try_reserve(request)) is None:
            if not self.ledger.open:
                why = self._why_not(_most(request, self._price_of(request)))
                raise BudgetError(why or "")
            self._freed = self._freed or anyio.Event()
            await self._freed.wait()
        return reservation

    # -- after it has ended

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """It was answered: count what it cost, and without its tokens the most it can have."""
        prompt, completion, cached = usage[:3]
        spent = Spent(1, prompt or 0, completion or 0, cached_prompt_tokens=cached or 0)
        cost = None
        if reservation.price is not None:
            is_reported = prompt is not None and completion is not None
            most = reservation.pico_usd, True
            cost = reservation.price.cost(usage) if is_reported else most
        if cost is None:
            spent.unpriced = 1
        else:
            spent.pico_usd, spent.answers_at_most = cost
        self._end(reservation, spent)

    def release(self, reservation: Reservation, *, sent: bool = True) -> None:
        """It cost nothing: refused by the server, or never sent or received, and then it is no
        request."""
        self._end(reservation, Spent(int(sent)))

    def keep(self, reservation: Reservation) -> None:
        """Its answer did not arrive and may have been billed: it counts in full."""
        self._end(
            reservation, in_doubt(None if reservation.price is None else reservation.pico_usd)
        )

    def _end(self, reservation: Reservation, spent: Spent) -> None:
        self.ledger.settle(reservation.number, spent)
        if self._freed is not None:
            self._freed.set()
            self._freed = None

    # -- room

    def _check_known(self, request: Request, price: Price | None) -> None:
        if price is None:
            raise unknown_price(request.model)
        if not price.knows(tier := asked_tier(request)):
            raise unknown_price(f"{request.model} at service_tier {json.dumps(tier)}")
        if unpriced := self.ledger.earlier.unpriced + self.ledger.now.unpriced:
            raise ConfigError(
                f"--max-cost: requests of this run whose cost is not known: {unpriced:,}; nothing "
                "tells what is left, so bound the run by --max-requests"
            )

    def _why_not(self, pico_usd: int) -> str | None:
        """Why a request of this cost may not be sent; None where it may."""
        earlier, now = self.ledger.earlier, self.ledger.now
        sent = earlier.requests + now.requests + len(self.ledger.open)
        if self._max_requests is not None and sent >= self._max_requests:
            return (
                f"--max-requests {self._max_requests} is used up (sent: {sent}); "
                "the same command with a higher --max-requests goes on"
            )
        worst = earlier.worst_pico_usd + now.worst_pico_usd
        if self._cap is None or worst + self.ledger.held_pico + pico_usd <= self._cap:
            return None
        possibly = earlier.possibly_pico_usd + now.possibly_pico_usd
        besides = f", possibly {_dollars(possibly)} for requests without an answer" * bool(possibly)
        return (
            f"{_dollars(worst - possibly)} of --max-cost {_dollars(self._cap)} is spent{besides}; "
            f"the next request may cost up to {_dollars(pico_usd)}; the same command with a higher "
            "--max-cost goes on"
        )


def _most(request: Request, price: Price | None) -> int:
    """Picodollars that it can cost."""
    return 0 if price is None else price.most(*most_tokens(request))


def _dollars(pico: int) -> str:
    """Dollars and cents, and as many digits more as a sum below a dollar has, up to seven."""
    cents, digits = f"{pico / PICO:,.2f}", f"{pico / PICO:.7f}".rstrip("0")
    return f"${digits if pico < PICO and len(digits) > len(cents) else cents}"
