"""A server with limits and a client with workers, as discrete events on a virtual clock.

The client is the engine as the limits see it: a number of slots, each holding a request from
the moment it waits for the limits until it is answered; refused requests come again after
what the server asked for, and some jitter, without a slot. A run of thousands of requests
takes a fraction of a second and is the same every time.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import random
from collections.abc import Callable
from typing import Literal, NamedTuple

from claimscore.pipeline.llm.limits.flow import Flow, Permit
from claimscore.types import LimitState, RateLimits

Headers = Literal["none", "at admission", "at answer"]


class Bucket:
    """A server's token bucket."""

    def __init__(self, per_minute: float, depth_s: float) -> None:
        self.depth_s = depth_s
        self.per_minute = per_minute
        self.level = self.depth
        self.at = 0.0

    @property
    def rate(self) -> float:
        return self.per_minute / 60

    @property
    def depth(self) -> float:
        return max(1.0, self.rate * self.depth_s)

    def earn(self, now: float) -> None:
        self.level = min(self.depth, self.level + self.rate * (now - self.at))
        self.at = now

    def change(self, per_minute: float, now: float) -> None:
        self.earn(now)
        self.per_minute = per_minute
        self.level = min(self.level, self.depth)

    def state(self, now: float) -> LimitState:
        self.earn(now)
        return LimitState(
            self.per_minute, float(int(max(0.0, self.level))), (self.depth - self.level) / self.rate
        )


class Reply(NamedTuple):
    """What a server says to a request; `limits` is asked for when the answer leaves."""

    ok: bool
    latency_s: float
    limits: Callable[[float], RateLimits | None]
    retry_after_s: float | None = None


@dataclasses.dataclass
class SimulatedServer:
    """Enforces requests and tokens a minute, and refuses at random if told to.

    `network_s` is the way there. A refusal takes `refusal_s`, by default much less than an
    answer. `slice_s`, where set, enforces each slice of a second by itself.
    """

    rpm: float | None = None
    tpm: float | None = None
    depth_s: float = 1.0
    latency_s: float = 0.05
    jitter: float = 0.1
    network_s: float = 0.005
    refusal_s: float | None = None
    headers: Headers = "none"
    retry_after: Literal["none", "exact", "seconds"] = "exact"
    isolated: float = 0.0
    isolated_retry_after_s: float | None = None
    slice_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.requests = Bucket(self.rpm, self.depth_s) if self.rpm else None
        self.tokens = Bucket(self.tpm, self.depth_s) if self.tpm else None
        self.slice = (0, 0.0)
        self.admitted: list[float] = []
        self.refused: list[float] = []

    def arrive(self, now: float, tokens: float) -> Reply:
        if self.random.random() < self.isolated:
            return self._refuse(now, self.isolated_retry_after_s)
        missing = [
            (need - bucket.level) / bucket.rate
            for bucket, need in self._needs(now, tokens)
            if bucket.level < min(need, bucket.depth)
        ]
        if missing:
            return self._refuse(now, self._retry_after(max(missing)))
        if self.slice_s is not None and not self._fits_slice(now):
            return self._refuse(now, self._retry_after(self.slice_s))
        for bucket, need in self._needs(now, tokens):
            bucket.level -= need
        self.admitted.append(now)
        latency_s = self.latency_s * self.random.uniform(1 - self.jitter, 1 + self.jitter)
        return Reply(True, latency_s, self._limits(now))

    def _needs(self, now: float, tokens: float) -> list[tuple[Bucket, float]]:
        needs = []
        if self.requests is not None:
            needs.append((self.requests, 1.0))
        if self.tokens is not None:
            needs.append((self.tokens, tokens))
        for bucket, _ in needs:
            bucket.earn(now)
        return needs

    def _fits_slice(self, now: float) -> bool:
        assert self.slice_s is not None
        assert self.rpm is not None
        number, used = self.slice
        current = int(now / self.slice_s)
        used = used if number == current else 0.0
        if used + 1 > self.rpm / 60 * self.slice_s:
            return False
        self.slice = (current, used + 1)
        return True

    def _refuse(self, now: float, retry_after_s: float | None) -> Reply:
        self.refused.append(now)
        refusal_s = min(self.latency_s, 0.02) if self.refusal_s is None else self.refusal_s
        return Reply(False, refusal_s, self._limits(now), retry_after_s)

    def _retry_after(self, seconds: float) -> float | None:
        if self.retry_after == "none":
            return None
        return seconds if self.retry_after == "exact" else float(int(seconds) + 1)

    def _limits(self, now: float) -> Callable[[float], RateLimits | None]:
        if self.headers == "none":
            return _nothing
        if self.headers == "at answer":
            return self._state
        state = self._state(now)
        return lambda _: state

    def _state(self, now: float) -> RateLimits:
        return RateLimits(
            self.requests.state(now) if self.requests else None,
            self.tokens.state(now) if self.tokens else None,
        )


def _nothing(_: float) -> None:
    return None


@dataclasses.dataclass
class _Row:
    tokens: int
    expect: Callable[[], int]
    n_refused: int = 0


class Simulation:
    """Asks a server `n_requests` things through a `Flow`."""

    def __init__(
        self,
        flow: Flow,
        server: SimulatedServer,
        n_requests: int,
        *,
        concurrency: int = 128,
        tokens: Callable[[random.Random], int] = lambda _: 0,
        expect: Callable[[Simulation, int], int] = lambda _, tokens: tokens,
        seed: int = 1,
    ) -> None:
        self.flow = flow
        self.server = server
        self.now = 0.0
        self.sent: list[tuple[float, int]] = []
        self.done: list[float] = []
        self.most_in_flight = 0
        self._random = random.Random(seed)
        self._left = n_requests
        self._tokens = tokens
        self._expect = expect
        self._concurrency = concurrency
        self._n_slots = concurrency
        self._n_workers = 2 * concurrency
        self._again: collections.deque[_Row] = collections.deque()
        self._line: collections.deque[_Row] = collections.deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._n_events = 0
        self._head_at = -1.0

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._n_events += 1
        heapq.heappush(self._events, (when, self._n_events, what))

    def run(self, until: float = 1e9) -> Simulation:
        """Go on until all is answered."""
        self._go()
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
            self._go()
        return self

    def _go(self) -> None:
        """Fill the slots; let the head of the line go if it may."""
        while self._n_slots and (self._again or (self._left and self._n_workers)):
            self._n_slots -= 1
            if self._again:
                self._line.append(self._again.popleft())
            else:
                self._left -= 1
                self._n_workers -= 1
                self._line.append(self._row())
        while self._line:
            wait_s = self.flow.wait_s(self._line[0].expect(), self.now)
            if wait_s > 0:
                when = self.now + wait_s
                if not self.now < self._head_at <= when:
                    self._head_at = when
                    self.at(when, lambda: None)
                return
            self._send(self._line.popleft())

    def _row(self) -> _Row:
        tokens = self._tokens(self._random)
        return _Row(tokens, lambda: self._expect(self, tokens))

    def _send(self, row: _Row) -> None:
        permit = self.flow.take(row.expect(), self.now)
        self.sent.append((self.now, row.tokens))
        self.most_in_flight = max(self.most_in_flight, self.flow.in_flight)
        network_s = self.server.network_s * self._random.uniform(0.5, 1.5)
        self.at(self.now + network_s, lambda: self._arrive(row, permit))

    def _arrive(self, row: _Row, permit: Permit) -> None:
        reply = self.server.arrive(self.now, row.tokens)
        self.at(self.now + reply.latency_s, lambda: self._land(row, permit, reply))

    def _land(self, row: _Row, permit: Permit, reply: Reply) -> None:
        limits = reply.limits(self.now)
        self._n_slots += 1
        if reply.ok:
            self.done.append(self.now)
            self._n_workers += 1
            self.flow.answered(permit, row.tokens, limits, self.now)
            return
        row.n_refused += 1
        self.flow.refused(permit, reply.retry_after_s, limits, self.now)
        backoff = self._random.uniform(0, min(60.0, 2.0 ** (row.n_refused - 1)))
        told = reply.retry_after_s
        wait_s = backoff if told is None else told + min(backoff, 0.1 + told / 4)
        self.at(self.now + wait_s, lambda: self._again.append(row))

    # -- figures

    @property
    def n_refused(self) -> int:
        return len(self.server.refused)

    @property
    def refused_share(self) -> float:
        return self.n_refused / max(1, len(self.sent))

    def rate(self, begin: float, end: float) -> float:
        """Admitted requests a second between two times."""
        return sum(begin <= t < end for t in self.server.admitted) / (end - begin)
