"""The rate of requests where no limit was declared, found by the server's refusals (429)."""

from __future__ import annotations

import math
from typing import NamedTuple

from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket

#: In flight at the start, and after a pause or an outage.
_FIRST_WINDOW = 8.0
_WINDOW_AFTER_PAUSE = 2.0

#: The window doubles at the latest after so long without a refusal: answers may take much longer
#: than refusals.
_PATIENCE_S = 0.5

#: ... and after so long while the server has not said anything at all: its first answer may tell
#: its limits, which the first requests would have passed.
_FIRST_PATIENCE_S = 5.0

#: So many answers in time make up for one that was not; where this many were not, the requests in
#: flight fall to this share.
_IN_TIME = 4.0
_MANY_TIMEOUTS = 3.0
_SHARE_IN_TIME = 0.25

#: A busy machine that sends late catches up with this part of a round trip.
_CATCH_UP = 0.25


class SlowStart:
    """How many requests may be in flight while nothing is known of the server.

    The window grows by one with every answer, so it doubles with every round trip; from `largest`
    on it is open: concurrency alone bounds the requests. The requests of a round trip are spread
    over it, so that refusals are heard before all of them are under way.

    Where most answers do not come in time, the window falls towards one request. From then on only
    answers let it grow, by one in the time of a whole window: the server works on so few at once.
    """

    def __init__(self, largest: int, *, is_open: bool = False) -> None:
        self._largest = largest
        self._window = math.inf
        self._grown_at: float | None = None
        self._round_trip_s = math.inf
        self._next_at = -math.inf
        self._timeouts = 0.0
        self._is_overloaded = self._is_heard = False
        if not is_open:
            self._grow_to(_FIRST_WINDOW)

    def restart(self) -> None:
        """Begin again with few requests in flight."""
        self._grown_at = None
        self._grow_to(_WINDOW_AFTER_PAUSE)

    def open(self) -> None:
        """End: something else bounds the requests."""
        if not self._is_overloaded:
            self._window = math.inf

    @property
    def overloaded(self) -> int | None:
        """How many may be in flight since answers did not come in time; None where they do."""
        return max(1, int(self._window)) if self._is_overloaded else None

    def timed_out(self, in_flight: int) -> bool:
        """Count an answer that did not come in time; whether the window has fallen."""
        self._timeouts += 1
        if self._timeouts < _MANY_TIMEOUTS and not (self._is_overloaded and self._window <= 2):
            return False
        self._timeouts, self._is_overloaded = 0.0, True
        self._window = max(1.0, _SHARE_IN_TIME * min(self._window, in_flight))
        return True

    def wait_s(self, in_flight: int, now: float) -> float:
        """Seconds until one more request may go, should no answer come before; 0.0 now."""
        if self._window == math.inf:
            return 0.0
        if in_flight < (self.overloaded or self._window):
            return max(0.0, self._next_at - now)
        if self._is_overloaded:
            return math.inf
        if self._grown_at is None:
            self._grown_at = now
        wait_s = self._grown_at + (_PATIENCE_S if self._is_heard else _FIRST_PATIENCE_S) - now
        if wait_s > 0:
            return wait_s
        self._grown_at = now
        self._grow_to(2 * self._window)
        return 0.0

    def sent(self, now: float) -> None:
        """One more request is under way."""
        if self._round_trip_s < math.inf > self._window:
            earliest = now - _CATCH_UP * self._round_trip_s
            self._next_at = max(self._next_at, earliest) + self._round_trip_s / self._window

    def answered(self, in_flight: int, answer_s: float) -> None:
        """Grow by one if the window was used; else nothing was tried.

        The first answer makes up for the wait for what it might have told of limits, but the
        window stays a bound: requests go out over a round trip, and not all at once.
        """
        if not self._is_heard:
            self._is_heard = True
            waited = min(answer_s, _FIRST_PATIENCE_S) / _PATIENCE_S
            caught_up = min(_FIRST_WINDOW * 2**waited, self._largest - 1)
            self._grow_to(max(self._window, caught_up))
        self._round_trip_s = min(self._round_trip_s, answer_s)
        self._timeouts = max(0.0, self._timeouts - 1 / _IN_TIME)
        if in_flight >= self._window / 2:
            self._grow_to(self._window + (1 / self._window if self._is_overloaded else 1))

    def failed(self, now: float) -> None:
        """Wait for answers, or for a while, before growing further."""
        self._is_heard = True
        if self._grown_at is not None:
            self._grown_at = now

    def _grow_to(self, window: float) -> None:
        self._window = window if window < self._largest else math.inf
        self._is_overloaded &= self._window < math.inf


#: The share of requests that a limit refuses, the share that may be isolated refusals, and the
#: evidence asked for, as the logarithm of the likelihood ratio; ...
_LIMITED, _ISOLATED, _EVIDENCE = 0.15, 0.075, 6.0
#: ... and once there was a limit beyond doubt, when isolated refusals are taken to be rarer.
_LIMITED_AGAIN, _ISOLATED_AGAIN, _EVIDENCE_AGAIN = 0.08, 0.015, 5.0

#: Where less than this share of requests passes, there is a limit beyond doubt.
_DOUBTFUL = 0.7


class Refusals(NamedTuple):
    """So many of the requests that were sent from the first to the last of them were refused."""

    n_refused: int
    n_sent: int

    @property
    def share_passed(self) -> float:
        return 1 - self.n_refused / self.n_sent


class RefusalTest:
    """Whether refusals come from a limit or are isolated: Page's CUSUM test (1954).

    Requests are looked at in the order of sending. A refusal adds the logarithm of how much
    likelier it is under a limit than by itself; a request that was not refused takes a little
    away. Some servers refuse a share of requests at any rate, and slowing down does not help there.
    """

    def __init__(self) -> None:
        self._limited, self._isolated, self._evidence = _LIMITED, _ISOLATED, _EVIDENCE
        self._sum = 0.0
        self._n_refused = 0
        self._first_seq = self._last_seq = 0

    def refused(self, seq: int) -> Refusals | None:
        """Count a refusal; the recent refusals where they are evidence of a limit."""
        n_passed = max(0, seq - self._last_seq - 1)
        self._last_seq = max(seq, self._last_seq)
        self._sum -= n_passed * math.log((1 - self._isolated) / (1 - self._limited))
        if self._sum <= 0:
            self._sum, self._n_refused, self._first_seq = 0.0, 0, seq
        self._sum += math.log(self._limited / self._isolated)
        self._n_refused += 1
        if self._sum < self._evidence:
            return None
        return Refusals(self._n_refused, max(self._last_seq - self._first_seq + 1, self._n_refused))

    def restart(self, seq: int, share_passed: float) -> None:
        """Look at the requests after this one, now that the rate is lower."""
        self._sum, self._last_seq = 0.0, seq
        if share_passed < _DOUBTFUL:
            self._limited, self._isolated = _LIMITED_AGAIN, _ISOLATED_AGAIN
            self._evidence = _EVIDENCE_AGAIN


#: After evidence of a limit the rate begins at this share of what was measured, ...
_BEGIN = 0.93
#: ... stays longest near this share, ...
_NEAR = 0.98
#: ... which it reaches in the time of so many requests, within bounds (and no later than
#: measuring took, nor earlier than it takes so many times to hear of a refusal).
_PERIOD_REQUESTS = 250
_PERIOD_S = (5.0, 30.0)
_LEAST_PERIOD_S = 1.0
_PERIOD_DELAYS = 3.0

#: A measurement counts so many requests at least. It is not used where the rate came to so many
#: times the measured one (the server's bucket had been full meanwhile), nor where so many times
#: the measured rate passed in the end (the limit has risen).
_LEAST_ADMITTED = 5
_FULL = 3.0
_RISEN = 1.2

#: Without a measurement the rate falls to the share that passed, as if this many more had passed;
#: the first time, if there is no doubt, to this share: a full bucket may have let the rest through.
_MORE_PASSED = 2
_FIRST_CUT = 1 / 5

_LEAST_PER_S = 0.05


class Evidence(NamedTuple):
    """That there is a limit: the recent refusals, and what the server let through.

    `n_admitted` requests passed in the `seconds` since the server's bucket was last seen empty.
    """

    refusals: Refusals
    nothing_passed: bool
    n_admitted: int
    seconds: float


class AdaptiveRate:
    """Bounds requests a second once refusals are evidence of a limit; before that, nothing.

    A server's token bucket lets through exactly what flows in while it is empty. So between two
    requests that met an empty bucket, the requests that passed, by the time, are the limit. From
    a little below what was measured the rate grows as in TCP's CUBIC (RFC 9438): slowly near the
    limit, then faster and faster beyond it until it is refused again. So a limit that has risen is
    found soon. Only time in which this rate holds requests back counts as growth.
    """

    def __init__(self) -> None:
        #: The limit as it was last found, in requests a second.
        self.found_per_s: float | None = None
        self._test = RefusalTest()
        self._bucket: TokenBucket | None = None
        self._period_s = self._grown_s = 0.0
        self._held_back = False
        #: The last request that was sent before the latest evidence.
        self._judged_seq = 0
        self._n_refused = 0
        #: The latest request known to have met an empty bucket: its number and time.
        self._empty: tuple[int, float] | None = None
        #: Requests sent since a time, while there is no rate, and a second before that.
        self._since, self._n_since, self._before_per_s = -math.inf, 0, 0.0

    @property
    def per_s(self) -> float | None:
        """Requests a second; None while unbounded."""
        return None if self._bucket is None else self._bucket.rate

    def wait_s(self, now: float) -> float:
        """Seconds until one more request may be sent; 0.0 now."""
        bucket = self._bucket
        if bucket is None:
            return 0.0
        filling_s = bucket.fill(now)
        if self._held_back:
            self._grown_s += filling_s
            self._set_rate()
        wait_s = bucket.wait_s(now)
        self._held_back = wait_s > 0
        return wait_s

    def sent(self, now: float) -> None:
        """A request was sent."""
        if self._bucket is not None:
            self._bucket.level -= 1
            return
        if now - self._since >= 1:
            self._before_per_s = self._n_since / (now - self._since)
            self._since, self._n_since = now, 0
        self._n_since += 1

    def refused(self, seq: int, sent_at: float, last_seq: int) -> Evidence | None:
        """Hear of a refusal; the evidence of a limit, where it is enough.

        `last_seq` is the latest request sent: the evidence begins anew after it.
        """
        if seq <= self._judged_seq:
            if self._empty is None or seq > self._empty[0]:
                self._empty = seq, sent_at
            return None
        self._n_refused += 1
        refusals = self._test.refused(seq)
        if refusals is None:
            return None
        n_admitted, seconds = 0, 0.0
        if self._empty is not None:
            n_admitted = seq - self._empty[0] - self._n_refused
            seconds = sent_at - self._empty[1]
        nothing_passed = seq - self._judged_seq <= self._n_refused
        self._judged_seq, self._n_refused = last_seq, 0
        self._empty = seq, sent_at
        self._test.restart(last_seq, refusals.share_passed)
        return Evidence(refusals, nothing_passed, n_admitted, seconds)

    def lower(self, evidence: Evidence, delay_s: float, now: float) -> None:
        """Start at what the server lets through; refusals are heard of after `delay_s`.

        The rate stays where nothing has passed at it: the server is closed, whatever the rate.
        """
        if evidence.nothing_passed:
            return
        refusals, _, n_admitted, seconds = evidence
        share, is_first = refusals.share_passed, self._bucket is None
        rate = self.per_s or max(self._before_per_s, self._n_since / max(now - self._since, 0.1))
        measured = n_admitted / seconds if seconds > 0 and n_admitted >= _LEAST_ADMITTED else 0.0
        if rate < _FULL * measured and _BEGIN * share * rate < _RISEN * measured:
            self._start(measured, seconds, delay_s)
        elif is_first and share < _DOUBTFUL:
            self._start(_FIRST_CUT * rate, _LEAST_PERIOD_S, delay_s)
        else:
            share = 1 - refusals.n_refused / (refusals.n_sent + _MORE_PASSED)
            self._start(_BEGIN * share * rate, _LEAST_PERIOD_S, delay_s)

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause."""
        if self._bucket is not None:
            self._bucket.rest_until(when)

    def _start(self, found_per_s: float, measured_s: float, delay_s: float = 0.0) -> None:
        """Stay near a limit that was measured for so long; refusals come after `delay_s`."""
        self.found_per_s = max(found_per_s, _LEAST_PER_S)
        period_s = min(max(_PERIOD_REQUESTS / self.found_per_s, _PERIOD_S[0]), _PERIOD_S[1])
        period_s = max(min(period_s, measured_s), _LEAST_PERIOD_S)
        self._period_s, self._grown_s = max(period_s, _PERIOD_DELAYS * delay_s), 0.0
        self._set_rate()
        assert self._bucket is not None
        self._bucket.level = min(self._bucket.level, 0.0)

    def _set_rate(self) -> None:
        assert self.found_per_s is not None
        growth = (_NEAR - _BEGIN) * (self._grown_s / self._period_s - 1) ** 3
        rate = max((_NEAR + growth) * self.found_per_s, _LEAST_PER_S)
        bucket = self._bucket = self._bucket or TokenBucket(rate, 0.0)
        bucket.rate, bucket.capacity = rate, BURST_S * rate
