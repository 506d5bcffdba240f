"""Signals before, while and after the event loop starts are heard."""

import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.supervision import signals_held, supervised
from claimscore.runs import RunDirectory


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

        def stop(reason: Exception) -> None:
            stops.append(str(reason))
            stopped.set()

        async with supervised(None, directory, reporter, stop=stop):
            with anyio.fail_after(60):
                await stopped.wait()

    with RunDirectory(tmp_path / "run") as directory, signals_held():
        anyio.run(work)
    assert stops == ["interrupted"]
