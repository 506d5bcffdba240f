"""The one object that keeps for several engines what one engine keeps for itself."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from claimscore.cache.store import DiskCache
from claimscore.cache.table import NewRow
from claimscore.config import FailureLimit
from claimscore.errors import ClaimscoreError, StoppedEarly
from claimscore.pipeline.llm.account import Ended, SpendTotals
from claimscore.pipeline.llm.failing import why_stop
from claimscore.pipeline.llm.limits.cell_rate import Kind
from claimscore.pipeline.llm.limits.shared import Learnt, SharedBudget
from claimscore.pipeline.llm.services.letters import (
    Letter,
    Op,
    Reason,
    Reply,
    failed_op,
    reason_of,
)
from claimscore.pipeline.llm.services.members import Course, Member, Members
from claimscore.pipeline.llm.services.purse import Grant, Purse
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.types import JSON

#: A member that was not heard of for so long is taken to be gone.
SILENT_S = 15.0

#: How often a member lets itself be heard at least.
BEAT_S = 1.0

#: Letters a second that one object can read with some ease; members space theirs accordingly.
LETTERS_PER_S = 1000.0

#: A member's two lanes send no oftener than this.
_LEAST_SPACING_S = 0.005


class Services:
    """Answers, claims, limits, money and stop of a run, for engines wherever they are.

    One object in one process on one event loop; `handle` may be called for many letters at a
    time. It may be killed at any moment and made again on the same files: answers, spending and
    limits are in them, and what the members hold they say again when they join. `limits` opens
    the limits of a scope; `gone` is to be called of a member that is known to be dead, any other
    is after `silent_s`. `tell` hears of members' events.
    """

    def __init__(
        self,
        cache: DiskCache,
        purse: Purse,
        limits: Callable[[str], SharedBudget],
        *,
        failure_limit: FailureLimit | None = None,
        silent_s: float = SILENT_S,
        roll: Path | None = None,
        run: str = "",
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[..., None] | None = None,
    ) -> None:
        self._cache = cache
        self._purse = purse
        self._open_limits = limits
        self._limits: dict[str, SharedBudget] = {}
        self._failure_limit = failure_limit or FailureLimit()
        self._members = Members(silent_s, clock, roll, run)
        self._beat_s = min(BEAT_S, silent_s / 4)
        self._tell = tell
        self._stop: Reason | None = None
        self._commit = _Commit(cache, purse.account.flush)
        self._ops: dict[str, Callable[..., Any]] = {
            "get": self._get,
            "begin": self._begin,
            "end": self._end,
            "damaged": self._damaged,
            "reserve": self._reserve,
            "spent": self._spent,
            "lease": self._lease,
            "give_back": self._give_back,
            "recall": self._recall,
            "remember": self._remember,
            "recall_fact": self._recall_fact,
            "remember_fact": self._remember_fact,
            "beat": self._beat,
            "failed": self._failed,
            "event": self._event,
            "stop": self._stop_all,
            "leave": self._leave,
        }
        self.n_letters = 0
        self.n_ops = 0

    # -- for whoever runs it

    @property
    def reason(self) -> Reason | None:
        """Why everybody stops, as class and message; None where nobody does."""
        return self._stop

    def stop(self, error: BaseException | None = None) -> None:
        """Let every engine send nothing more; the first reason stays."""
        if self._stop is None:
            self._stop = reason_of(error or StoppedEarly("interrupted"))

    def gone(self, name: str) -> None:
        """A member has died: its claims are free, what it had open may be billed."""
        self._purse.lose(name)
        for key in self._members.remove(name) or ():
            self._cache.release(key)

    def sweep(self) -> list[str]:
        """Find those who were silent for too long; every letter does this as well."""
        silent = self._members.silent()
        for name in silent:
            self.gone(name)
            self._hear("member lost", {"member": name})
        return silent

    def stats(self) -> EngineStats:
        """All engines as one, as of their last beats.

        The account knows of money at once, the members of that from before a restart.
        """
        stats, totals = self._members.stats(), self._purse.account.totals
        for name in ("prompt_tokens", "completion_tokens", "possibly_billed_usd"):
            setattr(stats, name, max(getattr(stats, name), getattr(totals, name)))
        if totals.usd is not None:
            stats.usd = max(stats.usd or 0.0, totals.usd)
        return stats

    def spent(self) -> SpendTotals:
        """What this invocation of the run has spent."""
        return self._purse.account.totals

    def close(self) -> None:
        """Write what has ended, give the files back; nobody may write letters afterwards."""
        self._purse.account.flush()
        for limits in self._limits.values():
            limits.close()
        self._cache.close()

    # -- letters

    async def handle(self, letter: Letter) -> Reply:
        """Obey a letter, once however often it comes, and answer it."""
        name, lane, number, ops = letter
        self.n_letters += 1
        if ops[0][0] == "join":
            return self._reply("ok", [self._join(name, *ops[0][1:])])
        member = self._members.find(name)
        self.sweep()
        if member is None:
            return self._reply("join", [])
        course = member.courses[lane]
        if number == course.number:
            await course.done.wait()
        elif number > course.number:
            course = member.courses[lane] = Course()
            course.number = number
            with anyio.CancelScope(shield=True):
                await self._obey(name, member, course, ops)
        if number != course.number or course.results is None:
            return self._reply("join", [])  # overtaken or failed half-way: begin anew
        return self._reply("ok", course.results)

    def _reply(self, status: Any, results: list[Any]) -> Reply:
        spacing_s = max(_LEAST_SPACING_S, 2 * len(self._members) / LETTERS_PER_S)
        return status, self._stop, spacing_s, results

    async def _obey(self, name: str, member: Member, course: Course, ops: Sequence[Op]) -> None:
        self.n_ops += len(ops)
        rows: list[NewRow] = []
        results: list[Any] = []
        try:
            for op in ops:
                if op[0] == "put":
                    rows.append(NewRow(op[1], time.time(), op[2]))
                    results.append(None)
                else:
                    results.append(self._do(name, member, op))
            if ops[0][0] in ("put", "spent"):
                try:
                    await self._commit.put(rows)
                except ClaimscoreError as exc:
                    results = [failed_op(exc)] * len(ops)
                for row in rows:
                    self._end(name, member, row.key)
            course.results = results
        finally:
            course.done.set()

    def _do(self, name: str, member: Member, op: Op) -> Any:
        """One op by its name; what goes wrong with it is its result."""
        try:
            return self._ops[op[0]](name, member, *op[1:])
        except ClaimscoreError as exc:
            return failed_op(exc)

    def _join(self, name: str, keys: Sequence[str], grants: Sequence[Grant]) -> Op:
        for key in self._members.remove(name) or ():
            self._cache.release(key)
        member = self._members.join(name, keys)
        for key in member.keys:
            self._cache.claim(key)
        self._purse.come_back(name, grants)
        return self._purse.account.capped, self._beat_s, self._cache.read_only

    def _leave(self, name: str, member: Member, stats: JSON) -> None:
        member.stats = EngineStats.from_json(stats)
        self.gone(name)

    # -- answers

    def _get(self, name: str, member: Member, keys: Sequence[str]) -> dict[str, bytes]:
        return self._cache.read_rows(keys)

    def _begin(self, name: str, member: Member, key: str, anew: bool = False) -> bytes | bool:
        found = None if anew else self._cache.read_rows([key]).get(key)
        if found is not None:
            return found
        if self._members.incomplete or not self._members.claim(name, key):
            return False
        if not self._cache.claim(key):  # another process with this cache, none of ours
            self._members.release(name, key)
            return False
        found = None if anew else self._cache.read_rows([key]).get(key)
        if found is not None:  # that other process has just put it there
            self._end(name, member, key)
        return found or True

    def _end(self, name: str, member: Member, key: str) -> None:
        if self._members.release(name, key):
            self._cache.release(key)

    def _damaged(self, name: str, member: Member, key: str) -> None:
        self._cache.note_damaged(key)

    # -- money

    def _reserve(
        self, name: str, member: Member, prompt: int, completion: int, pico: int
    ) -> tuple[int, int] | int | str:
        return self._purse.reserve(name, prompt, completion, pico)

    def _spent(self, name: str, member: Member, *values: int) -> None:
        *ended, most_pico = values
        self._purse.end(name, Ended(*ended), most_pico)

    # -- limits

    def _scope(self, scope: str) -> SharedBudget:
        if scope not in self._limits:
            self._limits[scope] = self._open_limits(scope)
        return self._limits[scope]

    def _lease(
        self, name: str, member: Member, scope: str, kind: Kind, units: float, *rate: float
    ) -> float:
        per_minute, depth_s = rate
        return self._scope(scope).lease(kind, units, per_minute, depth_s)

    def _give_back(
        self, name: str, member: Member, scope: str, kind: Kind, units: float, per_minute: float
    ) -> None:
        self._scope(scope).give_back(kind, units, per_minute)

    def _recall(self, name: str, member: Member, scope: str) -> JSON | None:
        learnt = self._scope(scope).recall()
        return None if learnt is None else dataclasses.asdict(learnt)

    def _remember(self, name: str, member: Member, scope: str, learnt: JSON) -> None:
        self._scope(scope).remember(Learnt(**learnt))

    def _recall_fact(self, name: str, member: Member, scope: str, fact: str) -> JSON | None:
        return self._scope(scope).recall_fact(fact)

    def _remember_fact(self, name: str, member: Member, scope: str, fact: str, value: JSON) -> None:
        self._scope(scope).remember_fact(fact, value)

    # -- what members say of themselves

    def _beat(self, name: str, member: Member, stats: JSON) -> None:
        member.stats = EngineStats.from_json(stats)

    def _failed(self, name: str, member: Member, stats: JSON, message: str) -> None:
        member.stats = EngineStats.from_json(stats)
        error = why_stop(self._members.stats(), self._failure_limit, message)
        if error is not None:
            self.stop(error)

    def _event(self, name: str, member: Member, kind: str, fields: JSON) -> None:
        self._hear(kind, fields)

    def _stop_all(self, name: str, member: Member, kind: str, message: str) -> None:
        if self._stop is None:
            self._stop = (kind, message)

    def _hear(self, kind: str, fields: JSON) -> None:
        if self._tell is not None:
            self._tell(kind, **fields)


class _Commit:
    """Rows of several letters in one transaction: what comes while one is written is the next."""

    def __init__(self, cache: DiskCache, after: Callable[[], None]) -> None:
        self._cache = cache
        self._after = after
        self._group = _Group()
        self._turn = anyio.Lock(fast_acquire=True)
        self._one_thread: anyio.CapacityLimiter | None = None

    async def put(self, rows: list[NewRow]) -> None:
        """Return when all of them are in the cache, and what was spent until now is written."""
        group = self._group
        group.rows += rows
        async with self._turn:
            if not group.is_written:
                self._group = _Group()
                group.is_written = True
                self._one_thread = self._one_thread or anyio.CapacityLimiter(1)
                try:
                    await to_thread.run_sync(self._write, group.rows, limiter=self._one_thread)
                except ClaimscoreError as exc:
                    group.error = exc
        if group.error is not None:
            raise group.error

    def _write(self, rows: list[NewRow]) -> None:
        if rows:
            self._cache.put_rows(rows)
        self._after()


@dataclasses.dataclass(slots=True)
class _Group:
    rows: list[NewRow] = dataclasses.field(default_factory=list)
    is_written: bool = False
    error: ClaimscoreError | None = None
