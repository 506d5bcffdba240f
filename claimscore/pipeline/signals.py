"""Ctrl-C and SIGTERM: the first stops in good order, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

import anyio

#: Exit status of a run that was stopped and can be taken up again.
EXIT_STOPPED = 75


async def watch_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first signal; leave at the second: what is done is on disk.

    Returns at once outside the main thread, where signals do not arrive.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        stopping = False
        async for _ in signals:
            if stopping:
                _leave("stopped at once")
            stopping = True
            stop()


async def leave_after(seconds: float) -> None:
    """End the process unless cancelled before: for what hangs and cannot be cancelled."""
    await anyio.sleep(seconds)
    _leave("stopped: something hangs and does not hear")


def _leave(why: str) -> NoReturn:
    os.write(2, f"\nclaimscore: {why}; run the same command to go on\n".encode())
    os._exit(EXIT_STOPPED)
