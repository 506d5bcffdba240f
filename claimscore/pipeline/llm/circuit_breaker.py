"""Whether a server is there at all: a circuit breaker that opens on evidence and probes.

A single failure is the business of its request. Where several requests in a row fail, the server
is taken to be down: one probe at a time is sent, and no failure counts against the request that
met it. So an outage costs a few probes and no rows, and a request that fails while others are
answered is told apart from an outage.
"""

from __future__ import annotations

import random

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

#: Seconds of patience: at least, whatever `max_outage_s` says, and at most where no server of a run
#: was reached.
_LEAST_PATIENCE_S, _UNREACHED_PATIENCE_S = 1.0, 120.0


def in_words(error: TransientError) -> str:
    """The error, and what may help where an answer did not come in time."""
    late = "; a lower --max-concurrency or a longer --timeout-s may help"
    return f"{error}{late if error.kind == 'timeout' else ''}"


class CircuitBreaker:
    """Is told of the end of every attempt at one server; open where the server seems to be down.

    While it is open, only a probe may be sent: alone, and when `probe_in_s` is 0. It never waits
    itself. The breakers of several servers of one provider join the list `group`: together they run
    out of patience, after `max_outage_s` or, where none `was_reached` in this run, two minutes.
    """

    def __init__(self, max_outage_s: float, *, group: list[CircuitBreaker] | None = None) -> None:
        self.is_open = self.was_reached = False
        self.last_error: TransientError | None = None
        self._max_outage_s = max_outage_s
        self._group = [] if group is None else group
        self._group.append(self)
        self._failing: set[str] = set()
        self._weight = 0.0
        self._since: float | None = None
        self._n_probes = 0
        self._next_probe = self._not_before = 0.0

    @property
    def failing_s(self) -> float:
        """Seconds since the first failure that no answer has followed; 0.0 where all is well."""
        return 0.0 if self._since is None else anyio.current_time() - self._since

    @property
    def probe_in_s(self) -> float:
        """Seconds to the next probe: 0.0 where it is due."""
        return max(0.0, max(self._next_probe, self._not_before) - anyio.current_time())

    def check_patience(self) -> float:
        """The seconds of patience that are left; `OutageError` where none are."""
        silent_s, error = min(breaker.failing_s for breaker in self._group), self.last_error
        patience_s = max(self._max_outage_s, _LEAST_PATIENCE_S)
        limit = f"--max-outage-s {self._max_outage_s:g}"
        if not any(one.was_reached for one in self._group) and patience_s > _UNREACHED_PATIENCE_S:
            patience_s, limit = _UNREACHED_PATIENCE_S, "no server was reached; is --base-url right?"
        left_s = patience_s - silent_s
        if left_s > 0 or error is None:
            return left_s
        asks = f" (retry-after: {error.retry_after_s:,.0f} s)" if error.retry_after_s else ""
        raise OutageError(
            f"nothing was answered for {silent_s:,.0f} s ({limit}); "
            f"the server's last word: {in_words(error)}{asks}"
        )

    def answered(self) -> float:
        """The server answered. Returns for how long it was taken to be down, 0.0 if it was not."""
        self.was_reached = True
        if self._since is None:
            return 0.0
        down_s = self.failing_s if self.is_open else 0.0
        self.is_open, self._since = False, None
        self._weight = self._not_before = 0.0
        self._failing.clear()
        return down_s

    def refused(self, error: TransientError) -> None:
        """The server answered 429: it is there, but it does no work. Raises `OutageError`."""
        self._note(error)
        self.is_open, self.was_reached = False, True
        self.check_patience()

    def failed(self, key: str, error: TransientError, *, others_answered: bool = False) -> bool:
        """An attempt at the request `key` failed; returns whether that counts against the request.

        It does not where the server is down or was not reached. `others_answered`: other requests
        were answered since this one first failed, so the fault is its own and no evidence. No
        probe comes before the error's `retry_after_s`. Raises `OutageError`.
        """
        self._note(error)
        was_due = self.probe_in_s == 0  # what fails before was sent before the breaker opened
        not_before = anyio.current_time() + (error.retry_after_s or 0.0)
        self._not_before = max(self._not_before, not_before)
        if not others_answered:
            self._weigh(key, error)
        if not self.is_open and self._weight >= OPENS_AT:
            self.is_open, self._n_probes = True, 0
            self._next_probe = anyio.current_time() + self._probe_wait_s()
        elif self.is_open and was_due:
            self._n_probes += 1
            self._next_probe = anyio.current_time() + self._probe_wait_s()
        if all(breaker.is_open for breaker in self._group):
            self.check_patience()
        return not self.is_open and error.kind != "connect"

    def _note(self, error: TransientError) -> None:
        self.last_error = error
        self.was_reached |= error.kind != "connect"
        if self._since is None:
            self._since = anyio.current_time()

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
        return min(grown, longest) * random.uniform(0.8, 1.2)
