"""Several servers of one model as one: each request goes to one that can take it now.

Every server keeps its own limits, slots and outage, as a `Sender` does; here is decided which of
them is asked. A request is bound to none before it can be sent: it waits in one queue for all,
so that a server that is limited, full or down holds nothing back that another could answer.
Where several can take it, the one with the fewest in flight gets it: who answers faster is sooner
there again, so the shares follow the speed without that it is known. Between equals the answers
a second of one slot decide, as measured.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from claimscore.errors import TransientError
from claimscore.pipeline.llm.inflight import InFlight
from claimscore.pipeline.llm.limits import Limiter, LimiterState
from claimscore.pipeline.llm.outage import Outage
from claimscore.pipeline.llm.providers.base import Provider, base_urls
from claimscore.pipeline.llm.sender import OnEvent, Tries
from claimscore.pipeline.llm.servers.server import Place, Server
from claimscore.pipeline.llm.stats import ServerStats
from claimscore.pipeline.llm.stopping import Halted, Stop
from claimscore.types import Completion, Request

T = TypeVar("T")

#: Nobody is woken to look again sooner than this.
_LEAST_NAP_S = 0.001


class _Waiter:
    """A request that waits for a place, at any server but those it has just failed at."""

    def __init__(self, request: Request, avoid: Set[Server]) -> None:
        self.request = request
        self.avoid = avoid
        self.place: Place | None = None
        self.placed = anyio.Event()


class Servers:
    """Sends requests to whichever of several servers can take them; else like a `Sender`.

    A request that failed at one server is tried at each of the others that is up before it counts
    as an attempt that came to nothing. `on_event` hears whose event it is (`server`), and of
    an outage only when all servers are down.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        limiters: Sequence[Limiter],
        *,
        max_outage_s: float,
        stop: Stop,
        on_event: OnEvent,
        **parts: Any,
    ) -> None:
        self.in_flight = InFlight()
        self._stop = stop
        self._on_event = on_event
        self._waiting: dict[_Waiter, None] = {}  # in the order of asking
        self._alarm = anyio.Event()
        self._alarm_at = math.inf
        self._all_down_since: float | None = None
        group: list[Outage] = []
        self._servers = tuple(
            Server(
                provider,
                limiter=limiter,
                outage=Outage(max_outage_s, group=group),
                stop=stop,
                in_flight=self.in_flight,
                on_event=self._hear_of("".join(base_urls(provider)[:1])),
                **parts,
            )
            for provider, limiter in zip(providers, limiters, strict=True)
        )

    # -- how they are

    @property
    def is_down(self) -> bool:
        """Whether nobody is there."""
        return all(server.is_down for server in self._servers)

    @property
    def down_s(self) -> float:
        """For how long all have been down."""
        return min(server.down_s for server in self._servers)

    @property
    def why_down(self) -> str:
        """The last word of the one that went down last."""
        return min(self._servers, key=lambda server: server.down_s).why_down

    def limits(self) -> LimiterState:
        """What holds requests back at all servers that are up: the sum of their limits."""
        up = [server for server in self._servers if not server.is_down] or self._servers
        states = [server.limits() for server in up]
        first = min(states, key=lambda state: state.paused_until)
        rpm, tpm = _sum([state.rpm for state in states]), _sum([state.tpm for state in states])
        told = next((state for state in states if state.source != "none"), first)
        if rpm is None and tpm is None:
            return LimiterState(None, None, "none", first.paused_until, first.why)
        return LimiterState(rpm, tpm, told.source, first.paused_until, first.why)

    def servers(self) -> list[ServerStats]:
        """Each one's numbers of this moment."""
        return [server.stats() for server in self._servers]

    # -- sending

    def start(self, background: TaskGroup) -> None:
        """Take the tasks in which what goes on beside the requests may run."""
        for server in self._servers:
            server.start(background)
        background.start_soon(self._keep_time)

    async def send(
        self, request: Request, key: str, tries: Tries, keep: Callable[[Completion], Awaitable[T]]
    ) -> T:
        """One attempt at one server after the other, until one answers: what `keep` made of it.

        Raises what `Sender.send` does; `TransientError` when nobody is left who is up and has not
        been asked.
        """
        failed: set[Server] = set()
        while True:
            place = await self._place(request, failed)
            try:
                return await place.server.send_at(place, request, key, tries, keep)
            except TransientError:
                failed.add(place.server)
                if all(server.is_down for server in self._servers if server not in failed):
                    raise
            finally:
                self._serve()

    async def _place(self, request: Request, avoid: Set[Server]) -> Place:
        """A place at a server that was up, or is to be probed, a moment ago."""
        while True:
            place = None if self._waiting else self._best(request, avoid)
            if place is None:
                place = await self._wait(_Waiter(request, avoid))
            if self._stop.reason is not None:
                place.give_back()
                raise Halted
            if place.probe or not place.server.is_down:
                return place
            place.give_back()  # it went down meanwhile

    async def _wait(self, waiter: _Waiter) -> Place:
        self._waiting[waiter] = None
        try:
            self._serve()
            with self._stop.waiting():
                await waiter.placed.wait()
        except BaseException:
            self._waiting.pop(waiter, None)
            if waiter.place is not None:
                waiter.place.give_back()
            self._serve()
            raise
        assert waiter.place is not None
        return waiter.place

    def _serve(self) -> None:
        """Give those who wait what there is now, in their order, and see when to look again."""
        soonest_s, placed = math.inf, []
        for waiter in self._waiting:
            waiter.place = self._best(waiter.request, waiter.avoid)
            if waiter.place is not None:
                placed.append(waiter)
                continue
            choice = self._choice(waiter.avoid)
            wait_s = min(server.wait_s(waiter.request) for server in choice)
            soonest_s = min(soonest_s, max(wait_s, _LEAST_NAP_S))
            if not waiter.avoid:
                break  # nothing is left for those behind it either
        for waiter in placed:
            del self._waiting[waiter]
            waiter.placed.set()
        self._look_again_in(soonest_s)

    def _best(self, request: Request, avoid: Set[Server]) -> Place | None:
        """A place at the server that should have it, or at the next best."""
        choice = self._choice(avoid)
        probes = [server for server in choice if server.is_to_be_probed]
        up = [server for server in choice if server.has_room and not server.is_down]
        for server in (*probes, *_ranked(up)):
            place = server.take(request)
            if place is not None:
                return place
        return None

    def _choice(self, avoid: Set[Server]) -> Sequence[Server]:
        """Those to be asked; all of them where only some that are down would be left."""
        others = [server for server in self._servers if server not in avoid]
        return self._servers if all(server.is_down for server in others) else others

    # -- time

    def _look_again_in(self, seconds: float) -> None:
        before, self._alarm_at = self._alarm_at, anyio.current_time() + seconds
        if self._alarm_at < before - _LEAST_NAP_S:
            self._alarm.set()

    async def _keep_time(self) -> None:
        """Look again when a limit lets more through, or a probe is due."""
        with contextlib.suppress(Halted):
            while True:
                self._alarm = anyio.Event()
                with self._stop.waiting():
                    with anyio.move_on_after(self._alarm_at - anyio.current_time()) as nap:
                        await self._alarm.wait()
                if nap.cancelled_caught:
                    self._alarm_at = math.inf
                    self._serve()

    # -- events

    def _hear_of(self, address: str) -> OnEvent:
        """What is told of one server: it is left out and comes back; only all of them are an
        outage."""

        def hear(kind: str, **fields: Any) -> None:
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

        return hear


def _ranked(servers: list[Server]) -> list[Server]:
    """The fewest in flight first; equals take turns, in proportion to their speed."""
    servers.sort(key=lambda server: server.held)
    equals = [server for server in servers if server.held == servers[0].held]
    if len(equals) > 1:
        speeds = [server.speed for server in equals]
        fastest = max((speed for speed in speeds if speed is not None), default=1.0)
        weights = [fastest if speed is None else speed for speed in speeds]
        for server, weight in zip(equals, weights, strict=True):
            server.turn += weight / sum(weights)
        first = max(equals, key=lambda server: server.turn)
        first.turn -= 1
        servers.remove(first)
        servers.insert(0, first)
    return servers


def _sum(figures: Sequence[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None
