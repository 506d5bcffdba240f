"""The parts of an engine that it shares: answers, limits and money, each through its client."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from claimscore.cache.entry import Entry, decode_entry, encode_entry
from claimscore.errors import BudgetError
from claimscore.pipeline.llm.account import Account, Ended, SpendTotals
from claimscore.pipeline.llm.answers import Turn
from claimscore.pipeline.llm.billing import Billing, Reservation
from claimscore.pipeline.llm.limits.cell_rate import Kind
from claimscore.pipeline.llm.limits.leases import LEASE_S
from claimscore.pipeline.llm.limits.pace import BURST_S, Pace
from claimscore.pipeline.llm.limits.shared import Learnt
from claimscore.pipeline.llm.prices import Price
from claimscore.pipeline.llm.services.client import Client
from claimscore.types import JSON, Request, Usage

#: Units that were leased are given back when they were not used so long after they might have
#: been, at the latest, counted from the moment when they were asked for.
VALID_S = 0.5

#: However long the letter took, they may be used for so long; a window of a minute can then hold
#: more by what letters took beyond `VALID_S`.
LEAST_VALID_S = 0.1

#: A lease that was asked for is looked for so often, at first and later.
_LOOK_S = (0.004, 0.05)

#: Money that may come free is asked for so often.
_ASK_AGAIN_S = 0.05


class SharedAnswers:
    """The services' cache and claims; `Answers` of an engine."""

    ahead = 2

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def read_only(self) -> bool:
        return self._client.read_only

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        with self._client.stop.waiting():
            found = await self._client.ask("quick", ("get", list(keys)))
        entries = {key: decode_entry(key, data) for key, data in found.items()}
        return {key: entry for key, entry in entries.items() if entry is not None}

    async def begin(self, key: str) -> Entry | Turn:
        found = await self._begin(key)
        if isinstance(found, bytes):
            entry = decode_entry(key, found)
            if entry is not None:
                return entry
            self._client.tell("quick", "damaged", key)
            found = await self._begin(key, True)
        return "mine" if found else "elsewhere"

    async def _begin(self, key: str, *anew: bool) -> bytes | bool:
        def late(found: Any) -> None:
            if found is True:
                self._client.tell("quick", "end", key)

        found: bytes | bool
        with self._client.stop.waiting():
            found = await self._client.ask("quick", ("begin", key, *anew), late)
        if found is True:
            self._client.keys.add(key)
        return found

    async def keep(self, key: str, entry: Entry) -> None:
        await self._client.ask("keep", ("put", key, encode_entry(key, entry)))
        self._client.keys.discard(key)  # the end of the claim as well

    def end(self, key: str) -> None:
        if key in self._client.keys:
            self._client.keys.discard(key)
            self._client.tell("quick", "end", key)

    async def run(self) -> None:
        """The client writes."""

    def close(self) -> None:
        """The client is closed later."""


class SharedLeases:
    """Units of one kind, leased from the services a few at a time; see `leases.Leases`.

    While a lease is asked for, time goes by that the next one makes up for: a limit's unused
    time may be caught up for longer than a letter takes.
    """

    slack_s = LEASE_S + VALID_S

    def __init__(self, client: Client, scope: str, kind: Kind) -> None:
        self._client = client
        self._scope = scope
        self._kind: Kind = kind
        self._held = 0.0
        self._usable_at = 0.0
        self._expires_at = 0.0
        self._per_minute = 0.0
        self._asked_at: float | None = None

    def wait_s(self, units: float, pace: Pace, now: float) -> float:
        """How long until so many units may be used at this pace, as far as is known."""
        if self._asked_at is not None:
            return _LOOK_S[now > self._asked_at + _LOOK_S[1]]
        if now > self._expires_at:
            self.give_back()
        if self._held >= units:
            return max(0.0, self._usable_at - now)
        missing = max(units - self._held, 1.0, LEASE_S * pace.rate)
        self._per_minute = 60 * pace.rate
        depth_s = max(BURST_S, pace.level / pace.rate)
        self._asked_at = now
        op = ("lease", self._scope, self._kind, missing, self._per_minute, depth_s)
        self._client.hear("quick", op, lambda wait_s: self._granted(missing, wait_s))
        return _LOOK_S[0]

    def _granted(self, units: float, wait_s: float) -> None:
        assert self._asked_at is not None, "it was asked for"
        self._held += units
        self._usable_at = anyio.current_time() + wait_s
        self._expires_at = max(self._asked_at + wait_s + VALID_S, self._usable_at + LEAST_VALID_S)
        self._asked_at = None

    def take(self, units: float) -> None:
        """Use units (or, negative, hold more)."""
        self._held -= units

    def give_back(self) -> None:
        """Return what is held."""
        if self._held > 0:
            units, self._held = self._held, 0.0
            self._client.tell(
                "quick", "give_back", self._scope, self._kind, units, self._per_minute
            )


class SharedLimits:
    """The limits of one server and key, kept by the services for all engines."""

    def __init__(self, client: Client, scope: str, learnt: Learnt | None) -> None:
        self._client = client
        self._scope = scope
        self._learnt = learnt

    @classmethod
    async def open(cls, client: Client, scope: str) -> SharedLimits:
        """With what any engine has learnt of them."""
        found = await client.ask("quick", ("recall", scope))
        return cls(client, scope, None if found is None else Learnt(**found))

    def leases(self, kind: Kind) -> SharedLeases:
        """Those of one kind."""
        return SharedLeases(self._client, self._scope, kind)

    def recall(self) -> Learnt | None:
        """What any engine had last learnt when this was opened."""
        return self._learnt

    def remember(self, learnt: Learnt) -> None:
        """Let other engines, and later ones, know."""
        self._client.tell("quick", "remember", self._scope, dataclasses.asdict(learnt))

    async def recall_fact(self, name: str) -> JSON | None:
        """What was last remembered of the server under this name."""
        found: JSON | None = await self._client.ask("quick", ("recall_fact", self._scope, name))
        return found

    def remember_fact(self, name: str, value: JSON) -> None:
        """Keep anything else about the server."""
        self._client.tell("quick", "remember_fact", self._scope, name, value)


class SharedSpending:
    """Money of which the services keep the account; `Budgeted` of an engine.

    With a cap each request is granted by the services before it is sent; without one they only
    hear what it came to.
    """

    def __init__(
        self, client: Client, price: Price | None, others: Mapping[str, Price] | None = None
    ) -> None:
        self._client = client
        self._billing = Billing(price, others)
        self._own = Account(price=price)

    @property
    def totals(self) -> SpendTotals:
        return self._own.totals

    def try_reserve(self, request: Request) -> Reservation | None:
        if self._client.capped:
            return None
        self._own.totals.requests += 1
        return Reservation(request)

    async def reserve(self, request: Request) -> Reservation:
        """Waits while requests in flight anywhere may turn out cheaper than was set aside."""
        most = self._billing.most(request)
        while True:
            found = await self._client.ask("quick", ("reserve", *most), self._unused)
            if isinstance(found, str):
                raise BudgetError(found)
            if found:
                number, pico = found
                self._client.grants[number] = most
                self._own.totals.requests += 1
                return Reservation(request, number, pico)
            await anyio.sleep(_ASK_AGAIN_S)

    def _unused(self, found: Any) -> None:
        """It was granted when nobody wanted it any more."""
        if type(found) is tuple and type(found[0]) is int:
            self._client.tell("keep", "spent", *Ended(found[0], 0), 0)

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        self._end(reservation, self._billing.answered(reservation, usage))

    def release(self, reservation: Reservation, *, sent: bool = True) -> None:
        self._end(reservation, Ended(reservation.number, int(sent)))

    def keep(self, reservation: Reservation) -> None:
        self._end(reservation, self._billing.unanswered(reservation))

    def flush(self) -> None:
        """The services write what has ended with the answers."""

    def _end(self, reservation: Reservation, ended: Ended) -> None:
        self._own.count(ended)
        most = self._client.grants.pop(reservation.number, None)
        self._client.tell("keep", "spent", *ended, 0 if most is None else most.pico_usd)
