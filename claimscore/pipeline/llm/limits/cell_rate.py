"""One limit as one number: the time up to which everything is given away. Pure.

A generic cell rate algorithm: whoever wants units moves that time forward. Nobody holds anything
that would have to expire: a killed process leaves behind only the time that it had taken and
not used.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

#: What a limit counts.
Kind = Literal["requests", "tokens"]

#: More than this given away ahead is doubted where it was done at a lower rate.
PLAUSIBLE_S = 120.0


class Account(NamedTuple):
    """One limit's account: given away up to `free_at`; last touched when, and at which rate."""

    free_at: float
    touched_at: float
    per_minute: float


def taken(
    account: Account | None, units: float, per_minute: float, depth_s: float, now: float
) -> tuple[Account, float]:
    """The account after `units` were taken, and in how many seconds they may be used.

    In any window of T seconds the units taken for use in it are at most
    per_minute * (T + depth_s) / 60, one lease, and what was given back meanwhile.
    """
    start = now - depth_s
    if account is not None:
        start = max(start, _free_at(account, per_minute, now))
    return Account(start + units * 60 / per_minute, now, per_minute), max(0.0, start - now)


def _free_at(account: Account, per_minute: float, now: float) -> float:
    """`free_at` as it is meant now.

    A clock that was set back takes it along: what was given away ahead stays so. And where
    minutes were given away at a lower rate, by a mistaken option perhaps, their units cost
    what they cost at this one.
    """
    free_at = account.free_at + min(0.0, now - account.touched_at)
    ahead_s = free_at - now
    if ahead_s > PLAUSIBLE_S and account.per_minute < per_minute:
        return now + ahead_s * account.per_minute / per_minute
    return free_at
