"""How an engine stops: the first reason wins, who waits is woken, what is in flight may land."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import anyio

from claimscore.errors import StoppedEarly

#: How long requests in flight may still bring their answer home after a fatal error ...
GRACE_S = 5.0
#: ... and after an interrupt, a spent budget or another stop in good order.
STOP_GRACE_S = 30.0


class Halted(Exception):
    """Ends a worker after the engine stopped; the call that it worked for raises the reason."""


class Closed(StoppedEarly):
    """The engine was left; for those who still ask it."""


class Stop:
    """The reason to stop, once there is one, and everybody who must hear of it.

    `grace_s` is for providers whose answers take hours and come another time.
    """

    def __init__(self, grace_s: float | None = None) -> None:
        self.reason: BaseException | None = None
        #: When that was, by the event loop's clock.
        self.since = math.inf
        self._grace_s = grace_s
        self._waiting: set[anyio.CancelScope] = set()
        self._calls: set[anyio.CancelScope] = set()

    def halt(self, reason: BaseException) -> None:
        """Wake all who wait. Answers in flight get time to land; the first reason stays."""
        if self.reason is not None:
            return
        self.reason = reason
        self.since = anyio.current_time()
        for scope in list(self._waiting):
            scope.cancel()
        in_good_order = isinstance(reason, StoppedEarly)
        grace_s = STOP_GRACE_S if in_good_order else GRACE_S
        deadline = self.since + (grace_s if self._grace_s is None else self._grace_s)
        for scope in list(self._calls):
            scope.deadline = min(scope.deadline, deadline)

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self.reason is not None:
            raise self.reason

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Work that may go on for a while after the stop, then is cancelled without an error."""
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                yield
            finally:
                self._calls.discard(scope)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for something that is not an answer: a stop ends it with `Halted`."""
        if self.reason is not None:
            raise Halted
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            raise Halted
