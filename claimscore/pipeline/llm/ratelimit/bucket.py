"""A token bucket: what every limit here is kept by."""

from __future__ import annotations

#: How much unused time may be caught up at once, in seconds of the rate. It absorbs late
#: wake-ups; it is small because some servers refuse more than about a second of the rate.
BURST_S = 0.25

#: A deficit below this comes from rounding alone.
_ROUNDING = 1e-6


class TokenBucket:
    """`level` units may be taken at once; `rate` units a second flow in, up to `capacity`.

    The level may fall below zero: a large request goes when nothing is owed and is paid off
    afterwards. In any window of T seconds the units taken, but for the last request, are at most
    rate * T + capacity. (The generic cell rate algorithm keeps the same account as a time.) A clock
    that is set back earns nothing; one that jumps ahead fills the bucket and no more.
    """

    __slots__ = ("_at", "capacity", "level", "rate")

    def __init__(
        self, rate: float, capacity: float, level: float = 0.0, at: float | None = None
    ) -> None:
        self.rate = rate
        self.capacity = capacity
        self.level = level
        self._at = at

    def fill(self, now: float) -> float:
        """Bring the level up to date; return the seconds in which the bucket was not full."""
        passed_s = 0.0 if self._at is None else now - self._at
        if passed_s <= 0:
            self._at = now if self._at is None else self._at
            return 0.0
        self._at = now
        filling_s = min(passed_s, max(0.0, self.capacity - self.level) / self.rate)
        self.level = min(self.capacity, self.level + self.rate * filling_s)
        return filling_s

    def wait_s(self, now: float, needed: float = 0.0) -> float:
        """Seconds until `needed` units are there, by default until nothing is owed; 0.0 now."""
        self.fill(now)
        missing = needed - self.level
        return missing / self.rate if missing > _ROUNDING else 0.0

    def rest_until(self, when: float) -> None:
        """Let nothing flow in before this time, and drop what was saved up."""
        self.level = min(self.level, 0.0)
        self._at = when
