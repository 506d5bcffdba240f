"""Who is a member, when it was last heard of, and which keys it is asking for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio

from claimscore.atomic import write_text
from claimscore.pipeline.llm.services.letters import Lane
from claimscore.pipeline.llm.stats import EngineStats, merged


class Course:
    """One lane of a member: its last letter, and what was answered once that is known."""

    def __init__(self) -> None:
        self.number = 0
        self.results: list[Any] | None = None
        self.done = anyio.Event()


class Member:
    """One engine, as the services know it."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.keys: set[str] = set()
        self.stats = EngineStats()
        self.courses: dict[Lane, Course] = {"quick": Course(), "keep": Course()}


class Members:
    """All of them, and the keys that each has claimed; a key is one member's at most.

    `roll` is a file with their names, for services that are started again in the middle of the
    same `run`: until those named there are back, or have been silent for `silent_s`, nobody
    knows what they are asking for (`incomplete`), and no key may be given away.
    """

    def __init__(
        self, silent_s: float, clock: Callable[[], float], roll: Path | None = None, run: str = ""
    ) -> None:
        self._silent_s = silent_s
        self._clock = clock
        self._roll = roll
        self._run = run
        self._members: dict[str, Member] = {}
        self._owners: dict[str, str] = {}
        self._gone: dict[str, EngineStats] = {}
        self._awaited = self._called()
        self._awaited_until = clock() + silent_s
        self._last_heard_at = clock()

    def __len__(self) -> int:
        return len(self._members)

    def find(self, name: str) -> Member | None:
        """The member, which was heard of just now; None where there is none of that name."""
        now, member = self._clock(), self._members.get(name)
        if now > self._last_heard_at + self._silent_s / 2:
            for each in self._members.values():  # nobody was heard of: it was not their silence
                each.heard_at = now
        self._last_heard_at = now
        if member is not None:
            member.heard_at = now
        return member

    def join(self, name: str, keys: Iterable[str]) -> Member:
        """A new member, or one that comes back and keeps the keys that nobody else has."""
        self.remove(name)
        member = self._members[name] = Member(self._clock())
        member.stats = self._gone.pop(name, member.stats)
        for key in keys:
            self.claim(name, key)
        self._awaited.discard(name)
        self._call()
        return member

    def remove(self, name: str) -> set[str] | None:
        """The keys that are free now, of a member that left or was lost; None of a stranger."""
        member = self._members.pop(name, None)
        self._awaited.discard(name)
        if member is None:
            return None
        for key in member.keys:
            del self._owners[key]
        member.stats.in_flight = 0
        member.stats.waiting_s = 0.0
        self._gone[name] = member.stats
        self._call()
        return member.keys

    def silent(self) -> list[str]:
        """Those who were not heard of for too long."""
        oldest = self._clock() - self._silent_s
        return [name for name, member in self._members.items() if member.heard_at < oldest]

    @property
    def incomplete(self) -> bool:
        """Whether somebody may be asking for keys of which nobody here knows."""
        if self._awaited and self._clock() > self._awaited_until:
            self._awaited.clear()
        return bool(self._awaited)

    def claim(self, name: str, key: str) -> bool:
        """Give the key to the member; False where another one has it."""
        owner = self._owners.setdefault(key, name)
        if owner == name:
            self._members[name].keys.add(key)
        return owner == name

    def release(self, name: str, key: str) -> bool:
        """The end of a claim; whether there was one of this member."""
        if self._owners.get(key) != name:
            return False
        del self._owners[key]
        self._members[name].keys.discard(key)
        return True

    def stats(self) -> EngineStats:
        """All engines as one, those that are gone included."""
        living = [member.stats for member in self._members.values()]
        total = merged([*self._gone.values(), *living])
        total.is_down = bool(living) and all(stats.is_down for stats in living)
        return total

    def _call(self) -> None:
        if self._roll is not None:
            names = sorted({*self._members, *self._awaited})
            write_text(self._roll, json.dumps({"run": self._run, "members": names}))

    def _called(self) -> set[str]:
        """Who was a member of this run before; a file that cannot be read names nobody."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if self._roll is not None:
                found = json.loads(self._roll.read_text(encoding="utf-8"))
                return set(found["members"]) if found["run"] == self._run else set()
        return set()
