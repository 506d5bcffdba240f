"""Requests and tokens a minute, paced evenly.

One task at a time, the head of the queue, waits for its turn; the others wait for the
head. So a pause, a correction of the token count or a cancellation needs no undoing: no
turn is promised before it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio

from claimscore.types import Completion, Request

#: How much unused time may be caught up at once, in seconds of the rate. Absorbs late
#: wake-ups; small, since servers refuse what exceeds about one second of the rate.
BURST_S = 0.25

#: English text has about four characters a token.
CHARACTERS_PER_TOKEN = 4

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Limiter:
    """Keeps requests and tokens within their limits in every window of 60 seconds.

    `reserve` waits until a request of an estimated size may be sent; `settle` puts the
    real size in the place of the estimate. A single request larger than a whole minute's
    tokens is let through and paid off afterwards.
    """

    def __init__(
        self,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        clock: Clock = anyio.current_time,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        now = clock()
        self._requests = None if rpm is None else _Pace(rpm, now)
        self._tokens = None if tpm is None else _Pace(tpm, now)
        self._turn = anyio.Lock(fast_acquire=True)
        #: Nothing is sent before this time of the clock; 0.0 where there was no pause.
        self.paused_until = 0.0

    @property
    def counts_tokens(self) -> bool:
        """Whether estimates matter; they need not be made where not."""
        return self._tokens is not None

    @property
    def free(self) -> bool:
        """Whether there is nothing to wait for: no limit was given and no pause is on."""
        return self._requests is None and self._tokens is None and not self._pause_left()

    async def reserve(self, tokens: int) -> None:
        """Return when one more request of about so many tokens may be sent."""
        if self.free:
            return
        async with self._turn:
            while (wait_s := self._wait_s()) > 0:
                await self._sleep(wait_s)
            if self._requests is not None:
                self._requests.take(1, self._clock())
            if self._tokens is not None:
                self._tokens.take(tokens, self._clock())

    def settle(self, reserved: int, used: int) -> None:
        """Correct a reservation by what the request really took."""
        if self._tokens is not None:
            self._tokens.correct(used - reserved)

    def pause(self, seconds: float) -> None:
        """Send nothing for so long, whoever asks; a longer pause already set stays."""
        self.paused_until = max(self.paused_until, self._clock() + seconds)

    def _pause_left(self) -> float:
        return max(0.0, self.paused_until - self._clock())

    def _wait_s(self) -> float:
        now = self._clock()
        waits = [pace.free_at - now for pace in (self._requests, self._tokens) if pace]
        return max(self._pause_left(), *waits, 0.0)


class _Pace:
    """A rate a minute as a generic cell rate algorithm: the time when the next may go.

    Each unit costs (60 + burst) / rate seconds, not 60 / rate: so even a window that begins
    with a burst holds no more than the rate (and 10 ms for rounding and the clock).
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self._cost_s = (60.0 + BURST_S + 0.01) / per_minute
        self.free_at = now

    def take(self, units: float, now: float) -> None:
        self.free_at = max(self.free_at, now - BURST_S) + units * self._cost_s

    def correct(self, units: float) -> None:
        self.free_at += units * self._cost_s


class TokenEstimate:
    """How many tokens a request will take: its characters, and the output seen so far.

    The first expectation, a quarter of `max_tokens`, counts as one observation, so that
    the mean moves quickly. Reserving `max_tokens` instead would leave most of a limit unused.
    """

    def __init__(self) -> None:
        self._n_seen = 0
        self._output_tokens = 0

    def expect(self, request: Request) -> int:
        """Prompt and completion tokens of a request not yet sent."""
        first = request.max_tokens / 4
        mean = (first + self._output_tokens) / (1 + self._n_seen)
        return text_tokens(*(message.content for message in request.messages)) + math.ceil(
            min(mean, request.max_tokens)
        )

    def learn(self, request: Request, completion: Completion) -> int:
        """Tokens that an answered request took, by the server's count where it gave one."""
        prompt, output = completion.usage.prompt_tokens, completion.usage.completion_tokens
        if prompt is None:
            prompt = text_tokens(*(message.content for message in request.messages))
        if output is None:
            output = text_tokens(completion.text)
        self._n_seen += 1
        self._output_tokens += output
        return prompt + output


def text_tokens(*texts: str) -> int:
    """A rough count, without a tokeniser."""
    return math.ceil(sum(map(len, texts)) / CHARACTERS_PER_TOKEN)
