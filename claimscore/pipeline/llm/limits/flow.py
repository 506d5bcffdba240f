"""When the next request may go: known limits, the learnt rate, the window, the pause.

Known limits (options, headers) are kept by a `Budget` each. Until one is known a `Window` of
requests in flight doubles with every round trip. Whatever is known, refusals are watched
(`Evidence`): isolated ones change nothing; several in a row, or a share of them that chance
does not explain, lower the rate to what was measured to get through (`LearntRate`), so that
limits which nobody told, or told wrongly, are found as well. Where next to nothing gets
through, or a long `retry-after` comes with such evidence, one `Pause` is opened for all.

Nothing here waits or knows of tasks: `Limiter` does.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from claimscore.pipeline.llm.limits.budget import Budget
from claimscore.pipeline.llm.limits.evidence import Evidence, Verdict
from claimscore.pipeline.llm.limits.learnt import LearntRate
from claimscore.pipeline.llm.limits.leases import Shared, drawn
from claimscore.pipeline.llm.limits.pause import Pause
from claimscore.pipeline.llm.limits.shared import Learnt
from claimscore.pipeline.llm.limits.window import Window
from claimscore.types import RateLimits

OnEvent = Callable[..., None]

#: Requests may arrive in another order than they were sent in, if so close to each other.
_SPREAD_S = 0.25

#: A `retry-after` of more than this concerns everyone, if there is evidence of a limit.
_LONG_S = 1.0

#: A learnt rate is an event, and worth remembering, when it has changed by so much.
_NEWS = 0.2


#: How many requests and tokens had been sent at a time.
Sent = tuple[float, int, int]


class Permit:
    """Leave to send one request, ended exactly once at the limiter it came from."""

    __slots__ = ("before", "rate", "sent_at", "seq", "tokens")

    def __init__(
        self, seq: int, tokens: int, sent_at: float, before: Sent, rate: float | None
    ) -> None:
        self.seq = seq
        self.tokens = tokens
        self.sent_at = sent_at
        #: What had surely arrived at the server before it.
        self.before = before
        #: The learnt rate at which it was sent.
        self.rate = rate


@dataclasses.dataclass(frozen=True, slots=True)
class LimiterState:
    """What holds requests back, for people; None where nothing does.

    `paused_until` is a time of the limiter's clock, 0.0 where there was no pause.
    """

    rpm: float | None
    tpm: float | None
    source: Literal["option", "headers", "learnt", "none"]
    paused_until: float
    why: str


class Flow:
    """Decides for the head of the queue, and is told of every outcome."""

    def __init__(
        self,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int = 64,
        shared: Shared | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.requests = Budget(rpm, drawn(shared, "requests"))
        self.tokens = Budget(tpm, drawn(shared, "tokens"))
        self.learnt = LearntRate()
        self.evidence = Evidence()
        self.pause = Pause()
        self.window = Window(max_concurrency, closed=rpm is None and tpm is None)
        self.in_flight = 0
        self._shared = shared
        self._on_event = on_event
        self._seq = 0
        self._tokens_sent = 0
        self._n_refused = 0
        self._started_at = 0.0
        self._recent: collections.deque[Sent] = collections.deque()
        self._arrived: Sent = (-math.inf, 0, 0)
        #: There is nothing to wait for and nothing to count.
        self._free = False
        #: Requests up to this one were sent before the last lowering could take effect.
        self._recovering = 0
        self._told = False
        self._known_good: float | None = None
        if shared is not None:
            self._recall(shared.recall())

    # -- before

    def wait_s(self, tokens: int, now: float) -> float:
        """How long until a request of so many tokens may go, as far as is known; 0.0 now.

        What is known may change with every outcome: ask again then.
        """
        if self._free:
            return 0.0
        wait_s = max(
            self.pause.left_s(now),
            self.window.wait_s(self.in_flight, now),
            self.learnt.wait_s(now),
            self.requests.wait_s(1, now),
            self.tokens.wait_s(tokens, now),
        )
        if wait_s > 0:
            return wait_s
        if self.requests.pace is not None or self.tokens.pace is not None:
            return max(self.requests.lease_s(1, now), self.tokens.lease_s(tokens, now))
        self._free = self.window.is_open and self.learnt.rate is None
        return 0.0

    def take(self, tokens: int, now: float) -> Permit:
        """Leave to send one request, whether it is time or not."""
        seq = self._seq = self._seq + 1
        sent = self._tokens_sent = self._tokens_sent + tokens
        self.in_flight += 1
        if seq == 1:
            self._started_at = now
        recent = self._recent
        recent.append((now, seq, sent))
        while recent[0][0] < now - _SPREAD_S:
            self._arrived = recent.popleft()
        if self._free:
            return Permit(seq, tokens, now, self._arrived, None)
        self.window.sent(now)
        self.learnt.take()
        self.requests.take(1)
        self.tokens.take(tokens)
        return Permit(seq, tokens, now, self._arrived, self.learnt.rate)

    # -- after

    def answered(
        self, permit: Permit, used_tokens: int, limits: RateLimits | None, now: float
    ) -> None:
        """The server took it and used so many tokens."""
        self.in_flight -= 1
        if not self._free:
            self.window.answered(self.in_flight + 1, now - permit.sent_at, now)
            self.tokens.correct(used_tokens - permit.tokens)
        if permit.seq > self._recovering:
            self.pause.answered()
            self._judge_trial(permit)
        if limits is not None:
            self._heard(permit, limits, now)

    def refused(
        self, permit: Permit, retry_after_s: float | None, limits: RateLimits | None, now: float
    ) -> None:
        """The server said that this was too fast (429)."""
        self.in_flight -= 1
        self._n_refused += 1
        self.window.refused(now)
        self.tokens.give_back(permit.tokens)
        if limits is not None:
            self._heard(permit, limits, now)
        hint_until = now + (retry_after_s or 0.0)
        if permit.seq <= self._recovering:
            self.learnt.emptied(permit.seq, permit.sent_at)
            self.pause.extend(now, hint_until)
            return
        self.learnt.refused()
        verdict = self.evidence.refused(
            permit.seq, permit.sent_at, hint_until, probing=self.learnt.probed(permit.rate)
        )
        if verdict is not None:
            self._slow_down(verdict, permit.rate, now)

    def failed(self, permit: Permit, counted: bool, limits: RateLimits | None, now: float) -> None:
        """It came to nothing; `counted` where the tokens are spent all the same."""
        self.in_flight -= 1
        self.window.stalled(now)
        if not counted:
            self.tokens.give_back(permit.tokens)
        if limits is not None:
            self._heard(permit, limits, now)

    def resume_gently(self) -> None:
        """Begin anew with few requests in flight, after an outage."""
        self._free = False
        self.window.restart()

    def close(self) -> None:
        """Give back what other processes may use, and tell them what was learnt."""
        if self.learnt.good is not None:
            self._remember()
        self.requests.close()
        self.tokens.close()

    def state(self) -> LimiterState:
        """What holds requests back now."""
        rpm, rate = self.requests.per_minute, self.learnt.rate
        source: Literal["option", "headers", "learnt", "none"] = "none"
        if rate is not None and (rpm is None or 60 * rate < rpm):
            rpm, source = 60 * rate, "learnt"
        elif self.requests.from_headers or self.tokens.from_headers:
            source = "headers"
        elif rpm is not None or self.tokens.per_minute is not None:
            source = "option"
        return LimiterState(rpm, self.tokens.per_minute, source, self.pause.until, self.pause.why)

    # -- refusals

    def _judge_trial(self, permit: Permit) -> None:
        outcome = self.evidence.answered(permit.seq)
        if outcome is None:
            return
        if outcome == "in vain":
            self.learnt.undo()
        elif outcome == "doubtful":
            self._recovering = self._seq
            self.learnt.lower_further(self.evidence.lowered_further(self._seq))
        else:
            self.learnt.go_on()
            self._remember()

    def _slow_down(self, verdict: Verdict, rate: float | None, now: float) -> None:
        """Find out what the limit is, and pause where next to nothing gets through.

        A server that refuses in spite of the credit it shows is not taken at its word any
        more. One that shows that nothing is left has told the reason: others use it too.
        """
        run = verdict.run
        self._free = False
        self._recovering = self._seq
        if self.requests.stop_using_credit() | self.tokens.stop_using_credit():
            pause, measured = True, False
        elif self.requests.shows_empty or self.tokens.shows_empty:
            pause, measured = verdict.closed, False
        else:
            measured = self._learn(verdict, rate, now)
            pause = not measured
            self.window.open()
        self.evidence.lowered(verdict, self._seq, to=self.learnt.rate if measured else None)
        if pause or run.hint_until > now + _LONG_S:
            self._pause(run.hint_until, now)

    def _learn(self, verdict: Verdict, rate: float | None, now: float) -> bool:
        run = verdict.run
        measured = self.learnt.limited(
            run,
            rate,
            admitted_per_s=(self._seq - self._n_refused) / max(now - self._started_at, 1e-3),
            feedback_s=now - run.last_at,
        )
        good, known = self.learnt.good, self._known_good
        if good is not None and (known is None or abs(good / known - 1) > _NEWS):
            self._known_good = good
            self._tell("rate lowered", rpm=round(60 * good, 1))
        return measured

    def _pause(self, hint_until: float, now: float) -> None:
        was_on = self.pause.left_s(now) > 0
        self.pause.open(now, hint_until)
        for part in (self.requests, self.tokens, self.learnt):
            part.rest_until(self.pause.until)
        if self.pause.until > now + _LONG_S:
            self.window.restart()
        if not was_on:
            self._tell("paused", seconds=round(self.pause.until - now, 3), why=self.pause.why)

    # -- headers and other processes

    def _heard(self, permit: Permit, limits: RateLimits, now: float) -> None:
        elapsed_s, news = now - permit.sent_at, False
        _, n_before, tokens_before = permit.before
        if limits.requests is not None:
            since = self._seq - n_before - 1
            news |= self.requests.heard(limits.requests, elapsed_s, since, now)
        if limits.tokens is not None:
            since = self._tokens_sent - tokens_before - permit.tokens
            news |= self.tokens.heard(limits.tokens, elapsed_s, since, now)
        if not news:
            return
        self._free = False
        if not self._told:
            self._told = True
            self.window.open()
        rpm, tpm = self.requests.per_minute, self.tokens.per_minute
        self._tell("limits learnt", rpm=rpm, tpm=tpm)
        self._remember()

    def _recall(self, learnt: Learnt | None) -> None:
        """Begin where any process has left off."""
        if learnt is None:
            return
        self.requests.assume(learnt.rpm)
        self.tokens.assume(learnt.tpm)
        if learnt.good_rps is not None:
            self._known_good = learnt.good_rps
            self.learnt = LearntRate(learnt.good_rps)
            self.window.open()

    def _remember(self) -> None:
        """Let other processes, and later ones, begin where this one is."""
        if self._shared is None:
            return
        requests, tokens = self.requests.told, self.tokens.told
        learnt = Learnt(
            rpm=requests and requests.per_minute,
            tpm=tokens and tokens.per_minute,
            rpm_depth_s=requests and requests.depth_s,
            tpm_depth_s=tokens and tokens.depth_s,
            good_rps=self.learnt.good if self.learnt.settled else None,
        )
        self._shared.remember(learnt)

    def _tell(self, kind: str, **fields: object) -> None:
        if self._on_event is not None:
            self._on_event(kind, **fields)
