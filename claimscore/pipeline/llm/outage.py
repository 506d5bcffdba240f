"""Whether the server is there at all: a breaker that opens on evidence and probes.

Single failures are the business of their request. Where several requests in a row come to
nothing, the server is taken to be down: nothing is sent but one probe at a time, and no
failure counts against the request that met it. So an outage costs a few probes and no rows,
and a request that fails while others are answered is told apart from it.
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

Clock = Callable[[], float]


class Outage:
    """Hears of every attempt's end; `gate` lets pass who may try.

    Raises `OutageError` from `failed` once nothing was answered for `max_outage_s`: by nobody,
    where several servers are in one `group`, a list that each of them joins.
    """

    def __init__(
        self,
        max_outage_s: float,
        *,
        clock: Clock = anyio.current_time,
        jitter: Callable[[], float] = random.random,
        group: list[Outage] | None = None,
    ) -> None:
        self.max_outage_s = max_outage_s
        self._group = [] if group is None else group
        self._group.append(self)
        self._clock = clock
        self._jitter = jitter
        self._failing: set[str] = set()
        self._weight = 0.0
        self._since: float | None = None
        self._n_probes = 0
        self._next_probe = 0.0
        self._probing = False
        self._changed = anyio.Event()
        self._turn = anyio.Lock(fast_acquire=True)
        self.is_open = False
        self.why = ""

    @property
    def lasted_s(self) -> float:
        """Seconds since the first failure that no answer has followed; 0.0 where all is well."""
        return 0.0 if self._since is None else self._clock() - self._since

    def answered(self) -> float:
        """The server is there. Returns how long it was taken to be down, 0.0 if it was not."""
        if self._since is None:
            return 0.0
        lasted_s = self.lasted_s if self.is_open else 0.0
        self._since = None
        self._weight = 0.0
        self._failing.clear()
        if self.is_open:
            self._close()
        return lasted_s

    def refused(self, error: TransientError) -> None:
        """A 429: the server is there, but patience is needed as long as nothing is answered."""
        self._begin()
        if self.is_open:
            self._close()
        if self._silent_s() > max(self.max_outage_s, 1.0):
            raise self._out_of_patience(error)

    def failed(
        self, key: str, error: TransientError, *, probe: bool = False, others_answered: bool = False
    ) -> bool:
        """An attempt came to nothing; returns whether that counts against its request.

        It does not where the server is down. `probe` is what `gate` returned for the attempt;
        `others_answered` says that other requests were answered since this one first failed:
        then the fault is its own and no evidence.
        """
        self._begin()
        self.why = str(error)
        if not others_answered:
            self._weigh(key, error)
        if self.is_open and probe:
            self._probing = False
            self._n_probes += 1
            self._next_probe = self._clock() + self._probe_wait_s()
            self._wake()
        elif self.is_open:
            pass  # sent before it opened
        elif self._weight >= OPENS_AT:
            self.is_open = True
            self._n_probes = 0
            self._next_probe = self._clock() + self._probe_wait_s()
        all_down = self.is_open and all(outage.is_open for outage in self._group)
        if all_down and self._silent_s() >= self.max_outage_s:
            raise self._out_of_patience(error)
        return not self.is_open and error.kind != "connect"

    @property
    def probe_in_s(self) -> float:
        """Seconds to the next probe: 0.0 where it is due, infinity while one is under way."""
        return math.inf if self._probing else max(0.0, self._next_probe - self._clock())

    def begin_probe(self) -> None:
        """The attempt that is made now is the probe, as if `gate` had let it pass."""
        self._probing = True

    def lost_probe(self) -> None:
        """The attempt that was to probe was given up before it came to anything."""
        self._probing = False
        self._wake()

    async def gate(self) -> bool:
        """Return when an attempt may be made: True as the one probe, False when all is well."""
        async with self._turn:
            while self.is_open:
                wait_s = self._next_probe - self._clock()
                if not self._probing and wait_s <= 0:
                    self._probing = True
                    return True
                with anyio.move_on_after(None if self._probing else wait_s):
                    await self._changed.wait()
        return False

    def _silent_s(self) -> float:
        """How long nobody of the group has answered; 0.0 where one of them does."""
        return min(outage.lasted_s for outage in self._group)

    def _begin(self) -> None:
        if self._since is None:
            self._since = self._clock()

    def _close(self) -> None:
        self.is_open = False
        self._probing = False
        self._wake()

    def _weigh(self, key: str, error: TransientError) -> None:
        if error.kind == "connect":
            self._weight += UNREACHED_WEIGHT
        else:
            self._weight += AGAIN_WEIGHT if key in self._failing else 1.0
        if len(self._failing) < OPENS_AT:
            self._failing.add(key)

    def _probe_wait_s(self) -> float:
        """Longer the longer it lasts, but never much more than a tenth of it: who was down for
        20 seconds is noticed to be back within two and a half."""
        grown = FIRST_PROBE_S * PROBE_GROWTH**self._n_probes
        longest = min(LONGEST_PROBE_S, max(1.0, self.lasted_s / 10))
        return min(grown, longest) * (0.8 + 0.4 * self._jitter())

    def _out_of_patience(self, error: TransientError) -> OutageError:
        return OutageError(
            f"nothing was answered for {self._silent_s():,.0f} s (--max-outage-s "
            f"{self.max_outage_s:g}); the server's last word: {error}"
        )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
