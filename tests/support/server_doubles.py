"""Servers of several kinds in virtual time, and workers that ask them through a `Dispatcher`."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
from anyio import lowlevel

from claimscore.errors import ClaimscoreError, RejectedError, TransientError
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.endpoints import Attempts, Dispatcher
from claimscore.pipeline.llm.providers.base import SeveralServers
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import Halted, Stop
from claimscore.retry import Backoff
from claimscore.types import Completion, Message, Request
from tests.support.engine_doubles import completion


@dataclasses.dataclass(frozen=True)
class Down:
    """From when to when a server is down, and what it says meanwhile (None: nothing at all)."""

    from_s: float
    to_s: float
    error: TransientError | None = dataclasses.field(
        default_factory=lambda: TransientError("connection refused", "connect")
    )


class TimedServer:
    """Answers after a latency, a quarter more or less.

    A request that is in flight when it goes down fails at that moment.
    """

    family, model = "fake", "m"

    def __init__(
        self,
        name: str,
        latency_s: float,
        *,
        down: Sequence[Down] = (),
        fault: Callable[[Request], ClaimscoreError | None] = lambda request: None,
    ) -> None:
        self.base_url = self.namespace = f"http://{name}/v1"
        self.latency_s = latency_s
        self.asked: list[tuple[float, str]] = []
        self.answered: list[tuple[float, str]] = []
        self.in_flight = self.most_in_flight = 0
        self._down = down
        self._fault = fault
        self._draw = random.Random(name)

    async def complete(self, request: Request) -> Completion:
        text = request.messages[0].content
        self.asked.append((anyio.current_time(), text))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self._answer(request)
        finally:
            self.in_flight -= 1
        self.answered.append((anyio.current_time(), text))
        return completion(text)

    async def _answer(self, request: Request) -> None:
        down = self._down_next()
        with anyio.CancelScope(deadline=down.from_s if down else float("inf")) as up:
            await anyio.sleep(self.latency_s * self._draw.uniform(0.75, 1.25))
            fault = self._fault(request)
            if fault is not None:
                raise fault
        if up.cancelled_caught:
            assert down is not None
            if down.error is None:
                await anyio.sleep_forever()
            else:
                raise down.error

    def _down_next(self) -> Down | None:
        now = anyio.current_time()
        return next((down for down in self._down if now < down.to_s), None)

    async def aclose(self) -> None:
        pass

    def count(self, from_s: float = 0.0, to_s: float = float("inf")) -> int:
        """Answers in that time."""
        return sum(from_s <= moment < to_s for moment, _ in self.answered)


class Crowd:
    """Asks `servers` through a dispatcher, `in_flight` at a time, as an engine's workers do."""

    def __init__(
        self,
        *servers: TimedServer,
        slots: int = 64,
        rpm: Sequence[float | None] = (),
        max_outage_s: float = 3600.0,
        timeout_s: float | None = 120.0,
        attempts: int = 8,
    ) -> None:
        self.servers = servers
        self.stats = EngineStats()
        self.stop = Stop()
        self.events: list[tuple[float, str, dict[str, Any]]] = []
        self.outcomes: Counter[str] = Counter()
        self.reason: BaseException | None = None
        self._attempts = attempts
        limits = rpm or [None] * len(servers)
        several = SeveralServers(servers, "set")
        self.dispatcher = Dispatcher(
            several if len(servers) > 1 else servers[0],
            [RateLimiter(rpm=limit, max_concurrency=slots) for limit in limits],
            max_outage_s=max_outage_s,
            stop=self.stop,
            on_event=self._hear,
            spending=Budget(price=None),
            stats=self.stats,
            max_concurrency=slots,
            timeout_s=timeout_s,
        )

    def _hear(self, kind: str, **fields: Any) -> None:
        self.events.append((anyio.current_time(), kind, fields))

    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.events]

    async def ask(self, n: int, *, in_flight: int, until_s: float | None = None) -> None:
        """Ask `n` questions; or stop to send any when the time is over."""
        rows = iter(range(n))
        async with anyio.create_task_group() as workers:
            for _ in range(in_flight):
                workers.start_soon(self._work, rows, until_s)
        self.stop.halt(RuntimeError("all is done"))

    async def _work(self, rows: Iterator[int], until_s: float | None) -> None:
        for row in rows:
            if until_s is not None and anyio.current_time() >= until_s:
                return
            try:
                self.outcomes[await self.ask_one(question(str(row)))] += 1
            except Halted:
                return
            except ClaimscoreError as exc:
                self.reason = self.reason or exc
                self.stop.halt(exc)
                return

    async def ask_one(self, request: Request) -> str:
        """Ask one question until it is answered or has failed too often."""
        attempts, backoff, key = Attempts(self._attempts), Backoff(), request.messages[0].content
        while True:
            with await self.dispatcher.slot(request, attempts) as slot:
                try:
                    await slot.send(request, key, attempts)
                except RejectedError:
                    return "failed"
                except TransientError as exc:
                    error = exc
                else:
                    await lowlevel.checkpoint()
                    return "answered"
            if attempts.exhausted:
                return "failed"
            if not self.dispatcher.another_may_answer(attempts):
                wait_s = backoff.next_wait_s(error)
                if not self.dispatcher.is_down:
                    await anyio.sleep(wait_s)
                attempts.avoid.clear()

    def shares(self, from_s: float = 0.0, to_s: float = float("inf")) -> list[float]:
        counts = [server.count(from_s, to_s) for server in self.servers]
        return [count / sum(counts) for count in counts]

    def asked_again(self) -> Counter[str]:
        """How often questions were asked beyond once, by all servers together."""
        asked = Counter(text for server in self.servers for _, text in server.asked)
        return Counter({text: n - 1 for text, n in asked.items() if n > 1})


def question(text: str) -> Request:
    return Request("fake", "set", "m", (Message("user", text),))
