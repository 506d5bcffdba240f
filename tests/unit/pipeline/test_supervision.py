"""A run that hangs: told by name, more rarely as it lasts, and ended."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from claimscore.config import LLMConfig
from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.supervision import Watchdog, signals_held, supervised
from claimscore.runs import RunDirectory
from tests.support.engine_doubles import VirtualClock


class Run:
    """A run on a virtual clock whose mark changes at given times, watched for some time."""

    def __init__(self, changes: tuple[float, ...] = (), asleep: tuple[float, float] = (0, 0)):
        self.clock = VirtualClock()
        self.changes = changes
        self.asleep = asleep
        self.waiting_for = "3 requests"
        self.heard: list[tuple[str, float, str]] = []

    def mark(self) -> int:
        return sum(at <= self.clock.now for at in self.changes)

    async def sleep(self, seconds: float) -> None:
        """Sleep; a suspended process wakes up late."""
        begin, length_s = self.asleep
        late = begin - seconds <= self.clock.now < begin
        await self.clock.sleep(seconds + late * length_s)
        if self.clock.now > 10_000:
            raise TimeoutError

    def hear(self, what: str) -> Callable[[str], None]:
        return lambda text: self.heard.append((what, self.clock.now, text))

    def watch(self, warn_after_s: float, stop_after_s: float) -> list[tuple[str, float]]:
        """What was heard and when; ends when the watchdog does, or after 10,000 s."""
        watchdog = Watchdog(
            self.mark,
            lambda: self.waiting_for,
            warn_after_s=warn_after_s,
            stop_after_s=stop_after_s,
            on_warn=self.hear("warn"),
            on_stop=self.hear("stop"),
            clock=self.clock,
            sleep=self.sleep,
        )
        try:
            anyio.run(watchdog.run)
        except TimeoutError:
            self.heard.append(("watching", math.nan, ""))
        return [(what, at) for what, at, _ in self.heard if what != "watching"]


def test_a_standstill_is_told_and_ended():
    """Once after the first time, again at each doubling, and then the end."""
    assert Run().watch(100, 1000) == [
        ("warn", 100),
        ("warn", 200),
        ("warn", 400),
        ("warn", 800),
        ("stop", 1000),
    ]


def test_the_message_says_how_long_and_what_for():
    """As it is at that time, not as it was when the standstill began."""
    run = Run()
    run.watch(240, 1200)
    assert run.heard[0][2] == "nothing has happened for 240 s; waiting for: 3 requests"
    assert run.heard[-1][2] == "nothing has happened for 1,200 s; waiting for: 3 requests"


def test_a_run_that_waits_for_nothing_known_says_so():
    """The message never ends in a colon."""
    run = Run()
    run.waiting_for = ""
    run.watch(100, 100)
    assert run.heard[0][2].endswith("waiting for: nothing that is known")


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        pytest.param(tuple(range(0, 10_100, 99)), [], id="slow but alive"),
        pytest.param(
            (90.0,), [("warn", 190), ("warn", 290), ("stop", 340)], id="stands still later"
        ),
        pytest.param((150.0,), [("warn", 100), ("warn", 250)], id="warned, went on, warned anew"),
    ],
)
def test_any_change_begins_anew(changes: tuple[float, ...], first: list[tuple[str, float]]):
    """What counts is the time since the last change, for warning and for stopping."""
    heard = Run(changes).watch(100, 250)
    assert heard[: len(first)] == first
    assert bool(heard) is bool(first)


def test_after_stopping_it_is_silent():
    """The end is asked for once, in time even before any warning, and the task ends with it."""
    run = Run()
    assert run.watch(100, 2.5) == [("stop", 2.5)]
    assert run.clock.now == 2.5
    assert ("watching", math.nan, "") not in run.heard


def test_without_an_end_it_goes_on_warning():
    """`stop_after_s` may be infinite: an outage may take all night."""
    heard = Run().watch(1000, math.inf)
    assert heard == [("warn", 1000), ("warn", 2000), ("warn", 4000), ("warn", 8000)]


def test_a_suspended_process_is_not_hung():
    """Time in which nothing could happen is not counted: Ctrl-Z over lunch stops no run."""
    changes = (30.0, 5060.0)
    assert Run(changes, asleep=(50, 5000)).watch(100, 250)[0] == ("warn", 5160)


def test_it_looks_rarely():
    """Twenty times in the time after which it warns: a watchdog must cost nothing."""
    run = Run()
    run.watch(100, 1000)
    assert len(run.clock.slept) == pytest.approx(200, abs=1)


def test_it_can_be_cancelled():
    """It ends with the task group of the run that it watches."""

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            watchdog = Watchdog(
                lambda: 0,
                lambda: "",
                warn_after_s=1000,
                stop_after_s=1000,
                on_warn=print,
                on_stop=print,
            )
            tasks.start_soon(watchdog.run)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    anyio.run(main)


class Stopped(Exception):
    """What a handler of the process raises at a signal."""


@pytest.fixture
def raising() -> Iterator[None]:
    """SIGTERM raises, as it does in the process of a command."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("raising")
def test_a_signal_before_anything_listens_is_raised_at_the_end():
    """An exception in the middle of the event loop's start might be swallowed."""
    reached = False
    with pytest.raises(Stopped), signals_held():  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        reached = True
    assert reached


@pytest.mark.usefixtures("raising")
def test_a_signal_before_supervision_stops_the_work(tmp_path: Path):
    """The signal that came while the loop started is the first that the supervisor hears."""
    stops: list[str] = []
    reporter = ProgressReporter(Progress(), None)

    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        stopped = anyio.Event()

        def fail(reason: Exception) -> None:
            stops.append(str(reason))
            stopped.set()

        async with supervised(LLMConfig(), None, directory, reporter, waiting_for=str, fail=fail):
            with anyio.fail_after(5):
                await stopped.wait()

    with RunDirectory(tmp_path / "run") as directory, signals_held():
        anyio.run(work)
    assert stops == ["interrupted"]
