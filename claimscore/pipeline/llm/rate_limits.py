"""When the next request may go: declared limits, a learnt rate, slow start, pauses.

A declared limit comes from an option, from headers or from both, and is kept. What a server can
take where there is none is told by its refusals and by answers that do not come in time.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable

import anyio

from claimscore.types import LimitState, RateLimits

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


#: The window grows by so much with every answer.
_GROWTH = 0.5

#: So many answers that do not come in time let the window fall; as many in time make up for one.
_TIMEOUTS = 3


class Window:
    """How many requests may be in flight while nothing is known of the server: TCP's slow start.

    The window grows with every answer, so by half with every round trip. Where answers do not come
    in time it falls to half of what was in flight. From there on it grows by one in the time of a
    whole window (RFC 5681).
    """

    def __init__(self, *, is_open: bool) -> None:
        self._size = math.inf if is_open else FIRST_BURST
        self._in_flight = 0
        self._fell_at = -math.inf
        self._n_timeouts = 0.0

    def open(self) -> None:
        """End: something else bounds the requests."""
        if self._fell_at == -math.inf:
            self._size = math.inf

    def has_room(self, in_flight: int) -> bool:
        """Whether one more request may go."""
        return in_flight < self._size

    def take(self, permit: Permit) -> None:
        """A request is sent."""
        self._in_flight = permit.in_flight

    def answered(self) -> None:
        """An answer came in time."""
        self._n_timeouts = max(0.0, self._n_timeouts - 1 / _TIMEOUTS)
        self._size += _GROWTH if self._fell_at == -math.inf else 1 / self._size

    def timed_out(self, permit: Permit, now: float) -> None:
        """An answer did not come in time; those sent before the window fell are no news."""
        self._n_timeouts += permit.sent_at > self._fell_at
        if self._n_timeouts >= _TIMEOUTS:
            self._fell_at, self._n_timeouts = now, 0.0
            self._size = max(1.0, min(self._size, self._in_flight) / 2)


#: So many refusals among the latest requests are evidence of a limit; fewer are once there was a
#: limit beyond doubt: when not even this share had passed.
_LATEST, _EVIDENCE, _EVIDENCE_AGAIN = 40, 10, 3
_BEYOND_DOUBT = 0.5

#: The rate falls to this share of what passed: it grows back to that within a period, and in
#: another one beyond. Periods double until they have so many seconds and so many requests.
_FALL = 0.92
_FIRST_PERIOD_S, _PERIOD_S, _PERIOD_REQUESTS = 2.0, 20.0, 250

#: The share that passed is taken to be this at least, the first time and later.
_LEAST_SHARES = 0.1, 0.5
_LEAST_PER_S = 0.05


class LearntRate:
    """Requests a second by the server's refusals (429): the rate grows with time, and falls by
    the share that was refused. Without evidence of a limit, every request passes.

    A server's token bucket lets through exactly what flows in while it is empty: of the rate, the
    share that passed since a refusal is the limit. Only time in which the rate holds requests
    back lets it grow, slowly at first, so that few are refused before that is heard.

    Some servers refuse a share of requests at any rate. Slowing down does not help there, so a
    few refusals are no evidence, and while there is doubt half of the highest rate is kept: a
    limit below that lets so few pass that it is beyond doubt.
    """

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._latest: collections.deque[Permit] = collections.deque()
        #: The requests by which the rate fell: from a refused one to the last before it fell.
        self._judged: list[Permit] = []
        self._judged_at = -math.inf
        self._is_certain = self._has_passed = self._is_holding_back = False
        self._is_first = False
        self._sent_per_s = self._floor_per_s = self._passed_per_s = self._grown_s = 0.0
        self._period_s = _FIRST_PERIOD_S / 2

    @property
    def per_s(self) -> float | None:
        """Requests a second; None while unbounded."""
        return None if self._bucket is None else self._bucket.rate

    @property
    def is_closed(self) -> bool:
        """Whether all requests by which the rate was to fall were refused, and none has passed
        since: the server is closed for now, whatever the rate."""
        all_refused = not self._has_passed and all(permit.is_refused for permit in self._judged)
        return all_refused and bool(self._judged)

    def wait_s(self, now: float) -> float:
        """Seconds until one more request may be sent; 0.0 now."""
        if self._bucket is None:
            return 0.0
        filling_s = self._bucket.fill(now)
        if self._is_holding_back:
            self._grown_s += filling_s
            self._set_rate()
        wait_s = self._bucket.wait_s(now)
        self._is_holding_back = wait_s > 0
        return wait_s

    def take(self, permit: Permit) -> None:
        """A request is sent."""
        self._latest.append(permit)
        while len(self._latest) > _LATEST + permit.in_flight:
            self._latest.popleft()
        if self._bucket is not None:
            self._bucket.level -= 1

    def passed(self, permit: Permit) -> None:
        """A request was answered."""
        self._has_passed |= permit.sent_at > self._judged_at

    def refused(self, permit: Permit, now: float) -> bool:
        """Hear of a refusal; whether it is evidence of a limit, by which the rate falls."""
        permit.is_refused = True
        was_closed = self.is_closed
        if permit.sent_at <= self._judged_at:  # one more of those by which it fell
            self._fall()
            return self.is_closed and not was_closed
        latest = list(self._latest)
        before = [sent for sent in latest if sent.sent_at <= permit.sent_at][-_LATEST:]
        n_refused = sum(sent.is_refused for sent in before)
        enough = _EVIDENCE_AGAIN if self._is_certain else _EVIDENCE
        if n_refused < enough and not (was_closed and n_refused == len(latest)):
            return False
        self._judged, self._judged_at = latest[latest.index(before[0]) :], now
        self._has_passed = False
        self._latest.clear()
        suspect = self._since_refusal()
        seconds = suspect[-1].sent_at - suspect[0].sent_at
        self._is_first = self._bucket is None
        self._sent_per_s = self.per_s or len(suspect) / max(seconds, 0.1)
        longest_s = max(_PERIOD_S, _PERIOD_REQUESTS / self._sent_per_s)
        self._period_s = min(2 * self._period_s, longest_s)
        self._fall()
        self.rest_until(2 * now - permit.sent_at)  # until those in flight are heard of
        return True

    def rest_until(self, when: float) -> None:
        """Do not catch up after a pause."""
        if self._bucket is not None:
            self._bucket.rest_until(when)

    def _since_refusal(self) -> list[Permit]:
        """The requests by which the rate fell: the first one was refused."""
        first = next(number for number, sent in enumerate(self._judged) if sent.is_refused)
        return self._judged[first:]

    def _fall(self) -> None:
        """Begin below what passed since the first refusal; where nothing did, leave the rate."""
        if self.is_closed:
            return
        suspect = self._since_refusal()
        share = sum(not permit.is_refused for permit in suspect) / max(1, len(suspect) - 1)
        self._is_certain |= share < _BEYOND_DOUBT
        passed_per_s = max(share, _LEAST_SHARES[0 if self._is_first else 1]) * self._sent_per_s
        self._floor_per_s = max(self._floor_per_s, _BEYOND_DOUBT * passed_per_s)
        floor_per_s = 0.0 if self._is_certain else self._floor_per_s
        self._passed_per_s = max(passed_per_s, floor_per_s)
        self._grown_s = 0.0
        self._set_rate()

    def _set_rate(self) -> None:
        growth = (1 - _FALL) * (self._grown_s / self._period_s) ** 2
        self._bucket = self._bucket or TokenBucket()
        self._bucket.set_rate(max((_FALL + growth) * self._passed_per_s, _LEAST_PER_S))


#: Without a `retry-after` the first pause is so long; each further one is twice as long.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0

#: All requests pause where, with evidence of a limit, a `retry-after` asks for more than this.
_LONG_S = 1.0


class RateLimiter:
    """Gives leave to send to one server; is told how each request ended.

    Every permit must be ended exactly once: by `answered`, `refused` (a 429) or `failed`.

    Limits from an option (`rpm`, `tpm`) and from headers are kept by a `DeclaredLimit` each. Until
    one is known, a `Window` bounds the requests in flight, unless `slow_start` is false. Refusals
    are watched throughout: isolated ones delay their own request alone, more of them lower the
    `LearntRate`. Where nearly nothing passes, or such a refusal asks for more than a second, all
    requests pause; a pause lasts as long as the server asks.
    """

    def __init__(
        self,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        slow_start: bool = True,
    ) -> None:
        self._requests = DeclaredLimit(rpm, lambda _: 1)
        self._tokens = DeclaredLimit(tpm, lambda permit: permit.tokens)
        is_declared = rpm is not None or tpm is not None
        self._window = Window(is_open=is_declared or not slow_start)
        self._learnt = LearntRate()
        self._paused_until = self._ask_again_at = 0.0
        #: Why all requests pause, while they do.
        self.why_paused = ""
        self._n_pauses = 0

    def wait_s(self, tokens: tuple[int, int], in_flight: int) -> float:
        """Seconds until a request may go beside those in flight; 0.0 now.

        `tokens` are those that it takes likely, and those to be reserved for it. The answer is as
        far as is known: every outcome may change it.
        """
        if not self._window.has_room(in_flight):
            return math.inf
        now = anyio.current_time()
        return max(
            self.pause_s,
            self._learnt.wait_s(now),
            self._requests.wait_s(1, now),
            self._tokens.wait_s(tokens[1], now),
        )

    def try_reserve(self, tokens: tuple[int, int], in_flight: int) -> Permit | None:
        """A permit for a request (parameters as above); None where it may not go now."""
        if self.wait_s(tokens, in_flight) > 0:
            return None
        likely, reserved = tokens
        permit = Permit(reserved, anyio.current_time(), in_flight)
        self._requests.take(permit, 1)
        self._tokens.take(permit, likely)
        self._learnt.take(permit)
        self._window.take(permit)
        return permit

    def answered(self, permit: Permit, used_tokens: int, limits: RateLimits | None) -> None:
        """There is an answer, which took so many tokens."""
        self._window.answered()
        self._learnt.passed(permit)
        if not self._learnt.is_closed:
            self._n_pauses = 0
        self._took(permit, used_tokens)
        self._follow_headers(limits)

    def refused(
        self, permit: Permit, retry_after_s: float | None, limits: RateLimits | None
    ) -> None:
        """The server said that this was too fast (429)."""
        self.failed(permit, counted=False, limits=limits)
        now = anyio.current_time()
        self._ask_again_at = max(self._ask_again_at, now + (retry_after_s or 0.0))
        for limit in (self._requests, self._tokens):
            limit.rest_until(now)
        if self._learnt.refused(permit, now):
            self._window.open()
            if self._learnt.is_closed or self._ask_again_at > now + _LONG_S:
                self._pause(now)
        elif self._paused_until > now:
            self._paused_until = max(self._paused_until, self._ask_again_at)

    def failed(
        self,
        permit: Permit,
        *,
        counted: bool,
        limits: RateLimits | None = None,
        timed_out: bool = False,
    ) -> None:
        """The request came to nothing, or was not sent; `counted` where its tokens are spent."""
        if timed_out:
            self._window.timed_out(permit, anyio.current_time())
        if not counted:
            self._took(permit, 0)
        self._follow_headers(limits)

    @property
    def pause_s(self) -> float:
        """Seconds for which all requests pause; 0.0 where they do not."""
        return max(0.0, self._paused_until - anyio.current_time())

    def limits(self) -> tuple[float | None, float | None, str]:
        """Requests and tokens a minute that are kept, None without a limit, and who says so:
        `option`, `headers`, `learnt` or `none`."""
        rpm, tpm, per_s = self._requests.per_minute, self._tokens.per_minute, self._learnt.per_s
        source = "none"
        if per_s is not None and (rpm is None or 60 * per_s < rpm):
            rpm, source = 60 * per_s, "learnt"
        elif self._requests.is_from_headers or self._tokens.is_from_headers:
            source = "headers"
        elif rpm is not None or tpm is not None:
            source = "option"
        return rpm, tpm, source

    def _took(self, permit: Permit, tokens: int) -> None:
        more, permit.tokens = tokens - permit.tokens, tokens
        self._tokens.took_more(more, permit)

    def _pause(self, now: float) -> None:
        if self._ask_again_at > now:
            until, self.why_paused = self._ask_again_at, "the server asks to come back later"
        else:
            until = now + min(_FIRST_PAUSE_S * 2**self._n_pauses, _LONGEST_PAUSE_S)
            self.why_paused = "the server refuses nearly everything"
            self._n_pauses += 1
        self._paused_until = max(self._paused_until, until)
        for part in (self._requests, self._tokens, self._learnt):
            part.rest_until(self._paused_until)

    def _follow_headers(self, limits: RateLimits | None) -> None:
        if limits is None:
            return
        for limit, state in ((self._requests, limits.requests), (self._tokens, limits.tokens)):
            if state is not None and limit.hear(state):
                self._window.open()
