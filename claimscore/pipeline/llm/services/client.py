"""An engine's way to the services: what is asked within a few milliseconds goes as one letter."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from claimscore.errors import ClaimscoreError, StoppedEarly
from claimscore.pipeline.llm.account import Most
from claimscore.pipeline.llm.services.letters import (
    Carry,
    Lane,
    Op,
    Reply,
    Unreachable,
    checked,
    error_of,
    reason_of,
)
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.llm.stopping import STOP_GRACE_S, Closed, Stop
from claimscore.types import Failure

#: Ops in one letter at most.
_LETTER_OPS = 1000

#: Between two tries to reach the services.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

#: A letter that nobody has answered for so long is sent again.
_CARRY_S = 30.0


class _Asked:
    """An op whose result somebody waits for, until he gives up."""

    __slots__ = ("done", "error", "given_up", "late", "op", "result")

    def __init__(self, op: Op, late: Callable[[Any], None] | None) -> None:
        self.op = op
        self.late = late
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.given_up = False


class _Queue:
    """What goes by one lane next."""

    def __init__(self, lane: Lane) -> None:
        self.lane: Lane = lane
        self.number = 0
        self.ops: list[tuple[Op, _Asked | None]] = []
        self.wake = anyio.Event()
        self.sent_at = 0.0

    def add(self, op: Op, asked: _Asked | None) -> None:
        self.ops.append((op, asked))
        self.wake.set()


class Client:
    """A member of the services. Enter it, and leave it after the engine and its limits.

    `stop` is the engine's: the services' reason halts it, and its own is told to everybody.
    Where the services cannot be reached, everything waits for up to `max_outage_s`, then the
    engine is halted by `StoppedEarly`; a halted engine's answers wait `STOP_GRACE_S` at most.
    """

    def __init__(self, carry: Carry, *, name: str = "", max_outage_s: float = 3600.0) -> None:
        self.name = name or uuid.uuid4().hex
        self.stop = Stop()
        self.stats: Callable[[], EngineStats] = EngineStats
        self.keys: set[str] = set()
        self.grants: dict[int, Most] = {}
        self.capped = False
        self.read_only = False
        self.n_letters = 0
        self.n_ops = 0
        self._carry = carry
        self._max_outage_s = max_outage_s
        self._beat_s = 1.0
        self._spacing_s = 0.0
        self._queues: dict[Lane, _Queue] = {"quick": _Queue("quick"), "keep": _Queue("keep")}
        self._joining = anyio.Lock()
        self._n_joined = 0
        self._dead: ClaimscoreError | None = None
        self._closed = False
        self._told_stop = False
        self._tasks: TaskGroup | None = None
        self._beating: anyio.CancelScope | None = None

    # -- for the parts of the engine

    async def ask(self, lane: Lane, op: Op, late: Callable[[Any], None] | None = None) -> Any:
        """The result of an op; `late` hears of one that came when nobody waited any more."""
        if self._dead is not None:
            raise self._dead
        asked = _Asked(op, late)
        self._queues[lane].add(op, asked)
        try:
            await asked.done.wait()
        except BaseException:
            asked.given_up = True
            if asked.done.is_set() and asked.error is None and late is not None:
                late(asked.result)
            raise
        if asked.error is not None:
            raise asked.error
        return checked(asked.result)

    def tell(self, lane: Lane, *op: Any) -> None:
        """An op whose result nobody needs."""
        if self._dead is None:
            self._queues[lane].add(op, None)

    def hear(self, lane: Lane, op: Op, later: Callable[[Any], None]) -> None:
        """An op whose result comes to `later`, unless the services are gone by then."""
        if self._dead is None:
            asked = _Asked(op, later)
            asked.given_up = True
            self._queues[lane].add(op, asked)

    def failed(self, stats: EngineStats, failure: Failure) -> None:
        """A row failed: the services stop everybody where that is one too many."""
        self.tell("quick", "failed", stats.as_json(), failure.message)

    def event(self, kind: str, **fields: object) -> None:
        """Let the services hear of what happens seldom; for an engine's `on_event`."""
        self.tell("quick", "event", kind, fields)

    # -- coming and going

    async def __aenter__(self) -> Client:
        await self._join(0)
        self._tasks = await anyio.create_task_group().__aenter__()
        for queue in self._queues.values():
            self._tasks.start_soon(self._run, queue)
        await self._tasks.start(self._beat)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        assert self._beating is not None
        self._tell_stop(self.stop.reason)
        self.tell("quick", "leave", self.stats().as_json())
        self._closed = True
        for queue in self._queues.values():
            queue.wake.set()
        self._beating.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _beat(self, *, task_status: TaskStatus[None]) -> None:
        """Be heard of, tell how it goes, and hear of a stop."""
        with anyio.CancelScope() as self._beating:
            task_status.started()
            while self._dead is None:
                await anyio.sleep(self._beat_s)
                self._tell_stop(self.stop.reason)
                self.tell("quick", "beat", self.stats().as_json())

    def _tell_stop(self, reason: BaseException | None) -> None:
        """Everybody stops for what stops this engine, but not because it is done."""
        if self._told_stop or not isinstance(reason, ClaimscoreError) or isinstance(reason, Closed):
            return
        self._told_stop = True
        self.tell("quick", "stop", *reason_of(reason))

    # -- letters

    async def _run(self, queue: _Queue) -> None:
        """Send what has come, one letter after the other. Cancellation does not end it."""
        with anyio.CancelScope(shield=True):
            while queue.ops or not self._closed:
                if not queue.ops:
                    queue.wake = anyio.Event()
                    await queue.wake.wait()
                    continue
                await anyio.sleep(max(0.0, queue.sent_at + self._spacing_s - anyio.current_time()))
                queue.sent_at = anyio.current_time()
                group, queue.ops = queue.ops[:_LETTER_OPS], queue.ops[_LETTER_OPS:]
                try:
                    results = await self._deliver(queue, [op for op, _ in group])
                except ClaimscoreError as exc:
                    self._die(exc)
                    for _, asked in (*group, *queue.ops):
                        _finish(asked, error=exc)
                    queue.ops = []
                    continue
                for (_, asked), result in zip(group, results, strict=True):
                    _finish(asked, result)

    async def _deliver(self, queue: _Queue, ops: list[Op]) -> list[Any]:
        queue.number += 1
        self.n_letters += 1
        self.n_ops += len(ops)
        while True:
            joined = self._n_joined
            status, _, _, results = await self._sent((self.name, queue.lane, queue.number, ops))
            if status == "ok":
                return results
            await self._join(joined)

    async def _join(self, joined: int) -> None:
        """Say who this is and what it holds; once, should both lanes find that it is needed."""
        async with self._joining:
            if self._n_joined != joined:
                return
            grants = [(number, *most) for number, most in self.grants.items()]
            reply = await self._sent((self.name, "quick", 0, [("join", list(self.keys), grants)]))
            self.capped, self._beat_s, self.read_only = checked(reply[3][0])
            self._n_joined += 1

    async def _sent(self, letter: tuple[str, Lane, int, list[Op]]) -> Reply:
        """Send until there is a reply; raise what stopped waiting for it."""
        since, pause_s = anyio.current_time(), _FIRST_PAUSE_S
        while True:
            try:
                with anyio.fail_after(_CARRY_S):
                    reply = await self._carry(letter)
                break
            except (Unreachable, TimeoutError) as exc:
                away_s = anyio.current_time() - since
                stopped_s = anyio.current_time() - self.stop.since
                if self._dead is not None:
                    raise self._dead from exc
                if away_s >= self._max_outage_s or min(away_s, stopped_s) >= STOP_GRACE_S:
                    raise StoppedEarly(
                        f"the process that keeps answers and limits for all workers was not "
                        f"reached for {away_s:,.0f} s: {exc or 'no reply'}"
                    ) from exc
                await anyio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        _, stop, self._spacing_s, _ = reply
        if stop is not None:
            self._told_stop = True
            self.stop.halt(error_of(stop))
        return reply

    def _die(self, error: ClaimscoreError) -> None:
        """Nobody will hear of anything any more."""
        self._dead = self._dead or error
        self.stop.halt(error)
        for queue in self._queues.values():
            queue.wake.set()


def _finish(asked: _Asked | None, result: Any = None, error: BaseException | None = None) -> None:
    """Give the result to who asked, or to who hears of it late."""
    if asked is None:
        return
    asked.result, asked.error = result, error
    asked.done.set()
    if asked.given_up and error is None and asked.late is not None:
        asked.late(result)
