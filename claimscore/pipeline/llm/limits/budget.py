"""One known limit, of requests or of tokens: from an option, from headers, or from both.

Without headers, or under an option lower than what they say, the pace is smooth from the
first request on: in no window of 60 seconds more than the limit, at most a quarter second
caught up at once. Where headers show a bucket that is deeper than a few seconds, what is
left in it is used.

A header tells `remaining` at some moment between sending and answer. At its earliest all
that was sent since must be subtracted and what flowed in since added; at its latest it
holds as it is. Our own account of the server's bucket is left alone where it lies between
the two, and moved to the nearer one where not: so it neither drifts, nor depends on how
long answers take, in which order they come, or when the server looked.
"""

from __future__ import annotations

from typing import NamedTuple

from claimscore.pipeline.llm.limits.leases import Leases
from claimscore.pipeline.llm.limits.pace import BURST_S, Pace
from claimscore.types import LimitState

#: Buckets that hold fewer seconds of the rate are not drawn on: the gain would be small, and
#: resets are rounded to whole seconds by some servers.
DEEP_S = 3.0

#: While a server shows more than so many seconds of its rate saved up, its own account is
#: followed, which all processes see; below it, they share what flows in.
CREDIT_LEFT_S = 2.0

#: What is left in a server's bucket, in seconds of the rate, for late and bunched arrivals.
MARGIN_S = 0.25

#: Buckets that hold fewer units say nothing of what others use.
_TELLING_UNITS = 8.0

#: For rounding and the clock, in each window of 60 seconds.
ROUNDING_S = 0.01

#: The largest single request that the pace makes room for, as a share of the limit.
_LARGEST_SHARE = 0.05


class Told(NamedTuple):
    """What headers say: units a minute, what is left of them, and how many there can be."""

    per_minute: float
    remaining: float | None
    depth: float

    @property
    def depth_s(self) -> float:
        """What the bucket holds, in seconds of the rate."""
        return self.depth * 60 / self.per_minute


def read(state: LimitState) -> Told | None:
    """A server's limit as a bucket; None where it does not say how large it is.

    What takes longer than a minute to fill is the limit of a longer time, a day mostly: the
    rate is then what flows in until the reset.
    """
    limit, remaining, reset_s = state.limit, state.remaining, state.reset_s
    if limit is None or limit <= 0:
        return None
    if remaining is None:
        return Told(limit, None, 0.0)
    remaining = min(max(remaining, 0.0), limit)
    per_minute = limit
    if reset_s is not None and reset_s > 60.0 + BURST_S and remaining < limit:
        per_minute = 60.0 * (limit - remaining) / reset_s
    return Told(per_minute, remaining, min(limit, remaining + (reset_s or 0.0) * per_minute / 60))


class Budget:
    """Keeps one limit; without any, lets everything through.

    With `leases` its units are drawn from what all processes share.
    """

    def __init__(self, option: float | None, leases: Leases | None = None) -> None:
        self.option = option
        self.told: Told | None = None
        self.pace: Pace | None = None
        self._leases = leases
        self._leasing = True
        self._slack_s = 0.0 if leases is None else leases.slack_s
        self._credit_allowed = True
        self._margin = 0.0
        self._largest = 1.0
        self._empty = 2.0
        if option is not None:
            self._set_pace()

    @property
    def per_minute(self) -> float | None:
        """The limit that is kept; None where none is known."""
        known = [self.option, self.told.per_minute if self.told else None]
        return min((limit for limit in known if limit is not None), default=None)

    @property
    def from_headers(self) -> bool:
        """Whether the limit that is kept is the server's."""
        return self.told is not None and self.per_minute == self.told.per_minute

    @property
    def uses_credit(self) -> bool:
        """Whether the server's bucket is drawn on beyond the smooth pace."""
        return self.pace is not None and self.pace.ahead

    @property
    def shows_empty(self) -> bool:
        """Whether the server says that next to nothing is left, be it used by others."""
        told = self.told
        return told is not None and told.remaining is not None and told.remaining < self._empty

    def assume(self, per_minute: float | None) -> None:
        """Keep what headers said another time, until they speak again."""
        if per_minute is not None and self.told is None:
            self.told = Told(per_minute, None, 0.0)
            self._set_pace()

    def wait_s(self, units: float, now: float) -> float:
        """How long until so many units may be sent; 0.0 now."""
        return 0.0 if self.pace is None else self.pace.wait_s(units, now)

    def lease_s(self, units: float, now: float) -> float:
        """How long until other processes leave so many units; 0.0 now. To be asked last."""
        if self.pace is None or self._leases is None:
            return 0.0
        saved_up = self.pace.level - units > CREDIT_LEFT_S * self.pace.rate
        self._leasing = not (self.uses_credit and saved_up)
        return self._leases.wait_s(units, self.pace, now) if self._leasing else 0.0

    def take(self, units: float) -> None:
        """Spend units."""
        if self.pace is None:
            return
        self.pace.take(units)
        self._use_lease(units)
        if units > self._largest:
            self._largest, self._empty = units, 2 * units
            if not self.uses_credit:
                self._set_pace()

    def correct(self, units: float) -> None:
        """What was taken turned out to be so many more (or, negative, fewer)."""
        if self.pace is not None:
            self.pace.correct(units)
            self._use_lease(units)

    def give_back(self, units: float) -> None:
        """Units were taken but not used."""
        if self.pace is not None:
            self.pace.take(-units)
            self._use_lease(-units)

    def _use_lease(self, units: float) -> None:
        if self._leases is not None and self._leasing:
            self._leases.take(units)

    def close(self) -> None:
        """Let other processes have what this one holds."""
        if self._leases is not None:
            self._leases.give_back()

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause."""
        if self.pace is not None and not self.pace.ahead:
            self.pace.rest_until(when)

    def heard(self, state: LimitState, elapsed_s: float, sent_since: float, now: float) -> bool:
        """Follow a header of a request sent so long ago; whether it was news.

        `sent_since` is what went out after that request.
        """
        told = read(state)
        if told is None:
            return False
        known, self.told = self.told, told
        if known is None or (known.per_minute, known.depth) != (told.per_minute, told.depth):
            self._set_pace()
        if self.pace is not None and told.remaining is not None:
            self.pace.earn(now)
            self._adjust(told, elapsed_s, sent_since)
        return known is None or abs(known.per_minute / told.per_minute - 1) > 0.05

    def stop_using_credit(self) -> bool:
        """Keep to the smooth pace from now on; whether more than a second of it was in use.

        For servers that refuse in spite of what they show.
        """
        if self.pace is None or not self.uses_credit or self.pace.level < self.pace.rate:
            return False
        self._credit_allowed = False
        self._set_pace()
        return True

    def _adjust(self, told: Told, elapsed_s: float, sent_since: float) -> None:
        """Move our account of the server's bucket into what the header allows for."""
        assert self.pace is not None
        assert told.remaining is not None
        at_sending = told.remaining + told.per_minute / 60 * elapsed_s - sent_since
        low, high = sorted((min(at_sending, told.depth), told.remaining))
        if self.uses_credit:
            low = min(low - self._margin, self.pace.cap)
            self.pace.level = max(low, min(self.pace.level, high - self._margin))
        elif told.depth >= _TELLING_UNITS:
            self.pace.level = min(self.pace.level, high - self._margin)

    def _set_pace(self) -> None:
        """The pace that fits what is known; credit already earned is kept up to its cap."""
        limit = self.per_minute
        assert limit is not None
        pace = self.pace = self.pace or Pace(1.0)
        told, was_ahead = self.told, pace.ahead
        pace.ahead = self._draws_on_credit()
        if told is not None and pace.ahead:
            pace.rate = told.per_minute / 60
            self._margin = min(max(MARGIN_S * pace.rate, 2.0), told.depth / 4)
            pace.cap = told.depth - self._margin
        else:
            room = min(self._largest - 1, _LARGEST_SHARE * limit)
            pace.rate = (limit - room) / (60 + BURST_S + ROUNDING_S + self._slack_s)
            pace.cap = BURST_S * pace.rate
            depth = told.depth if told else 0.0
            self._margin = min(MARGIN_S * pace.rate, depth / 8)
            if was_ahead:
                pace.level = min(pace.level, 0.0)

    def _draws_on_credit(self) -> bool:
        told = self.told
        return (
            self._credit_allowed
            and told is not None
            and told.remaining is not None
            and told.depth_s > DEEP_S
            and (self.option is None or self.option >= told.per_minute)
        )
