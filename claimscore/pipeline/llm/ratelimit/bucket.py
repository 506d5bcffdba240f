"""Permits, and the token bucket that paces them."""

from __future__ import annotations

import dataclasses

#: How much unused time may be caught up at once, in seconds of the rate. It absorbs late
#: wake-ups; it is small because some servers refuse more than about a second of the rate.
BURST_S = 0.25

#: So many requests go before anything is known of the server.
FIRST_BURST = 8

#: A deficit below this comes from rounding alone.
_ROUNDING = 1e-6


@dataclasses.dataclass(slots=True, eq=False)
class Permit:
    """Leave to send one request, ended exactly once at the limiter it came from.

    `tokens` are those reserved until it is answered, then those it took; `in_flight` others were
    in flight when it was sent.
    """

    tokens: int
    sent_at: float
    in_flight: int
    is_refused: bool = False


class TokenBucket:
    """`rate` units a second flow in, up to `capacity`.

    The level may fall below zero: a large request goes when nothing is owed and is paid off
    afterwards. In any window of T seconds the units taken, but for the last request, are at most
    rate * T + capacity. A clock that is set back earns nothing; one that jumps ahead fills the
    bucket and no more.
    """

    def __init__(self) -> None:
        self.rate = 1.0
        self.capacity = self.level = 0.0
        self._at: float | None = None

    def set_rate(self, rate: float, capacity: float = 0.0) -> None:
        """Take another rate from now on, and a capacity of `BURST_S` at least."""
        self.rate, self.capacity = rate, max(capacity, BURST_S * rate)

    def fill(self, now: float) -> float:
        """Bring the level up to date; return the seconds in which the bucket was not full."""
        passed_s = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now if self._at is None else max(now, self._at)
        filling_s = min(passed_s, max(0.0, self.capacity - self.level) / self.rate)
        self.level += self.rate * filling_s
        return filling_s

    def wait_s(self, now: float) -> float:
        """Seconds until nothing is owed; 0.0 now."""
        self.fill(now)
        return -self.level / self.rate if self.level < -_ROUNDING else 0.0

    def rest_until(self, when: float) -> None:
        """Let nothing flow in before this time, and drop what was saved up."""
        self.level, self._at = min(self.level, 0.0), when
