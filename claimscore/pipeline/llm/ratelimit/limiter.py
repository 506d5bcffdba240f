"""When the next request may go: declared limits, a learnt rate, slow start, pauses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import anyio

from claimscore.pipeline.llm.ratelimit.limits import DeclaredLimit, LearntRate, Permit, Window
from claimscore.types import RateLimits

#: Without a `retry-after` the first pause is so long; each further one is twice as long.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0

#: All requests pause where, with evidence of a limit, a `retry-after` asks for more than this.
_LONG_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class LimiterState:
    """The limits that hold requests back, for people; None without any.

    `paused_until` is a time of the limiter's clock, 0.0 where there was no pause.
    """

    rpm: float | None
    tpm: float | None
    source: Literal["option", "headers", "learnt", "none"]
    paused_until: float
    why: str


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
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._requests = DeclaredLimit(rpm, lambda _: 1)
        self._tokens = DeclaredLimit(tpm, lambda permit: permit.tokens)
        is_declared = rpm is not None or tpm is not None
        self._window = Window(is_open=is_declared or not slow_start)
        self._learnt = LearntRate()
        self._clock = clock
        self._paused_until = self._ask_again_at = 0.0
        self._why_paused = ""
        self._n_pauses = 0

    def wait_s(self, tokens: tuple[int, int], in_flight: int) -> float:
        """Seconds until a request may go beside those in flight; 0.0 now.

        `tokens` are those that it takes likely, and those to be reserved for it. The answer is as
        far as is known: every outcome may change it.
        """
        if not self._window.has_room(in_flight):
            return math.inf
        now = self._clock()
        return max(
            0.0,
            self._paused_until - now,
            self._learnt.wait_s(now),
            self._requests.wait_s(1, now),
            self._tokens.wait_s(tokens[1], now),
        )

    def try_reserve(self, tokens: tuple[int, int], in_flight: int) -> Permit | None:
        """A permit for a request (parameters as above); None where it may not go now."""
        if self.wait_s(tokens, in_flight) > 0:
            return None
        likely, reserved = tokens
        permit = Permit(reserved, self._clock(), in_flight)
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
        now = self._clock()
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
            self._window.timed_out(permit, self._clock())
        if not counted:
            self._took(permit, 0)
        self._follow_headers(limits)

    def state(self) -> LimiterState:
        """The limits that hold requests back now."""
        rpm, tpm, per_s = self._requests.per_minute, self._tokens.per_minute, self._learnt.per_s
        source: Literal["option", "headers", "learnt", "none"] = "none"
        if per_s is not None and (rpm is None or 60 * per_s < rpm):
            rpm, source = 60 * per_s, "learnt"
        elif self._requests.is_from_headers or self._tokens.is_from_headers:
            source = "headers"
        elif rpm is not None or tpm is not None:
            source = "option"
        return LimiterState(rpm, tpm, source, self._paused_until, self._why_paused)

    def _took(self, permit: Permit, tokens: int) -> None:
        more, permit.tokens = tokens - permit.tokens, tokens
        self._tokens.took_more(more, permit)

    def _pause(self, now: float) -> None:
        if self._ask_again_at > now:
            until, self._why_paused = self._ask_again_at, "the server asks to come back later"
        else:
            until = now + min(_FIRST_PAUSE_S * 2**self._n_pauses, _LONGEST_PAUSE_S)
            self._why_paused = "the server refuses nearly everything"
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
