"""A server with limits, and an engine that asks it in virtual time.

A run is the same every time: its figures are properties of the algorithm, not of the machine.
"""

import bisect
import dataclasses
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from claimscore.errors import RateLimitError
from claimscore.types import Completion, LimitState, Message, RateLimits, Request, Usage
from tests.fake_server.budget import Bucket
from tests.support.engine_doubles import make
from tests.support.virtual_time import VIRTUAL_TIME, at_once


@dataclasses.dataclass
class LimitedServer:
    """Enforces requests and tokens a minute, and refuses a share at random if told to."""

    rpm: float | None = None
    tpm: float | None = None
    depth_s: float = 1.0
    latency_s: float = 0.05
    has_headers: bool = False
    has_retry_after: bool = True
    isolated: float = 0.0
    isolated_retry_after_s: float | None = None
    seed: int = 1

    family, model, namespace = "fake", "m", "here"

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.requests = Bucket(self.rpm, self.depth_s, 0.0) if self.rpm else None
        self.tokens = Bucket(self.tpm, self.depth_s, 0.0) if self.tpm else None
        self.sent: list[tuple[float, int]] = []
        self.admitted: list[float] = []
        self.refused: list[float] = []
        self.done_s = 0.0

    async def complete(self, request: Request) -> Completion:
        n_tokens = len(request.messages[0].content) // 4
        self.sent.append((anyio.current_time(), n_tokens))
        await anyio.sleep(0.005 * self._random.uniform(0.5, 1.5))
        now = anyio.current_time()
        needs = [(self.requests, 1.0), (self.tokens, n_tokens)]
        lacks_s = max((bucket.wait_s(units, now) for bucket, units in needs if bucket), default=0.0)
        is_isolated = self._random.random() < self.isolated
        if is_isolated or lacks_s:
            self.refused.append(now)
            await anyio.sleep(min(self.latency_s, 0.02))
            again_s = lacks_s if self.has_retry_after else None
            again_s = self.isolated_retry_after_s if is_isolated else again_s
            raise RateLimitError("slow down", again_s, limits=self._limits())
        for bucket, units in needs:
            if bucket:
                bucket.take(units, now)
        self.admitted.append(now)
        await anyio.sleep(self.latency_s * self._random.uniform(0.9, 1.1))
        self.done_s = anyio.current_time()
        return Completion("x", "m", "stop", Usage(n_tokens, 0), limits=self._limits())

    def _limits(self) -> RateLimits | None:
        now = anyio.current_time()
        states = [
            LimitState(bucket.per_minute, float(int(max(0.0, bucket.level(now)))), None)
            if bucket
            else None
            for bucket in (self.requests, self.tokens)
        ]
        return RateLimits(*states) if self.has_headers else None

    async def aclose(self) -> None:
        pass

    def rate(self, begin: float, end: float) -> float:
        """Admitted requests a second between two times."""
        return sum(begin <= t < end for t in self.admitted) / (end - begin)

    @property
    def refused_share(self) -> float:
        """429s of the requests sent."""
        return len(self.refused) / len(self.sent)

    def most_in_a_minute(self) -> float:
        """The tokens of the fullest minute; requests where tokens are 0."""
        times = [t for t, _ in self.sent]
        sums = list(itertools.accumulate((tokens or 1 for _, tokens in self.sent), initial=0))
        ends = [bisect.bisect_left(times, t + 60) for t in times]
        return max(sums[end] - sums[begin] for begin, end in enumerate(ends))


def ask(
    server: LimitedServer,
    n: int,
    *,
    until: float = 1e9,
    concurrency: int = 128,
    tokens: Callable[[random.Random], int] = lambda _: 0,
    meanwhile: Callable[[], Awaitable[Any]] = lowlevel.checkpoint,
    **bounds: Any,
) -> LimitedServer:
    """Let an engine ask the server so many questions, or until a time."""

    async def run() -> None:
        engine = make(server, max_concurrency=concurrency, **bounds)
        draw = random.Random(server.seed)
        requests = [
            engine.request([Message("user", f"{i:<{4 * tokens(draw)}}")], max_tokens=1)
            for i in range(n)
        ]
        async with engine, anyio.create_task_group() as group:
            group.start_soon(meanwhile)
            with anyio.move_on_after(until):
                await engine.answer_all(requests, lambda answer: answer.text)

    random.seed(server.seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio.to_thread, "run_sync", at_once)
        anyio.run(run, backend=VIRTUAL_TIME[0], backend_options=VIRTUAL_TIME[1])
    return server
