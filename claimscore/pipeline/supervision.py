"""Supervision of work that takes long: progress is told, signals are heard, a standstill ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import NoReturn

import anyio

from claimscore.config import LLMConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.stopping import STOP_GRACE_S
from claimscore.pipeline.progress import P, ProgressReporter
from claimscore.runs import RunDirectory

#: Exit status of a run that was stopped and can be taken up again.
EXIT_STOPPED = 75

#: Work in which nothing at all happens is hung: said after this time, or twice the timeout
#: of a request where that is longer.
HUNG_AFTER_S = 120.0

#: What people see while requests in flight land.
STOPPING = "stopping: finishing what is in flight (Ctrl-C again: at once)"

_Handler = Callable[[int, FrameType | None], object] | int | None

#: Looks so often in the time after which it warns or stops.
_LOOKS = 20


@contextlib.asynccontextmanager
async def supervised(
    llm: LLMConfig,
    engine: Engine | None,
    directory: RunDirectory,
    reporter: ProgressReporter[P],
    *,
    waiting_for: Callable[[], str],
    fail: Callable[[StoppedEarly], None],
) -> AsyncIterator[None]:
    """While the block works, tell how far it is, listen to signals, and end a standstill.

    `waiting_for` says what the work waits for. `fail` is asked to stop in good order, with the
    reason: at the first signal, and where nothing has happened for long. Where that does not help
    within the time that requests in flight get, the process ends.
    """
    progress, on_event = reporter.progress, reporter.event_listener(directory)

    def warn(message: str) -> None:
        on_event("hung", notice=message)

    def interrupt() -> None:
        progress.phase = STOPPING
        fail(StoppedEarly("interrupted"))

    def give_up(message: str) -> None:
        warn(message)
        progress.phase = STOPPING
        fail(StoppedEarly(message))
        background.start_soon(_leave_after, STOP_GRACE_S + 5)

    warn_after_s = max(HUNG_AFTER_S, 2 * llm.timeout_s)
    watching = partial(
        watch,
        progress.mark,
        waiting_for,
        warn_after_s=warn_after_s,
        stop_after_s=max(warn_after_s, llm.max_outage_s),
        on_warn=warn,
        on_stop=give_up,
    )
    async with anyio.create_task_group() as background:
        background.start_soon(_watch_signals, interrupt)
        background.start_soon(reporter.keep_reporting, directory, engine)
        background.start_soon(watching)
        try:
            yield
        except Exception:
            if engine is not None:  # of other models, of the disk: paid answers still land
                progress.phase = STOPPING
                engine.stop()
                await engine.landed()
            raise
        finally:
            if engine is not None:
                engine.observe()
        background.cancel_scope.cancel()


async def watch(
    progress_mark: Callable[[], Hashable],
    waiting_for: Callable[[], str],
    *,
    warn_after_s: float,
    stop_after_s: float,
    on_warn: Callable[[str], None],
    on_stop: Callable[[str], None],
    clock: Callable[[], float] = anyio.current_time,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> None:
    """Look again and again whether anything has changed, until cancelled or the run is stopped.

    `on_warn` hears of a standstill after `warn_after_s` and again each time it has lasted twice
    as long; `on_stop` once after `stop_after_s`. Any change of the mark begins anew.

    Time in which this process itself was suspended (Ctrl-Z, a closed lid) counts as no more
    than two looks: nothing could happen then, and the run must not be stopped for it. An event
    loop that is blocked is not noticed: the watch runs on it.
    """
    look_s = min(warn_after_s, stop_after_s) / _LOOKS
    mark, still_s, next_warning_s = progress_mark(), 0.0, warn_after_s
    while True:
        before = clock()
        await sleep(look_s)
        seen = progress_mark()
        if seen != mark:
            mark, still_s, next_warning_s = seen, 0.0, warn_after_s
            continue
        still_s += min(clock() - before, 2 * look_s)
        why = waiting_for() or "nothing that is known"
        message = f"nothing has happened for {still_s:,.0f} s; waiting for: {why}"
        if still_s >= stop_after_s:
            on_stop(message)
            return
        if still_s >= next_warning_s:
            next_warning_s *= 2
            on_warn(message)


#: Signals that came while `signals_held` and nothing listened yet.
_held: list[int] = []


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep Ctrl-C and SIGTERM for `supervised`, or until the block is left.

    Around the event loop: an exception that a handler raises while the loop starts or ends may
    fall into a callback, which swallows it. A kept signal stops the work as soon as `supervised`
    listens, or is raised again at the end of the block. A second one interrupts at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hold(number: int, _: FrameType | None) -> None:
        if _held:
            raise KeyboardInterrupt
        _held.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        _put_back(before)
        kept = _held.copy()
        _held.clear()
        if kept:
            signal.raise_signal(kept[0])


def _put_back(handlers: Mapping[signal.Signals, _Handler]) -> None:
    for number, handler in handlers.items():
        if handler is not None:  # one that Python did not set cannot be set again
            signal.signal(number, handler)


async def _watch_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first signal; leave at the second: what is done is on disk.

    Returns at once outside the main thread, where signals do not arrive. The handlers of before
    are put back at the end: the event loop would leave the system's, which kill the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with anyio.open_signal_receiver(*before) as signals:
            stopping = bool(_held)
            if stopping:
                _held.clear()
                stop()
            async for _ in signals:
                if stopping:
                    _leave("stopped at once")
                stopping = True
                stop()
    finally:
        _put_back(before)


async def _leave_after(seconds: float) -> None:
    """End the process unless cancelled before: for what hangs and cannot be cancelled."""
    await anyio.sleep(seconds)
    _leave("stopped: something hangs and does not hear")


def _leave(why: str) -> NoReturn:
    os.write(2, f"\nclaimscore: {why}; run the same command to go on\n".encode())
    os._exit(EXIT_STOPPED)
