"""One of several servers: a `Sender` that is asked only for what it can send at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from claimscore.pipeline.llm.limits import Permit
from claimscore.pipeline.llm.money import Reservation
from claimscore.pipeline.llm.providers.base import Provider, base_urls
from claimscore.pipeline.llm.sender import Held, Sender, Tries
from claimscore.pipeline.llm.stats import ServerStats
from claimscore.types import Completion, Request

T = TypeVar("T")

#: About so many answers are remembered of how long a server takes.
_MEMORY = 30


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Leave to send one request to a server, which holds a slot and a permit for it."""

    server: Server
    permit: Permit
    probe: bool

    def give_back(self) -> None:
        """It will not be used."""
        self.server.vacate(self, unused=True)


class Server(Sender):
    """One of several servers, which is asked only for what it can send at once."""

    def __init__(self, provider: Provider, *, max_concurrency: int, **parts: Any) -> None:
        super().__init__(provider, max_concurrency=max_concurrency, **parts)
        self.address = "".join(base_urls(provider)[:1]) or provider.namespace
        self.turn = 0.0
        self._most = max_concurrency
        self._answer_s: float | None = None

    @property
    def held(self) -> int:
        """Slots that are taken."""
        return self._most - self._slots.value

    @property
    def has_room(self) -> bool:
        return self._slots.value > 0

    @property
    def is_to_be_probed(self) -> bool:
        return self.is_down and self._outage.probe_in_s == 0

    @property
    def speed(self) -> float | None:
        """Answers a second of one slot; None before there was one."""
        return None if self._answer_s is None else 1 / max(self._answer_s, 1e-6)

    def wait_s(self, request: Request) -> float:
        """Seconds until the request could be sent, if nothing comes back before."""
        if not self.has_room:
            return math.inf
        wait_s = self._outage.probe_in_s if self.is_down else 0.0
        return max(wait_s, self._limiter.wait_s(self._estimate.expect(request)))

    def take(self, request: Request) -> Place | None:
        """A place for the request if it can be sent at once; as the probe where that is due."""
        probe = self.is_to_be_probed
        if not self.has_room or (self.is_down and not probe):
            return None
        permit = self._limiter.try_reserve(self._estimate.expect(request))
        if permit is None:
            return None
        self._slots.acquire_nowait()
        if probe:
            self._outage.begin_probe()
        return Place(self, permit, probe)

    def vacate(self, place: Place, *, unused: bool = False) -> None:
        """The slot is free again; of an unused place the limits hear too."""
        if unused:
            self._limiter.failed(place.permit, counted=False)
        if place.probe:
            self._outage.lost_probe()
        self._slots.release()

    async def send_at(
        self,
        place: Place,
        request: Request,
        key: str,
        tries: Tries,
        keep: Callable[[Completion], Awaitable[T]],
    ) -> T:
        """One attempt from a place that was taken here; see `Sender.send`."""
        try:
            reservation = await self._reservation(request, place.permit)
            held = Held(place.permit, reservation, place.probe)
            return await self._send(request, key, tries, keep, held)
        finally:
            self.vacate(place)

    async def _attempt(
        self, request: Request, permit: Permit, reservation: Reservation
    ) -> Completion:
        began = anyio.current_time()
        completion = await super()._attempt(request, permit, reservation)
        answer_s = anyio.current_time() - began
        known = answer_s if self._answer_s is None else self._answer_s
        self._answer_s = known + (answer_s - known) / _MEMORY
        return completion

    def stats(self) -> ServerStats:
        """Its numbers of this moment."""
        why = self.why_down if self.is_down else ""
        return ServerStats(self.address, self.sent, self.answered, self.held, self.down_s, why)
