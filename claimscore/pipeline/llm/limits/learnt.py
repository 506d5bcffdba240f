"""The rate of requests where nobody told it.

While a token bucket is empty it lets through exactly what flows in. So between two moments
at which it was empty, that is at which requests were refused, what was admitted per second
is the limit: that is how the rate is measured. Around it the rate moves like TCP's CUBIC:
a little below at first, long near it, then faster and faster beyond until refused again.
Where nothing was measured yet it starts low and doubles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from claimscore.pipeline.llm.limits.evidence import Run
from claimscore.pipeline.llm.limits.pace import BURST_S, Pace

#: The measured rate times this, right after it was measured ...
_BELOW = 0.95
#: ... and this, when it is tried for long.
_NEAR = 0.98

#: How long the rate takes to come near what was measured: so many requests, within bounds;
#: but not much longer than it was measured, for a short measurement is a rough one.
_NEAR_AFTER_REQUESTS = 250
_NEAR_AFTER_S = (5.0, 20.0)
_NEAR_AFTER_LEAST_S = 0.5

#: At a constant limit what was held back at first is used up by this time, in times to come
#: near, and then it takes at least so many requests to show.
_USED_UP = 1.72
_SHOW_REQUESTS = 10

#: While searching the rate doubles in this time, or in so many times what a refusal takes to
#: come, and not faster than in so many requests.
_DOUBLING_S = 0.25
_DOUBLING_ROUND_TRIPS = 2.0
_DOUBLING_REQUESTS = 4

#: The search begins this far below what was let through before, which was a bucket's credit,
#: and so far below what was a good rate once.
_BELOW_CREDIT = 8.0
_BELOW_GOOD = 4.0

#: Where refusals went on at a lower rate, this share of what was admitted is tried.
_DOUBTFUL = 0.9

_LEAST_PER_S = 0.05


class _Measured(NamedTuple):
    """Requests a second, and over how long they were counted."""

    rate: float
    seconds: float


class Mark(NamedTuple):
    """When a bucket was last seen empty: the latest refused request."""

    seq: int
    sent_at: float


class LearntRate:
    """Bounds requests a second once there was evidence of a limit; before, nothing."""

    def __init__(self, good: float | None = None) -> None:
        self.good: float | None = None
        self._pace: Pace | None = None
        self._near_s = 0.0
        #: Seconds during which the rate was what held requests back: idle time tries nothing.
        self._tried_s = 0.0
        self._since_take_s = 0.0
        self._waited = False
        self._mark: Mark | None = None
        self._refused_since_mark = 0
        self._undo: tuple[float | None, float, float] = (None, 0.0, 0.0)
        #: Whether lowering was right; where not known yet, several are undone together.
        self.settled = True
        self._on_trial = False
        self._closed_before = False
        self._feedback_s = 0.0
        if good is not None:
            self._hold(good)

    @property
    def rate(self) -> float | None:
        """Requests a second; None while unbounded."""
        return None if self._pace is None else self._pace.rate

    def probed(self, rate: float | None) -> bool:
        """Whether this rate is higher than what is known to be good."""
        return rate is not None and (self.good is None or rate > self.good)

    def wait_s(self, now: float) -> float:
        """How long until one more may be sent; 0.0 now."""
        pace = self._pace
        if pace is None:
            return 0.0
        earned_s = pace.earn(now)
        if self._waited:
            self._since_take_s += earned_s
            self._tried_s += earned_s
        if self.good is not None:
            if self._on_trial and self._near_s >= _NEAR_AFTER_S[0]:
                self._tried_s = min(self._tried_s, self._near_s)
            self._set_rate(self.good * _growth(self._tried_s / self._near_s - 1))
        wait_s = pace.wait_s(1, now)
        self._waited = wait_s > 0
        return wait_s

    def take(self) -> None:
        """One was sent."""
        if self._pace is None:
            return
        self._pace.take(1)
        if self.good is None:
            doubling_s = max(_DOUBLING_S, _DOUBLING_ROUND_TRIPS * self._feedback_s)
            doublings = min(self._since_take_s / doubling_s, 1 / _DOUBLING_REQUESTS)
            self._set_rate(self._pace.rate * 2**doublings)
        self._since_take_s = 0.0

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause."""
        if self._pace is not None:
            self._pace.rest_until(when)

    def emptied(self, seq: int, sent_at: float) -> None:
        """A refusal that was known to be coming: the bucket is still empty."""
        if self._mark is None or seq > self._mark.seq:
            self._mark, self._refused_since_mark = Mark(seq, sent_at), 0

    def refused(self) -> None:
        """One was refused that was sent since the rate was last lowered."""
        self._refused_since_mark += 1

    def go_on(self) -> None:
        """Lowering the rate was right."""
        self.settled, self._on_trial, self._closed_before = True, False, False

    def lower_further(self, share: float) -> None:
        """So many are still refused: less than what would get through, if that is the limit."""
        if self.good is not None:
            self._hold(_DOUBTFUL * (1 - share) * self.good)

    def undo(self) -> None:
        """Go back to the rate before it was lowered."""
        self.go_on()
        rate, good, tried_s = self._undo
        if rate is None:
            self._pace = self.good = None
        else:
            self._hold(good or rate)
            self._tried_s = tried_s if good else 0.0

    def limited(
        self,
        run: Run,
        rate: float | None,
        *,
        admitted_per_s: float,
        feedback_s: float,
    ) -> bool:
        """Lower the rate by evidence; whether there was something to measure it by.

        `rate` is the one at which the last of the run was sent. `admitted_per_s` is what was
        let through since the start, credit included.
        """
        self._feedback_s = feedback_s
        if self.settled:
            self._undo = (self.rate, self.good or 0.0, self._tried_s)
        measured = self._measure(run, rate)
        searching = self.rate is not None and self.good is None
        self.settled, self._on_trial = False, measured is not None and not searching
        if measured is not None:
            self._hold(measured.rate, measured.seconds)
        elif self.good is not None and not self._closed_before:
            self._closed_before = True
            self._hold(self.good)
        else:
            self._search(
                admitted_per_s / _BELOW_CREDIT if self.rate is None else self.rate / _BELOW_GOOD
            )
        if self._pace is not None:
            self._pace.level = min(self._pace.level, 0.0)
        self.emptied(run.last_seq, run.last_at)
        return measured is not None

    def _measure(self, run: Run, rate: float | None) -> _Measured | None:
        """The limit by what got through; None where that is too little to say."""
        by_run = _rate(run.admitted, run.last_at - run.first_at)
        by_mark = self._since_mark(run)
        if rate is None:
            cautious = run.admitted - math.sqrt(run.admitted)
            return _rate(cautious, run.last_at - run.first_at) if run.admitted >= 10 else None
        if self.good is None:
            return by_mark and by_mark._replace(seconds=by_mark.seconds / 2)
        if run.refused >= 5 and run.admitted <= 1:
            return None
        if by_mark is None:
            return by_run
        agree = by_run is not None and 0.7 < by_run.rate / by_mark.rate < 1.4
        if by_run is not None and not agree and run.sent >= 10:
            return by_run
        through = max(0.5, 1 - (run.refused - 1) / max(1, run.sent - 1)) * rate
        if not agree and run.refused >= 5 and through < 0.7 * by_mark.rate:
            return _Measured(through, 0.0)
        if rate > self._highest(by_mark.rate, run.sent):
            return by_mark._replace(seconds=min(by_mark.seconds / 4, _SHOW_REQUESTS / by_mark.rate))
        if 0.9 < by_mark.rate / self.good < 1.1:
            return by_mark
        return by_mark._replace(seconds=by_mark.seconds / 4)

    def _highest(self, limit: float, n_shown: int) -> float:
        """How high the rate may be when refusals are heard, if this was the limit all along.

        `n_shown` is how many requests it took to show. Where it is higher, a bucket was full
        meanwhile, and the limit is more than was admitted.
        """
        heard_s = max(n_shown, _SHOW_REQUESTS) / limit + self._feedback_s
        return 1.1 * limit * _growth(_USED_UP + heard_s / self._near_s)

    def _since_mark(self, run: Run) -> _Measured | None:
        """What was admitted a second since the bucket was last empty."""
        mark = self._mark
        if mark is None:
            return None
        admitted = run.last_seq - mark.seq - self._refused_since_mark
        return _rate(admitted, run.last_at - mark.sent_at) if admitted >= 3 else None

    def _hold(self, good: float, measured_s: float = math.inf) -> None:
        """Stay near a rate that was measured for so long."""
        self.good = good
        near_s = min(max(_NEAR_AFTER_REQUESTS / good, _NEAR_AFTER_S[0]), _NEAR_AFTER_S[1])
        self._near_s = max(min(near_s, measured_s), _NEAR_AFTER_LEAST_S, 2 * self._feedback_s)
        self._tried_s = 0.0
        self._set_rate(_BELOW * good)

    def _search(self, rate: float) -> None:
        """Begin low and double."""
        self.good, self._since_take_s = None, 0.0
        self._set_rate(rate)

    def _set_rate(self, rate: float) -> None:
        rate = max(rate, _LEAST_PER_S)
        pace = self._pace = self._pace or Pace(rate)
        pace.rate, pace.cap = rate, BURST_S * rate


def _growth(x: float) -> float:
    """The rate, as a share of what was measured: -1 just after that, 0 when near it."""
    return _NEAR + (_NEAR - _BELOW) * x**3


def _rate(admitted: float, seconds: float) -> _Measured | None:
    return _Measured(admitted / seconds, seconds) if seconds > 0 and admitted >= 3 else None
