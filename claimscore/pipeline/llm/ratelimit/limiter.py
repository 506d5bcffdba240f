"""When the next request may go: declared limits, the adaptive rate, slow start, pauses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import anyio

from claimscore.pipeline.llm.ratelimit.adaptive import AdaptiveRate, Evidence, SlowStart
from claimscore.pipeline.llm.ratelimit.declared import DeclaredLimit
from claimscore.types import RateLimits

#: Without a `retry-after` the first pause is so long; each further one is twice as long.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0

#: All requests pause where less than this share of them passes, ...
_CLOSED = 0.125
#: ... or where, with evidence of a limit, a `retry-after` asks for more than this.
_LONG_S = 1.0

#: The limit that was found is an event when it has changed by so much.
_NEWS = 0.2


#: Requests may arrive in another order than they were sent in, if so close to each other.
_SPREAD_S = 0.25


class _Sent(NamedTuple):
    """How much had been sent at a time."""

    requests: int
    tokens: int


class Permit(NamedTuple):
    """Leave to send one request, ended exactly once at the limiter it came from.

    `seq` numbers the requests in the order of sending; `arrived` had been sent so long before this
    one that the server surely had it.
    """

    seq: int
    tokens: int
    sent_at: float
    arrived: _Sent


@dataclasses.dataclass(frozen=True, slots=True)
class LimiterState:
    """The limits that hold requests back, for people; None without any.

    `paused_until` is a time of the limiter's clock, 0.0 where there was no pause. `window` is how
    many requests may be in flight since answers did not come in time.
    """

    rpm: float | None
    tpm: float | None
    source: Literal["option", "headers", "learnt", "none"]
    paused_until: float
    why: str
    window: int | None = None


class RateLimiter:
    """Gives leave to send to one server; is told how each request ended.

    Every permit must be ended exactly once: by `answered`, `refused` (a 429) or `failed`.

    Limits from an option (`rpm`, `tpm`) and from headers are kept by a `DeclaredLimit` each. Until
    one is known, `SlowStart` bounds the requests in flight, unless `slow_start` is false. Refusals
    are watched throughout. Isolated ones change nothing: each delays its own request. Several in a
    row, or a larger share of them than usual, are evidence of a limit and lower the rate
    (`AdaptiveRate`). Where nearly all requests are refused, or such a refusal asks for more than a
    second, all requests pause; a pause lasts as long as the server asks.

    `on_event` hears of what happens seldom: "limits learnt", "rate lowered", "paused".
    """

    def __init__(
        self,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int = 64,
        slow_start: bool = True,
        clock: Callable[[], float] = anyio.current_time,
        on_event: Callable[..., None] | None = None,
    ) -> None:
        self._requests = DeclaredLimit(rpm)
        self._tokens = DeclaredLimit(tpm)
        declared = rpm is not None or tpm is not None
        self._slow_start = SlowStart(max_concurrency, is_open=declared or not slow_start)
        self._adaptive = AdaptiveRate()
        self._clock = clock
        self._on_event = on_event
        self._in_flight = 0
        self._n_sent = self._tokens_sent = 0
        self._arrived = self._arriving = _Sent(0, 0)
        self._arriving_at = -math.inf
        #: Requests up to this one were sent before there was evidence of a limit.
        self._slowed_seq = 0
        #: Those sent before answers were found to come too late.
        self._overloaded_seq = 0
        self._paused_until = self._ask_again_at = 0.0
        self._why_paused = ""
        self._n_pauses = 0
        self._found_told: float | None = None

    # -- before a request

    def wait_s(self, tokens: int) -> float:
        """Seconds until a request of so many tokens may go; 0.0 now.

        It is as far as is known: every outcome may change it.
        """
        now = self._clock()
        return max(
            0.0,
            self._paused_until - now,
            self._slow_start.wait_s(self._in_flight, now),
            self._adaptive.wait_s(now),
            self._requests.wait_s(1, now),
            self._tokens.wait_s(tokens, now),
        )

    def try_reserve(self, tokens: int) -> Permit | None:
        """A permit for a request of so many tokens; None where it may not go now."""
        if self.wait_s(tokens) > 0:
            return None
        now = self._clock()
        if now - self._arriving_at >= _SPREAD_S:
            self._arrived, self._arriving_at = self._arriving, now
            self._arriving = _Sent(self._n_sent, self._tokens_sent)
        self._n_sent += 1
        self._in_flight += 1
        permit = Permit(self._n_sent, tokens, now, self._arrived)
        self._tokens_sent += tokens
        self._slow_start.sent(now)
        self._adaptive.sent(now)
        self._requests.take(1)
        self._tokens.take(tokens)
        return permit

    # -- after a request

    def answered(self, permit: Permit, used_tokens: int, limits: RateLimits | None) -> None:
        """There is an answer, which took so many tokens."""
        now = self._clock()
        self._slow_start.answered(self._in_flight, now - permit.sent_at)
        self._in_flight -= 1
        self._tokens.correct(used_tokens - permit.tokens)
        if permit.seq > self._slowed_seq:
            self._n_pauses = 0
        self._follow_headers(permit, limits, now)

    def refused(
        self, permit: Permit, retry_after_s: float | None, limits: RateLimits | None
    ) -> None:
        """The server said that this was too fast (429)."""
        self.failed(permit, counted=False, limits=limits)
        now = self._clock()
        self._ask_again_at = max(self._ask_again_at, now + (retry_after_s or 0.0))
        evidence = self._adaptive.refused(permit.seq, permit.sent_at, self._n_sent)
        if evidence is not None:
            self._slow_down(evidence, now - permit.sent_at, now)
        elif permit.seq <= self._slowed_seq and self._paused_until > now:
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
        now = self._clock()
        is_news = timed_out and permit.seq > self._overloaded_seq  # others were sent with those
        if is_news and self._slow_start.timed_out(self._in_flight):
            self._overloaded_seq = self._n_sent
        self._in_flight -= 1
        self._slow_start.failed(now)
        if not counted:
            self._tokens.take(-permit.tokens)
        self._follow_headers(permit, limits, now)

    def resume_gently(self) -> None:
        """Begin again with few requests in flight, after an outage."""
        self._slow_start.restart()

    def state(self) -> LimiterState:
        """The limits that hold requests back now."""
        rpm, tpm, per_s = self._requests.per_minute, self._tokens.per_minute, self._adaptive.per_s
        source: Literal["option", "headers", "learnt", "none"] = "none"
        if per_s is not None and (rpm is None or 60 * per_s < rpm):
            rpm, source = 60 * per_s, "learnt"
        elif self._requests.from_headers or self._tokens.from_headers:
            source = "headers"
        elif rpm is not None or tpm is not None:
            source = "option"
        window = self._slow_start.overloaded
        return LimiterState(rpm, tpm, source, self._paused_until, self._why_paused, window)

    # -- pauses, headers, events

    def _slow_down(self, evidence: Evidence, delay_s: float, now: float) -> None:
        """There is a limit that is not kept: use no credit, or lower the rate; pause if need be."""
        self._slowed_seq = self._n_sent
        self._slow_start.open()
        used_credit = self._requests.distrust_credit() | self._tokens.distrust_credit()
        if not used_credit:
            self._adaptive.lower(evidence, delay_s, now)
            self._tell_found()
        closed = evidence.refusals.share_passed < _CLOSED
        if used_credit or closed or self._ask_again_at > now + _LONG_S:
            self._pause(now)

    def _pause(self, now: float) -> None:
        was_paused = self._paused_until > now
        if self._ask_again_at > now:
            until, self._why_paused = self._ask_again_at, "the server asks to come back later"
        else:
            until = now + min(_FIRST_PAUSE_S * 2**self._n_pauses, _LONGEST_PAUSE_S)
            self._why_paused = "the server refuses nearly everything"
            self._n_pauses += 1
        self._paused_until = max(self._paused_until, until)
        for part in (self._requests, self._tokens, self._adaptive):
            part.rest_until(self._paused_until)
        if self._paused_until > now + _LONG_S:
            self._slow_start.restart()
        if not was_paused:
            seconds = round(self._paused_until - now, 3)
            self._tell("paused", seconds=seconds, why=self._why_paused)

    def _follow_headers(self, permit: Permit, limits: RateLimits | None, now: float) -> None:
        if limits is None:
            return
        elapsed_s, is_news = now - permit.sent_at, False
        if limits.requests is not None:
            since = self._n_sent - permit.arrived.requests - 1
            is_news |= self._requests.hear(limits.requests, elapsed_s, since, now)
        if limits.tokens is not None:
            since = self._tokens_sent - permit.arrived.tokens - permit.tokens
            is_news |= self._tokens.hear(limits.tokens, elapsed_s, since, now)
        if is_news:
            self._slow_start.open()
            rpm, tpm = self._requests.per_minute, self._tokens.per_minute
            self._tell("limits learnt", rpm=rpm, tpm=tpm)

    def _tell_found(self) -> None:
        found, told = self._adaptive.found_per_s, self._found_told
        if found is not None and (told is None or abs(found / told - 1) > _NEWS):
            self._found_told = found
            self._tell("rate lowered", rpm=round(60 * found, 1))

    def _tell(self, kind: str, **fields: object) -> None:
        if self._on_event is not None:
            self._on_event(kind, **fields)
