"""How an engine stops: the first reason wins, tasks that wait are woken, answers may land."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

import anyio

from claimscore.errors import StoppedEarly

#: Seconds in which requests in flight may still be answered after a fatal error ...
GRACE_S = 5.0
#: ... and after an interrupt, a spent budget or another stop in good order.
STOP_GRACE_S = 30.0


class Halted(Exception):
    """Ends a worker after the engine stopped; the call that it worked for raises the reason."""


class Stop:
    """The reason to stop, once there is one, and the scopes of all tasks that it concerns."""

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self._waiting: set[anyio.CancelScope] = set()
        self._calls: set[anyio.CancelScope] = set()

    def halt(self, reason: BaseException, grace_s: float | None = None) -> None:
        """Wake all tasks that wait. Requests in flight get their grace; the first reason stays."""
        if self.reason is not None:
            return
        self.reason = reason
        for scope in list(self._waiting):
            scope.cancel()
        if grace_s is None:
            grace_s = STOP_GRACE_S if isinstance(reason, StoppedEarly) else GRACE_S
        deadline = anyio.current_time() + grace_s
        for scope in list(self._calls):
            scope.deadline = min(scope.deadline, deadline)

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self.reason is not None:
            raise self.reason

    def call(self, *, grace: bool) -> AbstractContextManager[anyio.CancelScope]:
        """A context that may go on for the grace after a stop, then is cancelled silently.

        Without `grace` at once: where answers take hours and another process can fetch them.
        """
        return self._scope(self._calls if grace else self._waiting)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A context for waiting, but not for an answer: a stop ends it with `Halted`."""
        if self.reason is not None:
            raise Halted
        with self._scope(self._waiting) as scope:
            yield
        if scope.cancelled_caught:
            raise Halted

    @contextlib.contextmanager
    def _scope(self, scopes: set[anyio.CancelScope]) -> Iterator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            scopes.add(scope)
            try:
                yield scope
            finally:
                scopes.discard(scope)
