"""A run as a simulation of events: the chances that the formulas of `machines` leave out.

Chunks of records go through the LLM stage (a window of open chunks, requests in flight, limits,
latencies of different length, an outage), the engine's core, the cache's writer, a
queue of so many chunks, the devices (chunks of different size, devices that are lost and
come back) and the writer of parts, each as the package does it; then everything is scored. Nothing
is shared with the closed form but the figures that both are given.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable

from machines import Encoders, Host, LanguageModel

from claimscore.pipeline.estimate.run_time import Costs, Work

#: Chunks that may wait for a device, as `pipeline.model_stage` bounds them.
QUEUED_CHUNKS = 8

#: A device that is the run's own cores works in slices of this length, so that requests get theirs.
SLICE_S = 0.05


@dataclasses.dataclass(frozen=True)
class Chances:
    """How unequal things are: log-normal spreads (0: none), and the seed of the draws.

    `outage_from_s`: when nobody answers, for `LanguageModel.outage_s`.
    """

    latency_spread: float = 0.5
    chunk_spread: float = 0.3
    outage_from_s: float = 60.0
    seed: int = 0


@dataclasses.dataclass
class Simulated:
    """What happened: seconds, and how many devices were lost with a chunk at work."""

    total_s: float
    first_chunk_s: float
    answered_s: float
    modelled_s: float
    losses: int = 0
    chunks_done: int = 0
    requests_done: float = 0.0


class _Clock:
    """The events to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._order), action))

    def run(self) -> None:
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()


class _Line:
    """One that serves in the order of arrival."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._free = 0.0

    def serve(self, seconds: float, then: Callable[[], None]) -> None:
        self._free = max(self._free, self._clock.now) + seconds
        self._clock.at(self._free, then)


class _Chunk:
    def __init__(self, number: int, waves: list[int], device_s: float) -> None:
        self.number = number
        self.waves = deque(waves)
        self.left = 0
        self.device_s = device_s


class Simulation:
    """One run. `group` requests are one event: a group holds as many slots as it has requests."""

    def __init__(
        self,
        work: Work,
        llm: LanguageModel,
        encoders: Encoders,
        host: Host,
        costs: Costs,
        chances: Chances,
        *,
        group: int = 1,
    ) -> None:
        self._work, self._llm, self._encoders = work, llm, encoders
        self._host, self._costs, self._chances = host, costs, chances
        self._group = group
        self._clock = _Clock()
        self._draw = random.Random(chances.seed)
        self._slots = max(1, llm.concurrency // group)
        self._waiting: deque[_Chunk] = deque()
        self._window = max(2, math.ceil(2 * llm.concurrency / work.chunk_records))
        self._open = 0
        self._next_send = 0.0
        self._servers = 0.0
        self._engines = [_Line(self._clock) for _ in range(host.engines)]
        self._cache = _Line(self._clock)
        self._parts, self._cores = _Line(self._clock), _Line(self._clock)
        self._idle = list(range(encoders.devices))
        self._lives = [self._life() for _ in self._idle]
        self._queue: deque[_Chunk] = deque()
        self._held: deque[_Chunk] = deque()
        self._todo = deque(self._chunks())
        self.found = Simulated(0.0, math.inf, 0.0, 0.0)

    def run(self) -> Simulated:
        """Everything, from the command to the scores."""
        work, costs = self._work, self._costs
        before = costs.start_s + costs.load_s + work.records * costs.read_s / self._host.readers
        self._clock.at(0.0, self._open_chunks)
        self._clock.run()
        after = work.records * costs.scoring_s / self._host.scoring_workers
        assert self.found.chunks_done == work.chunks, "a chunk was lost"
        self.found.total_s = before + self._clock.now + after
        return self.found

    # -- the work

    def _chunks(self) -> list[_Chunk]:
        work, n = self._work, self._work.chunks
        paces = self._encoders.tokens_per_s
        device_s = sum(one.tokens / (paces[one.step] or 1.0) for one in work.passes if one.tokens)
        shares = self._shares(n)
        each_wave = work.requests / n / work.waves
        chunks = []
        for number, share in enumerate(shares):
            sizes = [each_wave * share] * work.waves
            counts = [max(1, round(size / self._group)) if size else 0 for size in sizes]
            chunks.append(_Chunk(number, counts, device_s * share / n))
        self._each = work.requests / max(1, sum(sum(chunk.waves) for chunk in chunks))
        return chunks

    def _shares(self, n: int) -> list[float]:
        """How large each chunk is, 1.0 on average."""
        shares = [self._spread(self._chances.chunk_spread) for _ in range(n)]
        return [share * n / sum(shares) for share in shares]

    def _spread(self, sigma: float) -> float:
        """A log-normal factor of mean one."""
        return self._draw.lognormvariate(-sigma * sigma / 2, sigma)

    # -- the LLM stage

    def _open_chunks(self) -> None:
        """Chunks in order, so many at a time; a chunk gets what it can use before the next one."""
        while self._todo and self._open < self._window:
            chunk = self._todo.popleft()
            self._open += 1
            self._next_wave(chunk)
        self._send()

    def _next_wave(self, chunk: _Chunk) -> None:
        while chunk.waves:
            chunk.left = chunk.waves.popleft()
            if chunk.left:
                self._unsent(chunk, chunk.left)
                return
        self._hand_on(chunk)

    def _unsent(self, chunk: _Chunk, n: int) -> None:
        at = sum(1 for other in self._waiting if other.number <= chunk.number)
        self._waiting.rotate(-at)
        self._waiting.extendleft([chunk] * n)
        self._waiting.rotate(at)

    def _send(self) -> None:
        while self._slots and self._waiting:
            self._slots -= 1
            self._ask(self._waiting.popleft())

    def _ask(self, chunk: _Chunk) -> None:
        llm, n, clock = self._llm, self._each, self._clock
        sent = max(clock.now, self._next_send)
        begin = self._chances.outage_from_s
        if begin <= sent < begin + llm.outage_s:
            sent = begin + llm.outage_s
        tokens = self._work.tokens / self._work.requests * n
        pause = max(
            n * 60 / llm.rpm if llm.rpm else 0.0,
            tokens * 60 / llm.tpm if llm.tpm else 0.0,
        )
        self._next_send = sent + pause if pause else 0.0
        answered = sent + llm.latency_s * self._spread(self._chances.latency_spread)
        if llm.tokens_per_s is not None:
            self._servers = max(self._servers, sent) + tokens / llm.tokens_per_s
            answered = max(answered, self._servers)
        clock.at(answered, lambda: self._answered(chunk))

    def _answered(self, chunk: _Chunk) -> None:
        each = (self._costs.request_s + self._llm.rule_s) * self._each
        if self._encoders.on_cpu:
            # an event loop has one core; it takes its turn among what the cores have to do
            line, seconds = self._cores, each / self._host.cores
        else:
            line, seconds = self._engines[chunk.number % len(self._engines)], each
        line.serve(seconds, lambda: self._to_cache(chunk))

    def _to_cache(self, chunk: _Chunk) -> None:
        seconds = self._costs.cache_s * self._each / self._host.cache_writers
        self._cache.serve(seconds, lambda: self._committed(chunk))

    def _committed(self, chunk: _Chunk) -> None:
        self.found.requests_done += self._each
        self.found.answered_s = self._clock.now
        self._slots += 1
        chunk.left -= 1
        if not chunk.left:
            self._next_wave(chunk)
        self._send()

    # -- the models

    def _hand_on(self, chunk: _Chunk) -> None:
        """Into the queue; where it is full, the chunk keeps its place in the window."""
        self.found.first_chunk_s = min(self.found.first_chunk_s, self._clock.now)
        self._held.append(chunk)
        self._take_held()

    def _take_held(self) -> None:
        most = QUEUED_CHUNKS * self._encoders.devices
        while self._held and len(self._queue) < most:
            chunk = self._held.popleft()
            self._queue.append(chunk)
            self._open -= 1
            self._work_on()
        self._clock.at(self._clock.now, self._open_chunks)

    def _work_on(self) -> None:
        while self._queue and self._idle:
            chunk = self._queue.popleft()
            device = self._idle.pop()
            if self._encoders.on_cpu:
                self._slice(device, chunk, chunk.device_s)
            else:
                self._compute(device, chunk)

    def _slice(self, device: int, chunk: _Chunk, left: float) -> None:
        if left <= 0:
            self._computed(device, chunk)
            return
        self._cores.serve(min(left, SLICE_S), lambda: self._slice(device, chunk, left - SLICE_S))

    def _life(self) -> float:
        mean = self._encoders.between_losses_s
        return math.inf if mean is None else self._draw.expovariate(1 / mean)

    def _compute(self, device: int, chunk: _Chunk) -> None:
        clock = self._clock
        if self._lives[device] >= chunk.device_s:
            self._lives[device] -= chunk.device_s
            clock.at(clock.now + chunk.device_s, lambda: self._computed(device, chunk))
            return
        died = clock.now + self._lives[device]
        self._lives[device] = self._life()
        self.found.losses += 1
        clock.at(died, lambda: self._again(chunk))
        clock.at(died + self._encoders.restart_s, lambda: self._back(device))

    def _again(self, chunk: _Chunk) -> None:
        """Its device is gone: the chunk is the next one's."""
        self._queue.appendleft(chunk)
        self._work_on()

    def _back(self, device: int) -> None:
        self._idle.append(device)
        self._work_on()

    def _computed(self, device: int, chunk: _Chunk) -> None:
        self.found.modelled_s = self._clock.now
        self._back(device)
        self._take_held()
        seconds = self._work.steps * self._costs.chunk_step_s / self._host.part_writers
        self._parts.serve(seconds, self._done)

    def _done(self) -> None:
        self.found.chunks_done += 1


def simulate(
    work: Work,
    llm: LanguageModel,
    encoders: Encoders,
    host: Host,
    costs: Costs,
    chances: Chances | None = None,
    *,
    group: int = 1,
) -> Simulated:
    """Simulate one run: see `Simulation`."""
    given = chances or Chances()
    return Simulation(work, llm, encoders, host, costs, given, group=group).run()
