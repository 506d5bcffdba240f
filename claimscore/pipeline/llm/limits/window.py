"""Slow start: how many requests may be in flight while nothing is known of the server."""

from __future__ import annotations

import math

#: In flight at the start, and after a pause.
FIRST_WINDOW = 8.0
WINDOW_AFTER_PAUSE = 2.0

#: Doubled at the latest after so long without a refusal: answers may take much longer than
#: refusals do.
PATIENCE_S = 0.5

#: What a busy machine was too late to send is caught up with, up to this part of a round trip.
_CATCH_UP = 0.25

#: A refusal takes away what so many answers brought.
_ANSWERS_PER_REFUSAL = 2.0


class Window:
    """Doubles with every round trip, until concurrency alone bounds what is in flight.

    What may be sent in a round trip is spread over it, so that refusals are heard before all
    of it is on the way.
    """

    def __init__(self, largest: int, *, closed: bool) -> None:
        self._largest = largest
        self.size = math.inf
        self._size_then = math.inf
        self._doubled_at: float | None = None
        self._round_trip_s = math.inf
        self._next_at = -math.inf
        if closed:
            self.restart(FIRST_WINDOW)

    @property
    def is_open(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.size == math.inf

    def open(self) -> None:
        """Let all through."""
        self.size = math.inf

    def restart(self, size: float = WINDOW_AFTER_PAUSE) -> None:
        """Begin anew, with few."""
        self._resize(size)
        self._doubled_at = None

    def wait_s(self, in_flight: int, now: float) -> float:
        """How long until one more may be sent, should no answer come before; 0.0 now."""
        if self.is_open:
            return 0.0
        if in_flight < self.size:
            return max(0.0, self._next_at - now)
        if self._doubled_at is None:
            self._doubled_at = now
        wait_s = self._doubled_at + PATIENCE_S - now
        if wait_s > 0:
            return wait_s
        self._double(2 * self.size, now)
        return 0.0

    def sent(self, now: float) -> None:
        """One more is under way."""
        if self._round_trip_s < math.inf and not self.is_open:
            gap_s = self._round_trip_s / self.size
            late_s = max(2 * gap_s, _CATCH_UP * self._round_trip_s)
            self._next_at = max(self._next_at, now - late_s) + gap_s

    def answered(self, in_flight: int, elapsed_s: float, now: float) -> None:
        """Grow by one; only where what is allowed was used, for else nothing was tried."""
        self._round_trip_s = min(self._round_trip_s, elapsed_s)
        if self.is_open or in_flight < self.size / 2:
            return
        self.size += 1
        if self.size >= min(2 * self._size_then, self._largest):
            self._double(self.size, now)

    def refused(self, now: float) -> None:
        """Shrink, and wait for answers before growing further."""
        if not self.is_open:
            self.size = max(WINDOW_AFTER_PAUSE, self.size - _ANSWERS_PER_REFUSAL)
            self._doubled_at = now

    def stalled(self, now: float) -> None:
        """Something else failed: wait for answers before growing further."""
        self._doubled_at = now

    def _double(self, size: float, now: float) -> None:
        self._resize(size)
        self._doubled_at = now

    def _resize(self, size: float) -> None:
        self.size = self._size_then = size if size < self._largest else math.inf
