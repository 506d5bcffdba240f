"""A run that hangs is told by name, more rarely as it lasts, and ended; signals are heard."""

from __future__ import annotations

import functools
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from claimscore.config import LLMConfig
from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.supervision import signals_held, supervised, watch
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
        watching = functools.partial(
            watch,
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
            anyio.run(watching)
        except TimeoutError:
            self.hear("watching")("")
        return [(what, at) for what, at, _ in self.heard if what != "watching"]


def warned(*at: float) -> list[tuple[str, float]]:
    return [("warn", seconds) for seconds in at]


@pytest.mark.parametrize(
    ("run", "limits", "heard"),
    [
        pytest.param(Run(), (100, 1000), [*warned(100, 200, 400, 800), ("stop", 1000)], id="still"),
        pytest.param(Run(), (100, 2.5), [("stop", 2.5)], id="ended before any warning"),
        pytest.param(Run(), (1000, math.inf), warned(1000, 2000, 4000, 8000), id="without an end"),
        pytest.param(Run(tuple(range(0, 10_100, 99))), (100, 250), [], id="slow but alive"),
        pytest.param(Run((90.0,)), (100, 250), [*warned(190, 290), ("stop", 340)], id="later"),
        pytest.param(
            Run((150.0,)), (100, 250), [*warned(100, 250, 350), ("stop", 400)], id="warned anew"
        ),
        pytest.param(
            Run((30.0, 5060.0), asleep=(50, 5000)),
            (100, 250),
            [*warned(5160, 5260), ("stop", 5310)],
            id="suspended, not hung",
        ),
    ],
)
def test_a_standstill_is_told_and_ended(
    run: Run, limits: tuple[float, float], heard: list[tuple[str, float]]
) -> None:
    assert run.watch(*limits) == heard
    is_ended = ("stop", run.clock.now) in heard
    assert is_ended is (run.heard[-1][0] != "watching")
    assert len(run.clock.slept) <= 20 * run.clock.now / min(limits) + 1, "it looks rarely"


class Stopped(Exception):
    """What a handler of the process raises at a signal."""


@pytest.fixture
def _raising() -> Iterator[None]:
    """SIGTERM raises, as it does in the process of a command."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_raising")
def test_a_signal_before_anything_listens_is_raised_at_the_end() -> None:
    """An exception in the middle of the event loop's start might be swallowed."""
    reached = False
    with pytest.raises(Stopped), signals_held():  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        reached = True
    assert reached


@pytest.mark.usefixtures("_raising")
def test_a_signal_before_supervision_stops_the_work(tmp_path: Path) -> None:
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
            with anyio.fail_after(60):
                await stopped.wait()

    with RunDirectory(tmp_path / "run") as directory, signals_held():
        anyio.run(work)
    assert stops == ["interrupted"]
