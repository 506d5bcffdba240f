"""A worker's line to the head: its reports, and the orders that come back."""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from claimscore.errors import ClaimscoreError
from claimscore.pipeline.blocking import first_error
from claimscore.pipeline.llm.services.letters import Letter, Reply, Unreachable, reason_of
from claimscore.pipeline.ray.board import REPORT_S, Counts, Orders, Report, Step
from claimscore.rundir import Lies

#: So long a report may take; then it is sent again.
_PATIENCE_S = 10.0


def here() -> str:
    """The address of the node that this process is on."""
    address: Any = ray.util.get_node_ip_address  # without types
    return str(address())


class RunOver(Exception):
    """The run has ended; what still waits is for another one."""


class Link:
    """Reports twice a second, from a thread of its own, for as long as the process lives.

    What was new in a report that did not arrive is in the next one. Threads may share it.
    """

    def __init__(self, head: str, stage: str) -> None:
        actor = ray.get_runtime_context().get_actor_id() or ""
        self.name = f"{stage}-{actor[:12]}-{uuid.uuid4().hex[:8]}"
        self._head = head
        self._handle: Any = None
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._sending = threading.Lock()
        self._soon = threading.Event()
        self._closed = threading.Event()
        self._parent = os.getppid()
        self._report = Report(self.name, actor, stage)
        self._open: list[str] = []
        self._orders = Orders(hold=False, stop=None, end=False)
        self._counts: Callable[[], Counts] | None = None
        self.stopping = threading.Event()

    def start(self, counts: Callable[[], Counts] | None = None) -> None:
        """Begin to report; `counts` says how much the models have done, all in all."""
        self._counts = counts
        threading.Thread(target=self._run, name="reports", daemon=True).start()

    def close(self) -> None:
        """Report no more."""
        self._closed.set()
        self._soon.set()

    async def carry(self, letter: Letter) -> Reply:
        """Take a letter of an engine to the services."""
        try:
            reply: Reply = await self._actor().handle.remote(letter)
        except (RayActorError, ValueError) as exc:
            raise Unreachable(str(exc)) from exc
        return reply

    # -- what the worker tells

    def wrote(self, chunk: int, step: str, lies: dict[str, Lies]) -> None:
        """A step is written."""
        with self._mutex:
            self._report.steps.append(Step(chunk, step, lies))

    def waits(self, chunk: int, tokens: int) -> None:
        """A chunk goes to the models, with so many tokens."""
        with self._mutex:
            self._report.waiting[chunk] = tokens

    def takes(self, chunk: int) -> None:
        """A model has begun a chunk."""
        with self._mutex:
            self._report.taken.append(chunk)

    def tell(self, kind: str, **fields: object) -> None:
        """Something for the events of the run."""
        with self._mutex:
            self._report.notices.append((kind, dict(fields)))

    def failed(self, error: BaseException) -> None:
        """Stop everybody: something that no other chunk would fare better with. Of a bug, which
        nobody can raise again in another process, the traceback is kept."""
        if isinstance(error, BaseExceptionGroup):
            error = first_error(error)
        reason = reason_of(error)
        if not isinstance(error, ClaimscoreError):
            self.tell("bug", traceback="".join(traceback.format_exception(error)))
        with self._mutex:
            self._report.error = self._report.error or reason
        self.stopping.set()
        self._soon.set()

    # -- what it is told

    @contextlib.contextmanager
    def at(self, work: str) -> Iterator[None]:
        """Entered around work that may take long, with what it is, for people."""
        with self._mutex:
            self._open.append(work)
        try:
            yield
        finally:
            with self._mutex:
                self._open.remove(work)

    def wait_until_open(self) -> None:
        """Return when another chunk may be opened. Where the run stops it waits for the end of
        it, so that nothing passes through the stages undone, and raises `RunOver`."""
        with self._changed:
            while self._orders.hold or self.stopping.is_set():
                if self._orders.end:
                    raise RunOver
                self._changed.wait()

    def wait_for_end(self) -> RunOver:
        """Return when the run is over: for a chunk that was given up."""
        with self._changed:
            while not self._orders.end:
                self._changed.wait()
        return RunOver()

    # -- the thread

    def flush(self) -> None:
        """Report now: before the result of a chunk is given out, after which this process may
        be ended at any time."""
        self._send()

    def _run(self) -> None:
        while True:
            if not self._closed.is_set():
                self._send()
            self._soon.wait(REPORT_S)
            self._soon.clear()
            if os.getppid() != self._parent:
                os._exit(1)  # Ray is gone, and calls that wait for the end would keep this alive

    def _send(self) -> None:
        with self._sending:
            self._send_one()

    def _send_one(self) -> None:
        with self._mutex:
            report, self._report = self._report, self._fresh(self._report)
            report.counts = self._counts() if self._counts is not None else None
            report.open = tuple(sorted(self._open))
            report.is_idle = self.stopping.is_set() and not self._open
        try:
            orders: Orders = ray.get(self._actor().report.remote(report), timeout=_PATIENCE_S)
        except (RayError, ValueError, RuntimeError):  # not there, or not there any more
            self._keep(report)
            return
        with self._changed:
            self._orders = orders
            if orders.stop is not None:
                self.stopping.set()
            self._changed.notify_all()

    @staticmethod
    def _fresh(report: Report) -> Report:
        """A report with nothing new."""
        return Report(
            report.worker,
            report.actor,
            report.stage,
            error=report.error,
        )

    def _keep(self, lost: Report) -> None:
        with self._mutex:
            report = self._report
            report.steps = lost.steps + report.steps
            report.notices = lost.notices + report.notices
            report.waiting = lost.waiting | report.waiting
            report.taken = lost.taken + report.taken

    def _actor(self) -> Any:
        if self._handle is None:
            self._handle = ray.get_actor(self._head)
        return self._handle
