"""Work that takes long: one event loop, wherever the caller is; progress is told, signals heard."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

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
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]  # what went wrong before the rest was cancelled
        raise error from None


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

    async def watch_signals() -> None:
        while not _kept:
            await anyio.sleep(_LOOK_S)
        _kept.clear()
        progress.phase = STOPPING
        stop(StoppedEarly("interrupted"))

    async with anyio.create_task_group() as background:
        background.start_soon(watch_signals)
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


#: The signal that came while `signals_held`, until it is taken.
_kept: list[int] = []

#: Seconds between two looks whether one came.
_LOOK_S = 0.1


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep Ctrl-C or SIGTERM for `supervised`, or until the block is left: then it is raised again.

    A second one ends the process at once, as what is done is on disk. No handler raises: around the
    event loop an exception may fall into a callback, which swallows it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_first = True

    def keep(number: int, _: FrameType | None) -> None:
        nonlocal is_first
        if not is_first:
            os.write(2, b"\nclaimscore: stopped at once; run the same command to go on\n")
            os._exit(EXIT_STOPPED)
        is_first = False
        _kept.append(number)

    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python did not set cannot be set again
                signal.signal(number, handler)
        if _kept:
            signal.raise_signal(_kept.pop())
