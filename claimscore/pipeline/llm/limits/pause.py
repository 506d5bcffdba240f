"""The one pause that all requests share."""

from __future__ import annotations

#: Without a `retry-after` the first pause is so long, each further one twice as long.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0


class Pause:
    """Nothing is sent before `until`, a time of the clock; 0.0 where there was no pause."""

    def __init__(self) -> None:
        self.until = 0.0
        self.why = ""
        self._n_in_a_row = 0

    def left_s(self, now: float) -> float:
        """How long it still lasts."""
        return max(0.0, self.until - now)

    def open(self, now: float, hint_until: float) -> None:
        """Begin until the time that the server named, or for longer and longer."""
        if hint_until > now:
            self.until = max(self.until, hint_until)
            self.why = "the server asks to come back later"
            return
        seconds = min(FIRST_PAUSE_S * 2**self._n_in_a_row, LONGEST_PAUSE_S)
        self._n_in_a_row += 1
        self.until = max(self.until, now + seconds)
        self.why = "the server refuses nearly everything"

    def extend(self, now: float, hint_until: float) -> None:
        """A later time named by a request that was under way when the pause began."""
        if self.until > now:
            self.until = max(self.until, hint_until)

    def answered(self) -> None:
        """The server takes requests again."""
        self._n_in_a_row = 0
