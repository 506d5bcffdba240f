"""Whether a server is there at all: a circuit breaker that opens on evidence and probes.

A single failure is the business of its request. Where several requests in a row fail, the server
is taken to be down: one probe at a time is sent, and no failure counts against the request that
met it. So an outage costs a few probes and no rows, and a request that fails while others are
answered is told apart from an outage.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import anyio

from claimscore.errors import OutageError, TransientError

#: Evidence that opens the breaker. A failed request weighs 1, the same one again half as much
#: (so that no request opens it alone, all its attempts taken together), a server that was
#: not even reached 3.
OPENS_AT = 5.0
AGAIN_WEIGHT = 0.5
UNREACHED_WEIGHT = 3.0

#: Time to the first probe, and what each further one waits longer.
FIRST_PROBE_S = 0.5
PROBE_GROWTH = 1.5
LONGEST_PROBE_S = 30.0

#: A server that limits every request is given at least this time, whatever `max_outage_s` says.
_LEAST_PATIENCE_S = 1.0


class CircuitBreaker:
    """Is told of the end of every attempt at one server; open where the server seems to be down.

    While it is open, only a probe may be sent, when `probe_in_s` is 0. It never waits itself.
    `group` is a list that the breakers of several servers of one provider join: they run out of
    patience together.
    """

    def __init__(
        self,
        max_outage_s: float,
        *,
        clock: Callable[[], float] = anyio.current_time,
        jitter: Callable[[], float] = random.random,
        group: list[CircuitBreaker] | None = None,
    ) -> None:
        self.is_open = False
        self._last_error: TransientError | None = None
        self._max_outage_s = max_outage_s
        self._clock = clock
        self._jitter = jitter
        self._group = [] if group is None else group
        self._group.append(self)
        self._failing: set[str] = set()
        self._weight = 0.0
        self._since: float | None = None
        self._n_probes = 0
        self._next_probe = self._not_before = 0.0
        self._is_probing = False

    @property
    def why(self) -> str:
        """The last failure, for people."""
        return str(self._last_error or "")

    @property
    def times_out(self) -> bool:
        """Whether the last failure was an answer that did not come in time."""
        return self._last_error is not None and self._last_error.kind == "timeout"

    @property
    def until(self) -> str:
        """When the patience ends, in words."""
        return f"until --max-outage-s {self._max_outage_s:g}"

    @property
    def failing_s(self) -> float:
        """Seconds since the first failure that no answer has followed; 0.0 where all is well."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def probe_in_s(self) -> float:
        """Seconds to the next probe: 0.0 where it is due, infinity while one is under way."""
        due_at = max(self._next_probe, self._not_before)
        return math.inf if self._is_probing else max(0.0, due_at - self._clock())

    @property
    def patience_s(self) -> float:
        """Seconds until no server of the group has answered for `max_outage_s`; infinity where
        nothing has failed at one of them since its last answer."""
        if any(breaker._since is None for breaker in self._group):
            return math.inf
        return max(0.0, self._max_outage_s - self._silent_s())

    @property
    def asks_too_much(self) -> bool:
        """Whether the server is down and wants no probe before the end of the patience."""
        waits = self.is_open and not self._is_probing
        return waits and self._not_before - self._clock() > self.patience_s

    def begin_probe(self) -> None:
        """The attempt that begins now is the probe."""
        self._is_probing = True

    def end_probe(self) -> None:
        """The probe has ended; one that came to nothing, or was given up, is due again."""
        self._is_probing = False

    def answered(self) -> float:
        """The server answered. Returns for how long it was taken to be down, 0.0 if it was not."""
        if self._since is None:
            return 0.0
        down_s = self.failing_s if self.is_open else 0.0
        self._since = None
        self._weight = self._not_before = 0.0
        self._failing.clear()
        self._close()
        return down_s

    def refused(self, error: TransientError) -> None:
        """The server answered 429: it is there, but it does no work.

        Raises `OutageError` where nothing but refusals has come for `max_outage_s`.
        """
        self._begin()
        self._close()
        self._last_error = error
        if self._silent_s() > max(self._max_outage_s, _LEAST_PATIENCE_S):
            raise self._out_of_patience(error)

    def check_patience(self) -> float:
        """The patience, in seconds, for a wait that a server asked for; `OutageError` at its
        end."""
        patience_s = self.patience_s
        if patience_s == 0 and self._last_error is not None:
            raise self._out_of_patience(self._last_error)
        return patience_s

    def failed(
        self, key: str, error: TransientError, *, probe: bool = False, others_answered: bool = False
    ) -> bool:
        """An attempt at the request `key` failed; returns whether that counts against the request.

        It does not where the server is down or was not reached. `probe`: the attempt was the
        probe. `others_answered`: other requests were answered since this one first failed, so
        the fault is its own and no evidence. No probe comes before the error's `retry_after_s`.
        Raises `OutageError` once no server of the group has answered for `max_outage_s`.
        """
        self._begin()
        self._not_before = max(self._not_before, self._clock() + (error.retry_after_s or 0.0))
        self._last_error = error
        if not others_answered:
            self._weigh(key, error)
        if self.is_open:
            if probe:  # any other attempt was sent before the breaker opened: no news
                self._is_probing = False
                self._n_probes += 1
                self._next_probe = self._clock() + self._probe_wait_s()
        elif self._weight >= OPENS_AT:
            self.is_open = True
            self._n_probes = 0
            self._next_probe = self._clock() + self._probe_wait_s()
        all_down = self.is_open and all(breaker.is_open for breaker in self._group)
        if all_down and self._silent_s() >= self._max_outage_s:
            raise self._out_of_patience(error)
        return not self.is_open and error.kind != "connect"

    def _begin(self) -> None:
        if self._since is None:
            self._since = self._clock()

    def _close(self) -> None:
        self.is_open = False
        self._is_probing = False

    def _weigh(self, key: str, error: TransientError) -> None:
        if error.kind == "connect":
            self._weight += UNREACHED_WEIGHT
        else:
            self._weight += AGAIN_WEIGHT if key in self._failing else 1.0
        if len(self._failing) < OPENS_AT:
            self._failing.add(key)

    def _probe_wait_s(self) -> float:
        """Longer the longer the outage lasts, but never much more than a tenth of it: a server
        that was down for 20 seconds is noticed to be back within two and a half."""
        grown = FIRST_PROBE_S * PROBE_GROWTH ** min(self._n_probes, 50)
        longest = min(LONGEST_PROBE_S, max(1.0, self.failing_s / 10))
        return min(grown, longest) * (0.8 + 0.4 * self._jitter())

    def _silent_s(self) -> float:
        """Seconds without an answer from any server of the group; 0.0 where one answers."""
        return min(breaker.failing_s for breaker in self._group)

    def _out_of_patience(self, error: TransientError) -> OutageError:
        asks = f" (retry-after: {error.retry_after_s:,.0f} s)" if error.retry_after_s else ""
        slow = "; --timeout-s may be too short for it, or --max-concurrency too high"
        return OutageError(
            f"nothing was answered for {self._silent_s():,.0f} s (--max-outage-s "
            f"{self._max_outage_s:g}); the server's last word: {error}"
            f"{slow if error.kind == 'timeout' else ''}{asks}"
        )
