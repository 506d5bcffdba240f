"""A declared limit, from an option, from headers or from both."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable

from claimscore.pipeline.llm.ratelimit.bucket import FIRST_BURST, Permit, TokenBucket
from claimscore.types import LimitState

#: The window that the limit is kept in: a minute, and slack for requests that arrive closer to
#: each other than they were sent.
_WINDOW_S = 60.25

#: A server's bucket that holds fewer seconds of the rate is not drawn on: the gain would be
#: small, and some servers round resets to whole seconds.
_DEEP_S = 3.0

#: Left in a server's bucket for late and bunched arrivals: seconds of the rate, units at least.
_MARGIN_S, _MARGIN = 0.25, 2.0


class DeclaredLimit:
    """Keeps one declared limit; without one, lets every request pass.

    Requests are paced evenly, and what was sent within a minute stays within the limit: by what
    was expected until there is an answer, by what it took from then on. Where headers show a
    bucket that is deeper than a few seconds of the rate, what is left in it is used instead.
    `units` are those of a permit that the limit counts.
    """

    def __init__(self, option: float | None, units: Callable[[Permit], float]) -> None:
        self._option = option
        self._units = units
        self._header: float | None = None
        self._bucket = TokenBucket()
        self._sent: collections.deque[Permit] = collections.deque()  # within the last minute
        self._units_sent = 0.0
        self._uses_credit, self._is_trusted = False, True
        self._heard_sent_at = -math.inf
        self._pace()

    @property
    def per_minute(self) -> float | None:
        """The limit that is kept; None where none is known."""
        known = [limit for limit in (self._option, self._header) if limit is not None]
        return min(known, default=None)

    @property
    def is_from_headers(self) -> bool:
        """Whether the limit that is kept is the server's."""
        return self._header is not None and self.per_minute == self._header

    def wait_s(self, units: float, now: float) -> float:
        """Seconds until a request of so many units may be sent; 0.0 now."""
        limit, bucket, sent = self.per_minute, self._bucket, self._sent
        if limit is None:
            return 0.0
        while sent and sent[0].sent_at <= now - _WINDOW_S:
            self._units_sent -= self._units(sent.popleft())
        if self._uses_credit:
            return bucket.wait_s(now, min(units, bucket.capacity))
        wait_s, excess = bucket.wait_s(now), self._units_sent + min(units, limit) - limit
        for permit in sent:
            if excess <= 0:
                break
            excess -= self._units(permit)
            wait_s = max(wait_s, permit.sent_at + _WINDOW_S - now)
        return wait_s

    def take(self, permit: Permit) -> None:
        """A request is sent."""
        if self.per_minute is not None:
            self._sent.append(permit)
            self._spend(self._units(permit), permit)

    def took_more(self, units: float, permit: Permit) -> None:
        """A request took so many units more than expected, or fewer where it is negative."""
        if self._sent and permit.sent_at >= self._sent[0].sent_at:
            self._spend(units, permit)

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause."""
        if not self._uses_credit:
            self._bucket.rest_until(when)

    def hear(self, state: LimitState, permit: Permit, now: float) -> bool:
        """Follow a header that came with the answer to a request; whether it is the first.

        It tells what was left at some moment between sending and answer: by now what flowed in
        since is on top at most. Of a credit that is new, a first burst may have been taken.
        """
        if state.limit is None or permit.sent_at < self._heard_sent_at:
            return False  # an earlier request's answer is no news
        is_first, self._header = self._header is None, state.limit
        self._heard_sent_at = permit.sent_at
        rate, left, bucket = state.limit / 60, state.remaining or 0.0, self._bucket
        depth = min(state.limit, left + (state.reset_s or 0.0) * rate)
        is_deep = state.remaining is not None and depth > _DEEP_S * rate
        had_credit = self._uses_credit
        self._uses_credit = is_deep and self._is_trusted and self.is_from_headers
        if self._uses_credit:
            margin = max(_MARGIN_S * rate, _MARGIN)
            bucket.fill(now)
            bucket.set_rate(rate, max(1.0, depth - margin))
            if not had_credit:
                bucket.level = left - margin - FIRST_BURST * self._units(permit)
            bucket.level = min(bucket.level, left - margin + rate * (now - permit.sent_at))
        else:
            self._pace()
        return is_first

    def distrust_credit(self) -> bool:
        """Pace from now on, for servers that refuse in spite of the credit that they show;
        whether it was in use."""
        was_used, self._is_trusted, self._uses_credit = self._uses_credit, False, False
        self._pace()
        return was_used

    def _pace(self) -> None:
        self._bucket.set_rate((self.per_minute or 1.0) / _WINDOW_S)

    def _spend(self, units: float, permit: Permit) -> None:
        self._units_sent += units
        self._bucket.level -= units
