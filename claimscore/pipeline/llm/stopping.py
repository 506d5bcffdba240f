"""How an engine stops: the first reason wins, tasks that wait are woken, answers may land."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import anyio

from claimscore.errors import RejectedError, StoppedEarly, TransientError

#: Seconds in which requests in flight may still be answered after a fatal error ...
GRACE_S = 5.0
#: ... and after an interrupt, a spent budget or another stop in good order.
STOP_GRACE_S = 30.0


#: The status of a server that fails for a reason that it does not tell.
_SERVER_ERROR = 500


class Halted(Exception):
    """Ends a worker after the engine stopped; the call that it worked for raises the reason."""


class Closed(StoppedEarly):
    """The engine was left; raised from calls that still wait for it."""


#: So many equal refusals, and nothing accepted: then it is all requests that are refused.
_ALL_REFUSED = 10
_NUMBERS = re.compile(r"[0-9a-f-]{8,}|[0-9]+")


class FirstAnswers:
    """The first answers of a run's servers: whether all of them are the same refusal.

    Not counted are refusals that pass (too fast, overloaded, no connection) and those that are
    about a text (a filter, its length).
    """

    def __init__(self) -> None:
        self._is_accepted = False
        self._said, self._n = "", 0

    def accepted(self) -> None:
        """A request was answered: what is refused from now on is the request's own fault."""
        self._is_accepted = True

    @property
    def are_refused(self) -> bool:
        """Whether enough equal refusals have come, and nothing else."""
        return not self._is_accepted and self._n >= _ALL_REFUSED

    def refused(self, error: Exception) -> bool:
        """Count a refusal; whether enough have come, all equal but for numbers."""
        is_failing = isinstance(error, TransientError) and error.status == _SERVER_ERROR
        is_rejected = isinstance(error, RejectedError) and error.kind == "rejected"
        if self._is_accepted or not (is_failing or is_rejected):
            return False
        said = _NUMBERS.sub("#", str(error))
        self._n = self._n + 1 if said == self._said else 1
        self._said = said
        return self.are_refused


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

    @contextlib.contextmanager
    def call(self, *, grace: bool) -> Iterator[None]:
        """A context that may go on for the grace after a stop, then is cancelled silently.

        Without `grace` at once: where answers take hours and another process can fetch them.
        """
        scopes = self._calls if grace else self._waiting
        with anyio.CancelScope() as scope:
            scopes.add(scope)
            try:
                yield
            finally:
                scopes.discard(scope)

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
