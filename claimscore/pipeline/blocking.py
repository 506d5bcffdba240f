"""Async work from a plain call: one event loop, wherever the caller is."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

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
