"""What workers tell of their work, put together for the driver."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from claimscore.pipeline.llm.services.letters import Reason
from claimscore.pipeline.model_stage import QUEUED_TOKENS
from claimscore.rundir import Lies
from claimscore.types import JSON

#: Seconds between two reports of a worker.
REPORT_S = 0.5

#: A worker that has reported nothing for so long is not waited for when the run stops.
SILENT_S = 5.0

#: So long after its start nobody knows whether there are workers that have yet to report.
QUIET_S = 2.0


class Step(NamedTuple):
    """A step of a chunk that was written, and where its rows lie by table."""

    chunk: int
    step: str
    lies: dict[str, Lies]


class Counts(NamedTuple):
    """What models have done since their worker began; `share` is of chunks at work. `passes` has
    records and seconds by step, `stored` what was found in the store and what was computed."""

    pairs: int = 0
    share: float = 0.0
    passes: Mapping[str, tuple[int, float]] = MappingProxyType({})
    stored: tuple[int, int] | None = None

    def plus(self, other: Counts) -> Counts:
        """Those of two workers."""
        passes = dict(self.passes)
        for step, (records, seconds) in other.passes.items():
            before = passes.get(step, (0, 0.0))
            passes[step] = before[0] + records, before[1] + seconds
        stored = self.stored or other.stored
        if self.stored and other.stored:
            stored = self.stored[0] + other.stored[0], self.stored[1] + other.stored[1]
        return Counts(self.pairs + other.pairs, self.share + other.share, passes, stored)


@dataclasses.dataclass
class Report:
    """What a worker says of itself: counts since it began, and what is new since the last time.

    `is_idle`: it has nothing open, and opens nothing more because it was asked to stop. `waiting`
    has chunks that go to the models, with their tokens, `taken` those that a model has begun.
    """

    worker: str
    actor: str
    stage: str
    open: tuple[str, ...] = ()
    is_idle: bool = False
    steps: list[Step] = dataclasses.field(default_factory=list)
    waiting: dict[int, int] = dataclasses.field(default_factory=dict)
    taken: list[int] = dataclasses.field(default_factory=list)
    counts: Counts | None = None
    notices: list[tuple[str, JSON]] = dataclasses.field(default_factory=list)
    error: Reason | None = None


class Orders(NamedTuple):
    """What a worker is to do: open nothing more for now (`hold`) or at all (`stop`); `end`: fail
    what waits, the run is over."""

    hold: bool
    stop: Reason | None
    end: bool


class Look(NamedTuple):
    """What the driver sees: `steps` and `notices` are new since the last look."""

    steps: list[Step]
    notices: list[tuple[str, JSON]]
    stop: Reason | None
    is_idle: bool
    open: list[str]
    counts: Counts


class Board:
    """Sums over all workers, those that died included. Nothing on it must outlive its process:
    rows of the data set say again which steps are written, and living workers what they did."""

    def __init__(self, model_workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._room = QUEUED_TOKENS * max(1, model_workers)
        self._reports: dict[str, Report] = {}
        self._heard_at: dict[str, float] = {}
        self._lost: list[str] = []
        self._steps: list[Step] = []
        self._notices: list[tuple[str, JSON]] = []
        self._waiting: dict[int, int] = {}
        self._taken: set[int] = set()
        self.error: Reason | None = None
        self.is_over = False

    def hear(self, report: Report, stop: Reason | None) -> Orders:
        """Take a report in; what its worker is to do."""
        if report.worker not in self._reports:
            self._replace(report.actor)
        self._reports[report.worker] = report
        self._heard_at[report.worker] = self._clock()
        self._steps += report.steps
        self._notices += report.notices
        self.error = self.error or report.error
        for chunk in report.taken:
            self._taken.add(chunk)
            self._waiting.pop(chunk, None)
        for chunk, tokens in report.waiting.items():
            if chunk not in self._taken:
                self._waiting[chunk] = tokens
        return Orders(sum(self._waiting.values()) > self._room, stop or self.error, self.is_over)

    def _replace(self, actor: str) -> None:
        """What an actor was before it was started again is dead, and has nothing open."""
        for worker, report in self._reports.items():
            if report.actor == actor and worker in self._heard_at:
                del self._heard_at[worker]
                self._lost.append(worker)
                report.open, report.is_idle = (), True
                if report.counts is not None:
                    report.counts = report.counts._replace(share=0.0)

    def notice(self, kind: str, **fields: object) -> None:
        """An event that the services tell."""
        self._notices.append((kind, fields))

    def lost(self) -> list[str]:
        """Workers that were found to be dead since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def look(self) -> Look:
        """What the driver asks for, twice a second or so."""
        steps, self._steps = self._steps, []
        notices, self._notices = self._notices, []
        now = self._clock()
        living = [self._reports[w] for w, at in self._heard_at.items() if now - at < SILENT_S]
        return Look(
            steps,
            notices,
            self.error,
            now - self._began > QUIET_S and all(report.is_idle for report in living),
            [f"{work} ({report.stage})" for report in living for work in report.open],
            self._counts(),
        )

    def _counts(self) -> Counts:
        """Those of all workers there ever were."""
        total = Counts()
        for report in self._reports.values():
            total = total if report.counts is None else total.plus(report.counts)
        return total
