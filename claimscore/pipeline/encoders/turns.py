"""Threads that share a device take turns on it: one batch at a time.

Two threads keep a device busy: while one computes, the other reads tables, tokenises, builds its
next batch or writes. Only the forward passes take turns.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


class Turns:
    """One thread at a time computes on a device; how long each waited for it is counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the device, and have it until the block ends."""
        began = time.monotonic()
        with self._lock:
            _waited.seconds += time.monotonic() - began
            yield


_shared: ContextVar[Turns | None] = ContextVar("turns", default=None)


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Models that are loaded within share a device: a batch of one waits for that of another.

    Why all of a device and not each by itself: a budget of tokens is found for a device whose
    free memory belongs to one batch.
    """
    token = _shared.set(Turns())
    try:
        yield
    finally:
        _shared.reset(token)


def device_turns() -> Turns:
    """The turns of the device whose models are being loaded, else new ones."""
    return _shared.get() or Turns()


def waited_s() -> float:
    """Seconds that this thread has waited for devices so far."""
    return _waited.seconds
