"""How an engine stops: the first reason wins, tasks that wait are woken, answers may land."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import anyio

from claimscore.errors import StoppedEarly

#: Seconds in which requests in flight may still be answered after a fatal error ...
GRACE_S = 5.0
#: ... and after an interrupt, a spent budget or another stop in good order.
STOP_GRACE_S = 30.0


class Halted(Exception):
    """Ends a worker after the engine stopped; the call that it worked for raises the reason."""


class Closed(StoppedEarly):
    """The engine was left; raised from calls that still wait for it."""


class Stop:
    """The reason to stop, once there is one, and the scopes of all tasks that it concerns.

    `grace_s` takes the place of the usual grace: for providers whose answers take hours, and can
    be fetched by another process.
    """

    def __init__(self, grace_s: float | None = None) -> None:
        self.reason: BaseException | None = None
        self._grace_s = grace_s
        self._waiting: set[anyio.CancelScope] = set()
        self._calls: set[anyio.CancelScope] = set()

    def halt(self, reason: BaseException) -> None:
        """Wake all tasks that wait. Requests in flight get their grace; the first reason stays."""
        if self.reason is not None:
            return
        self.reason = reason
        for scope in list(self._waiting):
            scope.cancel()
        grace_s = STOP_GRACE_S if isinstance(reason, StoppedEarly) else GRACE_S
        grace_s = grace_s if self._grace_s is None else self._grace_s
        deadline = anyio.current_time() + grace_s
        for scope in list(self._calls):
            scope.deadline = min(scope.deadline, deadline)

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self.reason is not None:
            raise self.reason

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A context that may go on for the grace after a stop, then is cancelled silently."""
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                yield
            finally:
                self._calls.discard(scope)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A context for waiting, but not for an answer: a stop ends it with `Halted`."""
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
