"""Requests and tokens a minute as providers enforce them; arithmetic only, on any clock."""

from __future__ import annotations

import math

from tests.fake_server.settings import Settings

#: Waiting exactly as long as one was told must be enough, whatever floats do.
_ROUNDING = 1e-6


class Bucket:
    """Units that may pass now: refilled all the time, never more than `capacity`.

    What is larger than the bucket passes when the bucket is full and leaves a debt, so the
    rate over time holds for requests of any size.
    """

    def __init__(self, per_minute: float, depth_s: float, now: float) -> None:
        self.per_minute = per_minute
        self.capacity = max(per_minute * depth_s / 60, 1.0)
        self._level = self.capacity
        self._at = now

    def level(self, now: float) -> float:
        """What is left; below zero while there is a debt."""
        gained = (now - self._at) * self.per_minute / 60
        return min(self.capacity, self._level + gained)

    def wait_s(self, units: float, now: float) -> float:
        """Seconds until so many units fit; 0 where they do."""
        missing = min(units, self.capacity) - self.level(now)
        return 0.0 if missing <= _ROUNDING else missing * 60 / self.per_minute

    def take(self, units: float, now: float) -> None:
        """Take units, or with a negative number give some back."""
        self._level = min(self.capacity, self.level(now) - units)
        self._at = now

    def fill_like(self, other: Bucket, now: float) -> None:
        """A limit that changes while running gives no new credit."""
        self._level, self._at = min(self.capacity, other.level(now)), now


class Budget:
    """Both limits of a server; a refusal takes nothing from either."""

    def __init__(self, settings: Settings, now: float, before: Budget | None = None) -> None:
        limits = {"requests": settings.rpm, "tokens": settings.tpm}
        self.buckets = {
            name: Bucket(per_minute, settings.depth_s, now)
            for name, per_minute in limits.items()
            if per_minute is not None
        }
        for name in self.buckets.keys() & (before.buckets if before else {}):
            assert before is not None
            self.buckets[name].fill_like(before.buckets[name], now)

    def admit(self, tokens: float, now: float) -> tuple[str, float] | None:
        """Take one request and its tokens, or say which limit is in the way, and for how long."""
        units = {"requests": 1.0, "tokens": tokens}
        waits = {name: b.wait_s(units[name], now) for name, b in self.buckets.items()}
        if any(waits.values()):
            return max(waits.items(), key=lambda item: item[1])
        for name, bucket in self.buckets.items():
            bucket.take(units[name], now)
        return None

    def settle(self, charged: float, used: float, now: float) -> None:
        """Give back, or take, the difference between the charge and the tokens used."""
        if "tokens" in self.buckets and charged != used:
            self.buckets["tokens"].take(used - charged, now)

    def headers(self, now: float) -> dict[str, str]:
        """`x-ratelimit-*` as they are at this moment."""
        headers = {}
        for name, bucket in self.buckets.items():
            left = bucket.level(now)
            reset_s = (bucket.capacity - left) * 60 / bucket.per_minute
            headers[f"x-ratelimit-limit-{name}"] = f"{bucket.per_minute:.0f}"
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, math.floor(left)))
            headers[f"x-ratelimit-reset-{name}"] = duration(reset_s)
        return headers


def duration(seconds: float) -> str:
    """Seconds as these headers have them: `20ms`, `1.5s`, `6m0s`; rounded up."""
    ms = math.ceil(seconds * 1000 - _ROUNDING)
    if ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    return f"{minutes}m{ms / 1000:g}s" if minutes else f"{ms / 1000:g}s"
