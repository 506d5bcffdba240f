"""What was spent, what is set aside, and whether more fits: amounts only, no requests.

One account is kept in one process. Those who send requests may be elsewhere: what is set aside
for them goes by its number.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import threading
from pathlib import Path
from typing import NamedTuple

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.ahead import Ahead, Sums
from claimscore.pipeline.llm.ledger import Ledger, Spent, read_spent
from claimscore.pipeline.llm.prices import PICO, Price


@dataclasses.dataclass(slots=True)
class SpendTotals:
    """What was asked for and used; tokens as servers reported them.

    `usd` is what answers cost, None where the price is unknown; `possibly_billed_usd` is what
    may be billed besides, for requests that were sent and whose answer never came.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    possibly_billed_usd: float = 0.0

    def __add__(self, other: SpendTotals) -> SpendTotals:
        known = self.usd is not None and other.usd is not None
        return SpendTotals(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            (self.usd or 0.0) + (other.usd or 0.0) if known else None,
            self.possibly_billed_usd + other.possibly_billed_usd,
        )


class Most(NamedTuple):
    """The most that a request can use, and cost by its price: 0 where that is not known."""

    prompt_tokens: int
    completion_tokens: int
    pico_usd: int


class Hold(NamedTuple):
    """What is set aside for a request: its number in the ledger, 0 where there is none."""

    number: int
    pico_usd: int


class Ended(NamedTuple):
    """What became of a request that was set aside as `number`; the rest as in `Spent`."""

    number: int
    requests: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pico_usd: int = 0
    possibly_pico_usd: int = 0
    unpriced_prompt_tokens: int = 0
    unpriced_completion_tokens: int = 0

    @property
    def worst_pico(self) -> int:
        """What it cost, or may have."""
        return self.pico_usd + self.possibly_pico_usd


class Account:
    """The sums of a run over all its invocations, and its caps.

    Used on the event loop, except for `flush`. Without a cap nothing is set aside. `price` is
    that of tokens whose price was not known when they were used.
    """

    def __init__(
        self,
        *,
        price: Price | None,
        max_cost: float | None = None,
        max_requests: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if max_cost is not None and price is None:
            raise ConfigError(
                "--max-cost: what this model costs at this server is not known; name "
                "--input-price and --output-price (dollars a million tokens), or bound the run "
                "by --max-requests"
            )
        self.totals = SpendTotals(usd=None if price is None else 0.0)
        self.capped = max_cost is not None or max_requests is not None
        self.in_flight = 0
        self._price = price
        self._ledger = ledger
        self._max_requests = max_requests
        self._cap = None if max_cost is None else math.floor(max_cost * PICO)
        self._earlier = Spent() if ledger is None else ledger.earlier
        self._pico = 0
        self._possibly_pico = 0
        self._held_pico = 0
        self._stretch = 1.0
        self._ahead = None if ledger is None or not self.capped else Ahead(ledger.path)
        #: Whether the last request was refused only until more is allowed.
        self.is_short = False
        self._ended: collections.deque[Ended] = collections.deque()
        self._flushing = threading.Lock()
        self._look_back()

    def _look_back(self) -> None:
        """What earlier invocations and lost members come to."""
        self.earlier = totals_of(self._earlier, self._price)
        self._earlier_pico = pico_of(self._earlier, self._price)

    # -- before

    def take(self, most: Most) -> Hold | None:
        """Set aside what a request can cost, and count it; None where that does not fit, or must
        be allowed first (`is_short`)."""
        pico = self.stretched(most)
        self.is_short = False
        if self.why_not(pico) is not None:
            return None
        if self._ahead is not None and not self._ahead.covers(self._sums_with(pico)):
            self.is_short = True
            return None
        number = 0
        if self._ledger is not None:
            known = None if self._price is None else pico
            number = self._ledger.reserve(most.prompt_tokens, most.completion_tokens, known)
        self._hold(pico, +1)
        return Hold(number, pico)

    @property
    def is_bound(self) -> bool:
        """Whether more must be allowed from time to time (`ahead`)."""
        return self._ahead is not None and self._ahead.is_bound

    def _sums_with(self, pico: int) -> Sums:
        """What the run comes to with one request more."""
        earlier = self._earlier
        spent = earlier.pico_usd + self._pico
        possibly = earlier.possibly_pico_usd + self._possibly_pico + self._held_pico
        return Sums(earlier.requests + self.totals.requests + 1, spent + possibly + pico)

    def stretched(self, most: Most) -> int:
        """What is set aside for it: more where earlier ones cost more than they could."""
        if self._stretch == 1.0:
            return most.pico_usd
        return math.ceil(most.pico_usd * self._stretch)

    def why_not(self, pico: int) -> str | None:
        """Why a request of this cost may not be sent; None where it may."""
        if self._max_requests is not None:
            sent = self.earlier.requests + self.totals.requests
            if sent >= self._max_requests:
                return (
                    f"--max-requests {self._max_requests} is used up: {sent} requests were sent; "
                    "with a higher --max-requests the run goes on"
                )
        if self._cap is None:
            return None
        billed = self._earlier_pico + self._pico
        possibly = self._earlier.possibly_pico_usd + self._possibly_pico
        if billed + possibly + self._held_pico + pico <= self._cap:
            return None
        besides = f" and {_dollars(possibly)} possibly billed besides" if possibly else ""
        return (
            f"{_dollars(billed)} of --max-cost {_dollars(self._cap)} is spent{besides}; the next "
            f"request may cost up to {_dollars(pico)}; with a higher --max-cost the run goes on"
        )

    # -- after

    def count(self, ended: Ended) -> None:
        """Add what a request came to; it was counted as one when it was sent."""
        totals = self.totals
        totals.prompt_tokens += ended.prompt_tokens
        totals.completion_tokens += ended.completion_tokens
        if not ended.requests:
            totals.requests -= 1
        if ended.pico_usd and self._price is not None:
            self._pico += ended.pico_usd
            totals.usd = self._pico / PICO
        if ended.possibly_pico_usd:
            self._possibly_pico += ended.possibly_pico_usd
            totals.possibly_billed_usd = self._possibly_pico / PICO
        if self._ledger is not None:
            self._ended.append(ended)

    def free(self, held_pico: int, ended: Ended, most: Most) -> None:
        """Let go of what was set aside for a request that has ended."""
        if ended.worst_pico > held_pico and most.pico_usd:
            self._stretch = max(self._stretch, ended.worst_pico / most.pico_usd)
        self._held_pico -= held_pico
        self.in_flight -= 1

    def flush(self) -> None:
        """Write what has ended since the last time as one line of the ledger.

        For the thread that commits answers, after each group; the last one is the caller's.
        """
        if self._ledger is None or not self._ended:
            return
        with self._flushing:
            group = [self._ended.popleft() for _ in range(len(self._ended))]
            numbers, *counts = zip(*group, strict=True)
            try:
                self._ledger.settle(filter(None, numbers), Spent(*map(sum, counts)))
            except BaseException:
                self._ended.extendleft(reversed(group))
                raise

    # -- members that come and go

    def lose(self, pico: int, spent: Spent) -> None:
        """Who sent it is gone: it counts as possibly billed, as it stands in the ledger."""
        self._hold(pico, -1)
        self._earlier = self._earlier.plus(spent)
        self._look_back()

    def find(self, pico: int, spent: Spent) -> None:
        """Who sent it is there after all: it is set aside again."""
        self._earlier = self._earlier.plus(spent, -1)
        self._look_back()
        self._hold(pico, +1)

    def _hold(self, pico: int, sign: int) -> None:
        self._held_pico += sign * pico
        self.in_flight += sign
        self.totals.requests += sign


def totals_of(spent: Spent, price: Price | None) -> SpendTotals:
    """What a ledger says, in dollars where those can be told."""
    unpriced = spent.unpriced_prompt_tokens or spent.unpriced_completion_tokens
    known = price is not None or (spent.requests and not unpriced)
    return SpendTotals(
        spent.requests,
        spent.prompt_tokens,
        spent.completion_tokens,
        pico_of(spent, price) / PICO if known else None,
        spent.possibly_pico_usd / PICO,
    )


def pico_of(spent: Spent, price: Price | None) -> int:
    """What was spent; tokens that had no price then have the one that is known now."""
    unpriced = (spent.unpriced_prompt_tokens, spent.unpriced_completion_tokens)
    return spent.pico_usd + (price.most(*unpriced) if price is not None and any(unpriced) else 0)


def spent_so_far(path: Path, price: Price | None = None) -> SpendTotals:
    """The totals of a run from its ledger: for those who only look."""
    return totals_of(read_spent(path), price)


def _dollars(pico: int) -> str:
    """Dollars and cents, and as many digits more as a sum below a dollar has, up to seven."""
    usd = pico / PICO
    cents = f"{usd:,.2f}"
    digits = f"{usd:.7f}".rstrip("0")
    return f"${digits if pico < PICO and len(digits) > len(cents) else cents}"
