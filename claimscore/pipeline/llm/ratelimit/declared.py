"""A declared limit, from an option, from headers or from both, kept by a token bucket."""

from __future__ import annotations

from typing import NamedTuple

from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket
from claimscore.types import LimitState


class HeaderLimit(NamedTuple):
    """A limit as headers declare it: units a minute, units left, and how many there can be."""

    per_minute: float
    remaining: float | None
    depth: float


def read_header(state: LimitState) -> HeaderLimit | None:
    """A server's limit as a bucket; None where the server does not say how large it is.

    A limit that takes longer than a minute to fill belongs to a longer time, mostly a day: its
    rate is what flows in until the reset.
    """
    limit, remaining, reset_s = state.limit, state.remaining, state.reset_s
    if limit is None or limit <= 0:
        return None
    if remaining is None:
        return HeaderLimit(limit, None, 0.0)
    remaining = min(max(remaining, 0.0), limit)
    per_minute = limit
    if reset_s is not None and reset_s > 60.0 + BURST_S and remaining < limit:
        per_minute = 60.0 * (limit - remaining) / reset_s
    depth = min(limit, remaining + (reset_s or 0.0) * per_minute / 60)
    return HeaderLimit(per_minute, remaining, depth)


#: A server's bucket that holds fewer seconds of the rate is not drawn on: the gain would be
#: small, and some servers round resets to whole seconds.
_DEEP_S = 3.0

#: Left in a server's bucket, in seconds of the rate, for late and bunched arrivals.
_MARGIN_S = 0.25

#: A server's bucket that holds fewer units says nothing of what others use.
_TELLING_UNITS = 8.0

#: For rounding and the clock, in each window of 60 seconds.
_CLOCK_S = 0.01

#: The largest single request for which the rate makes room, as a share of the limit.
_LARGEST_SHARE = 0.05


class DeclaredLimit:
    """Keeps one declared limit; without one, lets every request pass.

    Without headers, or under an option that is lower than the headers' limit, requests are paced
    evenly from the first one: no window of 60 seconds holds more than the limit. Where headers
    show a bucket that is deeper than a few seconds of the rate, what is left in it is used.

    A header tells what was left at some moment between sending and answer. At its earliest, all
    that was sent since must be subtracted and what flowed in since added; at its latest it holds
    as it is. The account kept here moves only as far as into the range between the two: so it
    neither drifts nor depends on how long answers take or in which order they come.
    """

    def __init__(self, option: float | None) -> None:
        self.option = option
        self.header: HeaderLimit | None = None
        self._bucket: TokenBucket | None = None
        self._uses_credit = False
        self._is_trusted = True
        self._margin = 0.0
        self._largest = 1.0
        if option is not None:
            self._set_rate()

    @property
    def per_minute(self) -> float | None:
        """The limit that is kept; None where none is known."""
        known = [self.option, self.header.per_minute if self.header else None]
        return min((limit for limit in known if limit is not None), default=None)

    @property
    def from_headers(self) -> bool:
        """Whether the limit that is kept is the server's."""
        return self.header is not None and self.per_minute == self.header.per_minute

    def wait_s(self, units: float, now: float) -> float:
        """Seconds until so many units may be sent; 0.0 now."""
        bucket = self._bucket
        if bucket is None:
            return 0.0
        return bucket.wait_s(now, min(units, bucket.capacity) if self._uses_credit else 0.0)

    def take(self, units: float) -> None:
        """Spend units, or give them back where `units` is negative."""
        if self._bucket is None:
            return
        self._bucket.level -= units
        if units > self._largest:
            self._largest = units
            if not self._uses_credit:
                self._set_rate()

    def correct(self, units: float) -> None:
        """A request took so many units more than were spent, or fewer where it is negative.

        Those that come back are saved up no longer than unused time.
        """
        if self._bucket is None:
            return
        self._bucket.level = min(self._bucket.level - units, self._bucket.capacity)

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause."""
        if self._bucket is not None and not self._uses_credit:
            self._bucket.rest_until(when)

    def hear(self, state: LimitState, elapsed_s: float, sent_since: float, now: float) -> bool:
        """Follow a header; whether it declared another limit than before.

        The header came with the answer to a request that was sent `elapsed_s` ago; `sent_since`
        are the units sent after that request.
        """
        header = read_header(state)
        if header is None:
            return False
        known, self.header = self.header, header
        if known is None or (known.per_minute, known.depth) != (header.per_minute, header.depth):
            self._set_rate()
        if self._bucket is not None and header.remaining is not None:
            self._bucket.fill(now)
            self._follow(self._bucket, header, header.remaining, elapsed_s, sent_since)
        return known is None or abs(known.per_minute / header.per_minute - 1) > 0.05

    def distrust_credit(self) -> bool:
        """Keep to the even rate from now on; whether more than a second's credit was in use.

        For servers that refuse in spite of the credit that they show.
        """
        bucket = self._bucket
        if bucket is None or not self._uses_credit or bucket.level < bucket.rate:
            return False
        self._is_trusted = False
        self._set_rate()
        return True

    def _follow(
        self,
        bucket: TokenBucket,
        header: HeaderLimit,
        remaining: float,
        elapsed_s: float,
        sent_since: float,
    ) -> None:
        """Move the level into the range that the header allows."""
        at_sending = remaining + header.per_minute / 60 * elapsed_s - sent_since
        low, high = sorted((min(at_sending, header.depth), remaining))
        if self._uses_credit:
            low = min(low - self._margin, bucket.capacity)
            bucket.level = max(low, min(bucket.level, high - self._margin))
        elif header.depth >= _TELLING_UNITS:
            bucket.level = min(bucket.level, high - self._margin)

    def _set_rate(self) -> None:
        """Take the rate that fits what is known; credit already earned is kept if it fits in."""
        limit, header = self.per_minute, self.header
        assert limit is not None
        bucket = self._bucket = self._bucket or TokenBucket(1.0, BURST_S)
        had_credit, self._uses_credit = self._uses_credit, False
        if header is not None and self._may_use_credit(header):
            self._uses_credit = True
            bucket.rate = header.per_minute / 60
            self._margin = min(max(_MARGIN_S * bucket.rate, 2.0), header.depth / 4)
            bucket.capacity = header.depth - self._margin
            return
        room = min(self._largest - 1, _LARGEST_SHARE * limit)
        bucket.rate = (limit - room) / (60 + BURST_S + _CLOCK_S)
        bucket.capacity = BURST_S * bucket.rate
        self._margin = min(_MARGIN_S * bucket.rate, header.depth / 8 if header else 0.0)
        if had_credit:
            bucket.level = min(bucket.level, 0.0)

    def _may_use_credit(self, header: HeaderLimit) -> bool:
        return (
            self._is_trusted
            and header.remaining is not None
            and header.depth * 60 / header.per_minute > _DEEP_S
            and (self.option is None or self.option >= header.per_minute)
        )
