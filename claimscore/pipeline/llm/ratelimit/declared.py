"""A declared limit, from an option, from headers or from both."""

from __future__ import annotations

import collections
from collections.abc import Callable

from claimscore.pipeline.llm.ratelimit.bucket import Permit, TokenBucket
from claimscore.types import LimitState

#: The window that the limit is kept in: a minute, and slack for requests that arrive closer to
#: each other than they were sent.
_WINDOW_S = 60.25

#: A server's bucket that holds fewer seconds of the rate is not drawn on: the gain would be small.
_DEEP_S = 3.0

#: Left in a server's bucket for late and bunched arrivals: seconds of the rate, units at least.
_MARGIN_S, _MARGIN = 0.25, 2.0


class DeclaredLimit:
    """Keeps one declared limit; without one, lets every request pass.

    Requests are paced evenly, by what they take likely. Under an option, what was sent within a
    minute stays within it: by what was reserved until there is an answer, by what it took from
    then on. Where the first header shows a bucket that is deeper than a few seconds of the rate,
    what is left in it is used at once. `units` are those of a permit that the limit counts.
    """

    def __init__(self, option: float | None, units: Callable[[Permit], int]) -> None:
        self._option = option
        self._units = units
        self._header: float | None = None
        self._bucket = TokenBucket()
        self._sent: collections.deque[Permit] = collections.deque()  # within the last minute
        self._units_sent, self._credit = 0, 0.0
        self._set_rate()

    @property
    def per_minute(self) -> float | None:
        """The limit that is kept; None where none is known."""
        known = [limit for limit in (self._option, self._header) if limit is not None]
        return min(known, default=None)

    @property
    def is_from_headers(self) -> bool:
        """Whether the limit that is kept is the server's."""
        return self._header is not None and self.per_minute == self._header

    def wait_s(self, units: int, now: float) -> float:
        """Seconds until so many units may be reserved; 0.0 now."""
        limit, sent = self.per_minute, self._sent
        if limit is None:
            return 0.0
        while sent and sent[0].sent_at <= now - _WINDOW_S:
            self._units_sent -= self._units(sent.popleft())
        wait_s = self._bucket.wait_s(now)
        excess = 0 if self.is_from_headers else self._units_sent + min(units, limit) - limit
        for permit in sent:
            if excess <= 0:
                break
            excess -= self._units(permit)
            wait_s = max(wait_s, permit.sent_at + _WINDOW_S - now)
        return wait_s

    def take(self, permit: Permit, likely: int) -> None:
        """A request is sent that takes so many units likely."""
        self._bucket.level -= likely
        if self._option is not None:
            self._sent.append(permit)
            self._units_sent += self._units(permit)

    def took_more(self, units: int, permit: Permit) -> None:
        """A request took so many units more than reserved, or fewer where it is negative."""
        if self._sent and permit.sent_at >= self._sent[0].sent_at:
            self._units_sent += units

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause, and use no credit from now on."""
        self._credit = 0.0
        self._set_rate()
        self._bucket.rest_until(when)

    def hear(self, state: LimitState) -> bool:
        """Follow a header; whether it is the first."""
        if state.limit is None:
            return False
        is_first, self._header = self._header is None, state.limit
        rate, left = state.limit / 60, min(state.remaining or 0.0, state.limit)
        if is_first and self.is_from_headers and left > _DEEP_S * rate:
            self._bucket.level = self._credit = left - max(_MARGIN_S * rate, _MARGIN)
        self._set_rate()
        return is_first

    def _set_rate(self) -> None:
        self._bucket.set_rate((self.per_minute or 1.0) / _WINDOW_S, self._credit)
