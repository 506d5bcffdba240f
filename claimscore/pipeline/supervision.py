"""Work that takes long: one event loop, wherever the caller is; progress is told, signals heard."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.progress import P, ProgressReporter
from claimscore.runs import RunDirectory

#: Exit status of a run that was stopped and can be taken up again.
EXIT_STOPPED = 75

#: What people see while requests in flight land.
STOPPING = "stopping: finishing what is in flight (Ctrl-C again: at once)"

#: libuv's event loop costs a request less than Python's own. There is none for Windows.
LOOP = {"use_uvloop": importlib.util.find_spec("uvloop") is not None}

T = TypeVar("T")

_Handler = Callable[[int, FrameType | None], object] | int | None


def run_blocking(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """The result of `work`; raises its own error, not a group of one.

    In a notebook, where a loop runs in this thread already, another thread has one; an interrupt
    cancels the work there.
    """
    try:
        if not _in_event_loop():
            return anyio.run(work, *args, backend_options=LOOP)
        with start_blocking_portal(backend_options=LOOP) as portal:
            return portal.call(work, *args)
    except BaseExceptionGroup as group:
        raise first_error(group) from None


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a nested group: what went wrong before the rest was cancelled."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _in_event_loop() -> bool:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


@contextlib.asynccontextmanager
async def supervised(
    engine: Engine | None,
    directory: RunDirectory,
    reporter: ProgressReporter[P],
    *,
    stop: Callable[[StoppedEarly], None],
) -> AsyncIterator[None]:
    """While the block works, tell how far it is and listen to signals.

    `stop` is asked to stop in good order at the first signal, with the reason.
    """
    progress = reporter.progress

    def interrupt() -> None:
        progress.phase = STOPPING
        stop(StoppedEarly("interrupted"))

    async with anyio.create_task_group() as background:
        background.start_soon(_watch_signals, interrupt)
        background.start_soon(reporter.keep_reporting, directory, engine)
        try:
            yield
        except Exception:
            if engine is not None:  # of other models, of the disk: paid answers still land
                reporter.phase(STOPPING, directory)
                engine.stop()
            raise
        finally:
            if engine is not None:
                progress.engine = engine.stats
        background.cancel_scope.cancel()


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


def _leave(why: str) -> NoReturn:
    os.write(2, f"\nclaimscore: {why}; run the same command to go on\n".encode())
    os._exit(EXIT_STOPPED)
