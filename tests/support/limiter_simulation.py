"""A server with limits and a client with workers, as discrete events on a virtual clock.

The client is the engine as the limits see it: a number of slots, each holding a request from
the moment it waits for the limits until it is answered; refused requests come again after
what the server asked for and some jitter, without a slot. A run of thousands of requests
takes a fraction of a second and is the same every time.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from claimscore.pipeline.llm.ratelimit.bucket import Permit
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.types import LimitState, RateLimits


class World:
    """Virtual time: what is to happen, in its order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._n_events = 0

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, what: Callable[[], object]) -> None:
        """Let something happen at a time."""
        self._n_events += 1
        heapq.heappush(self._events, (when, self._n_events, what))

    def run(self, until: float = 1e9) -> None:
        """Let everything happen up to a time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()


class ServerBucket:
    """A server's token bucket."""

    def __init__(self, per_minute: float, depth_s: float) -> None:
        self.depth_s = depth_s
        self.per_minute = per_minute
        self.level = self.depth
        self._at = 0.0

    @property
    def rate(self) -> float:
        return self.per_minute / 60

    @property
    def depth(self) -> float:
        return max(1.0, self.rate * self.depth_s)

    def earn(self, now: float) -> None:
        self.level = min(self.depth, self.level + self.rate * (now - self._at))
        self._at = now

    def change(self, per_minute: float, now: float) -> None:
        """Another limit from now on."""
        self.earn(now)
        self.per_minute = per_minute
        self.level = min(self.level, self.depth)

    def state(self, now: float) -> LimitState:
        """What headers say of it."""
        self.earn(now)
        left = float(int(max(0.0, self.level)))
        return LimitState(self.per_minute, left, (self.depth - self.level) / self.rate)


class Reply(NamedTuple):
    """What a server says to a request."""

    ok: bool
    latency_s: float
    retry_after_s: float | None = None


@dataclasses.dataclass
class SimulatedServer:
    """Enforces requests and tokens a minute, and refuses at random if told to."""

    rpm: float | None = None
    tpm: float | None = None
    depth_s: float = 1.0
    latency_s: float = 0.05
    has_headers: bool = False
    has_retry_after: bool = True
    isolated: float = 0.0
    isolated_retry_after_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.requests = ServerBucket(self.rpm, self.depth_s) if self.rpm else None
        self.tokens = ServerBucket(self.tpm, self.depth_s) if self.tpm else None
        self.admitted: list[float] = []
        self.refused: list[float] = []

    def arrive(self, now: float, tokens: float) -> Reply:
        """Judge a request that arrives now."""
        if self._random.random() < self.isolated:
            return self._refuse(now, self.isolated_retry_after_s)
        needs = self._needs(now, tokens)
        missing = [
            (need - bucket.level) / bucket.rate
            for bucket, need in needs
            if bucket.level < min(need, bucket.depth)
        ]
        if missing:
            return self._refuse(now, max(missing) if self.has_retry_after else None)
        for bucket, need in needs:
            bucket.level -= need
        self.admitted.append(now)
        latency_s = self.latency_s * self._random.uniform(0.9, 1.1)
        return Reply(True, latency_s)

    def _needs(self, now: float, tokens: float) -> list[tuple[ServerBucket, float]]:
        buckets = ((self.requests, 1.0), (self.tokens, tokens))
        needs = [(bucket, need) for bucket, need in buckets if bucket is not None]
        for bucket, _ in needs:
            bucket.earn(now)
        return needs

    def _refuse(self, now: float, retry_after_s: float | None) -> Reply:
        self.refused.append(now)
        return Reply(False, min(self.latency_s, 0.02), retry_after_s)

    def limits(self, now: float) -> RateLimits | None:
        """What headers say when an answer leaves."""
        if not self.has_headers:
            return None
        return RateLimits(
            self.requests.state(now) if self.requests else None,
            self.tokens.state(now) if self.tokens else None,
        )

    def rate(self, begin: float, end: float) -> float:
        """Admitted requests a second between two times."""
        return sum(begin <= t < end for t in self.admitted) / (end - begin)


@dataclasses.dataclass
class _Row:
    tokens: int
    n_refused: int = 0


class Client:
    """Asks a server `n_requests` things through a limiter.

    `n_workers` bounds how many requests are under way, those that wait to be asked again
    included.
    """

    def __init__(
        self,
        world: World,
        limiter: RateLimiter,
        server: SimulatedServer,
        n_requests: int,
        *,
        concurrency: int = 128,
        n_workers: int | None = None,
        tokens: Callable[[random.Random], int] = lambda _: 0,
        seed: int = 1,
    ) -> None:
        self.world = world
        self.limiter = limiter
        self.server = server
        self.sent: list[tuple[float, int]] = []
        self.done: list[float] = []
        self.n_refused = 0
        self.random = random.Random(seed)
        self._left = n_requests
        self._tokens = tokens
        self._n_slots = concurrency
        self._n_in_flight = 0
        self._n_workers = 2 * concurrency if n_workers is None else n_workers
        self._again: collections.deque[_Row] = collections.deque()
        self._line: collections.deque[_Row] = collections.deque()
        self._wakes_at = -1.0
        world.at(world.now, self._go)

    @property
    def refused_share(self) -> float:
        """429s of the requests sent."""
        return self.n_refused / max(1, len(self.sent))

    def most_in_a_minute(self) -> float:
        """The tokens of the fullest minute; requests where tokens are 0."""
        times = [t for t, _ in self.sent]
        sums = list(itertools.accumulate((tokens or 1 for _, tokens in self.sent), initial=0))
        ends = [bisect.bisect_left(times, t + 60) for t in times]
        return max(sums[end] - sums[begin] for begin, end in enumerate(ends))

    def _go(self) -> None:
        """Fill the slots; let the head of the line go if it may."""
        while self._n_slots and (self._again or (self._left and self._n_workers)):
            self._n_slots -= 1
            self._line.append(self._again.popleft() if self._again else self._new_row())
        while self._line:
            tokens = (self._line[0].tokens,) * 2
            permit = self.limiter.try_reserve(tokens, self._n_in_flight)
            if permit is None:
                self._wake(self.world.now + self.limiter.wait_s(tokens, self._n_in_flight))
                return
            self._send(self._line.popleft(), permit)

    def _wake(self, when: float) -> None:
        if not self.world.now < self._wakes_at <= when:
            self._wakes_at = when
            self.world.at(when, lambda: self._wakes_at == when and self._go())

    def _new_row(self) -> _Row:
        self._left -= 1
        self._n_workers -= 1
        return _Row(self._tokens(self.random))

    def _send(self, row: _Row, permit: Permit) -> None:
        now = self.world.now
        self._n_in_flight += 1
        self.sent.append((now, row.tokens))
        way_s = 0.005 * self.random.uniform(0.5, 1.5)
        self.world.at(now + way_s, lambda: self._arrive(row, permit))

    def _arrive(self, row: _Row, permit: Permit) -> None:
        reply = self.server.arrive(self.world.now, row.tokens)
        self.world.at(self.world.now + reply.latency_s, lambda: self._land(row, permit, reply))

    def _land(self, row: _Row, permit: Permit, reply: Reply) -> None:
        now = self.world.now
        limits = self.server.limits(now)
        self._n_slots += 1
        self._n_in_flight -= 1
        if reply.ok:
            self.done.append(now)
            self._n_workers += 1
            self.limiter.answered(permit, row.tokens, limits)
        else:
            row.n_refused += 1
            self.n_refused += 1
            self.limiter.refused(permit, reply.retry_after_s, limits)
            self.world.at(now + self._back_off_s(row, reply), lambda: self._come_again(row))
        self._go()

    def _come_again(self, row: _Row) -> None:
        self._again.append(row)
        self._go()

    def _back_off_s(self, row: _Row, reply: Reply) -> float:
        """As `retry_wait_s` has it."""
        backoff = self.random.uniform(0, min(60.0, 2.0 ** (row.n_refused - 1)))
        told = reply.retry_after_s
        return backoff if told is None else told + min(backoff, 0.1 + told / 4)


def simulate(
    server: SimulatedServer,
    n_requests: int = 10**9,
    *,
    until: float = 1e9,
    rpm: float | None = None,
    tpm: float | None = None,
    concurrency: int = 128,
    then: Callable[[World, SimulatedServer], object] = lambda _, __: None,
    **options: Any,
) -> Client:
    """One client and its server until a time, or until all is answered."""
    world = World()
    then(world, server)
    limiter = RateLimiter(rpm=rpm, tpm=tpm, clock=world)
    client = Client(world, limiter, server, n_requests, concurrency=concurrency, **options)
    world.run(until)
    return client
