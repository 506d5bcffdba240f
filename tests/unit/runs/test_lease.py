"""The lease of a run directory in an object store: one holder, whatever the clocks say."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator

import pytest

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import lock
from claimscore.runs.lock import (
    LOOK_S,
    SKEW_S,
    VALID_S,
    Clock,
    Lease,
    current_holder,
)
from tests.support.run_tables import store_in_memory


@dataclasses.dataclass
class TurnedClock(Clock):
    """A machine's clock: `sleep` takes no time, and something may happen meanwhile."""

    now_s: float = 1e9
    passed_s: float = 0.0
    meanwhile: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.now_s

    def passed(self) -> float:
        return self.passed_s

    def sleep(self, seconds: float) -> None:
        self.turn(seconds)
        self.meanwhile()

    def turn(self, seconds: float) -> None:
        self.now_s += seconds
        self.passed_s += seconds


class Machines:
    """Leases of one run directory, each on a machine with a clock of its own."""

    def __init__(self) -> None:
        self.storage = store_in_memory()
        self.leases: list[Lease] = []

    def lease(self, clock: Clock, machine: str = "", told: list[str] | None = None) -> Lease:
        tell = [].append if told is None else told.append
        self.leases.append(Lease(self.storage, machine, tell=tell, clock=clock))
        return self.leases[-1]


@pytest.fixture
def machines() -> Iterator[Machines]:
    found = Machines()
    yield found
    for lease in found.leases:
        lease.release()


def test_second_holder_is_refused(machines: Machines) -> None:
    first, told = machines.lease(TurnedClock()), list[str]()
    first.take()
    other = TurnedClock(meanwhile=first.renew)
    with pytest.raises(ConfigError, match=r"is in use by process \d+ on .*; wait for it, or stop"):
        machines.lease(other, told=told).take()
    assert other.passed_s == LOOK_S
    assert "waiting up to 60 s" in told[0]
    first.check()


@pytest.mark.parametrize(
    ("machine", "later_s", "waits_s"),
    [
        ("", 0.0, VALID_S),  # killed just now, elsewhere
        ("", VALID_S + SKEW_S + 1, 0.0),  # the next morning
        ("here", 0.0, 0.0),  # the caller holds the lock of this machine, so it is dead
    ],
)
def test_a_dead_holder_is_followed(
    machines: Machines, machine: str, later_s: float, waits_s: float
) -> None:
    machines.lease(TurnedClock(), machine).take()
    assert current_holder(machines.storage) is None, "`status` sees no run at work"
    clock = TurnedClock(now_s=1e9 + later_s)
    machines.lease(clock, machine).take()
    assert waits_s <= clock.passed_s <= waits_s + LOOK_S


def test_released_lease_is_free(machines: Machines) -> None:
    first = machines.lease(Clock())
    first.take()
    held = current_holder(machines.storage)
    assert held is not None
    assert held.token == first.token
    first.release()
    assert current_holder(machines.storage) is None
    clock = TurnedClock()
    machines.lease(clock).take()
    assert clock.passed_s == 0


def test_holder_that_slept_stops(machines: Machines) -> None:
    clock = TurnedClock()
    asleep = machines.lease(clock)
    asleep.take()
    asleep.check()
    later = machines.lease(TurnedClock(now_s=1e9 + 3600))
    later.take()
    asleep.check()  # it cannot tell yet
    clock.turn(VALID_S)
    for _ in range(2):
        with pytest.raises(StoppedEarly, match="another process has taken this run over"):
            asleep.check()
    asleep.release()
    later.check()
    later.renew()


def test_two_at_once_after_a_death(machines: Machines) -> None:
    machines.lease(TurnedClock()).take()
    quick, slow = machines.lease(TurnedClock()), TurnedClock()

    def overtake() -> None:
        if slow.passed_s == VALID_S:
            quick.take()
        if slow.passed_s > VALID_S:
            quick.renew()

    slow.meanwhile = overtake
    with pytest.raises(ConfigError, match="is in use"):
        machines.lease(slow).take()
    quick.check()


def test_the_thread_renews(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Event()

    class Counted(Lease):
        def renew(self) -> None:
            super().renew()
            renewed.set()

    monkeypatch.setattr(lock, "RENEW_S", 0.01)
    lease = Counted(machines.storage)
    lease.take()
    assert renewed.wait(30)
    lease.release()
    assert current_holder(machines.storage) is None
