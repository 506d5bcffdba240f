"""What this process holds of the limits that all processes share."""

from __future__ import annotations

from typing import Protocol

from claimscore.pipeline.llm.limits.cell_rate import Kind
from claimscore.pipeline.llm.limits.pace import BURST_S, Pace
from claimscore.pipeline.llm.limits.shared import Learnt

#: A lease is for so many seconds of the rate, at least for one request. A killed process
#: loses no more than one.
LEASE_S = 0.2

#: What is not used so long after it might have been is given back.
VALID_S = 0.3

#: By so many seconds of the rate a window may hold more than was leased for it.
SLACK_S = LEASE_S + VALID_S


class Shared(Protocol):
    """Limits that processes share, as `SharedBudget` keeps them."""

    def lease(self, kind: Kind, units: float, per_minute: float, depth_s: float) -> float:
        """Take units; in how many seconds they may be used."""

    def give_back(self, kind: Kind, units: float, per_minute: float) -> None:
        """Return units that will not be used."""

    def recall(self) -> Learnt | None:
        """What any process has last learnt."""

    def remember(self, learnt: Learnt) -> None:
        """Let other processes, and later ones, know."""


def drawn(shared: Shared | None, kind: Kind) -> Leases | None:
    """Units of a limit that processes share; None where they share none."""
    return None if shared is None else Leases(shared, kind)


class Leases:
    """Units of one kind, taken from the shared limit a few at a time."""

    slack_s = SLACK_S

    def __init__(self, shared: Shared, kind: Kind) -> None:
        self._shared = shared
        self._kind: Kind = kind
        self._held = 0.0
        self._usable_at = 0.0
        self._per_minute = 0.0

    def wait_s(self, units: float, pace: Pace, now: float) -> float:
        """How long until so many units may be used at this pace; leases what is missing."""
        if now > self._usable_at + VALID_S:
            self.give_back()
        if self._held < units:
            missing = max(units - self._held, 1.0, LEASE_S * pace.rate)
            self._per_minute = 60 * pace.rate
            depth_s = max(BURST_S, pace.level / pace.rate)
            wait_s = self._shared.lease(self._kind, missing, self._per_minute, depth_s)
            self._held += missing
            self._usable_at = now + wait_s
        return max(0.0, self._usable_at - now)

    def take(self, units: float) -> None:
        """Use units (or, negative, hold more)."""
        self._held -= units

    def give_back(self) -> None:
        """Return what is held."""
        if self._held > 0:
            self._shared.give_back(self._kind, self._held, self._per_minute)
            self._held = 0.0
