"""A rate with a little credit, as a token bucket: in how many seconds the next may go."""

from __future__ import annotations

#: How much unused time may be caught up at once, in seconds of the rate. Absorbs late
#: wake-ups; small, since servers refuse what exceeds about one second of the rate.
BURST_S = 0.25

#: Less than this is owed by rounding alone.
_ROUNDING = 1e-6

#: What requests took less than was thought is caught up slowly, and no more of it than a
#: server can have saved up meanwhile, both in seconds of the rate.
_REFUND_SPEED = 0.1
_REFUND_S = 0.5


class Pace:
    """`level` units may be sent at once; it grows by `rate` a second, up to `cap`.

    Where `ahead` is false the next goes as soon as nothing is owed, and is paid off
    afterwards, however large; where it is true, its units must be there first, or the
    bucket be full. A clock that stands still earns nothing; one that jumps ahead no more
    than `cap`.
    """

    __slots__ = ("_at", "_refund", "ahead", "cap", "level", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.cap = BURST_S * rate
        self.ahead = False
        self.level = 0.0
        self._refund = 0.0
        self._at: float | None = None

    def earn(self, now: float) -> float:
        """Bring the level up to date; return the seconds that were spent below the cap."""
        if self._at is None:
            self._at = now
        passed_s = now - self._at
        if passed_s <= 0:
            return 0.0
        self._at = now
        if self._refund:
            due = min(self._refund, _REFUND_SPEED * self.rate * passed_s)
            self._refund -= due
            self.level += due
        earned_s = min(passed_s, max(0.0, self.cap - self.level) / self.rate)
        self.level = min(self.cap, self.level + self.rate * earned_s)
        return earned_s

    def rest_until(self, when: float) -> None:
        """Earn nothing before this time, and bring nothing along."""
        self.level = min(self.level, 0.0)
        self._refund = 0.0
        self._at = when

    def wait_s(self, units: float, now: float) -> float:
        """How long until so many units may go; 0.0 now."""
        self.earn(now)
        owed = (min(units, self.cap) if self.ahead else 0.0) - self.level
        return owed / self.rate if owed > _ROUNDING else 0.0

    def take(self, units: float) -> None:
        """Spend units (or, negative, give them back), whether they are there or not."""
        self.level -= units

    def correct(self, units: float) -> None:
        """Spend so many more than were taken; fewer come back little by little."""
        if self.ahead:
            self.level -= units
            return
        left = self._refund - units
        self._refund = min(max(left, 0.0), _REFUND_S * self.rate)
        self.level += min(left, 0.0)
