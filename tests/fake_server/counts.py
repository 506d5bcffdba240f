"""What the fake server saw and what it was paid for."""

import time
from array import array
from collections import Counter
from typing import Any


class Counts:
    """Numbers of chat requests, by the server's own clock.

    `contents` counts the requests of each question, `paid` its answers with status 200, so
    that what was paid for twice is seen; a client that is gone before its answer pays all
    the same. Times are seconds after the first request.
    """

    def __init__(self) -> None:
        self.received = 0
        self.batched = 0
        self.outcomes: Counter[str] = Counter()
        self.contents: Counter[str] = Counter()
        self.paid: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.first_at: float | None = None
        self.first_at_unix: float | None = None
        self.paid_at = array("d")

    def arrive(self, content: str, now: float) -> int:
        """Count a request in; returns its number, from 1."""
        if self.first_at is None:
            self.first_at, self.first_at_unix = now, time.time()
        self.received += 1
        self.contents[content] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return self.received

    def end(self, outcome: str) -> None:
        """Count what became of a request."""
        self.outcomes[outcome] += 1
        self.in_flight -= 1

    def pay(self, content: str, prompt_tokens: int, completion_tokens: int, now: float) -> None:
        """Count an answer."""
        self.paid[content] += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.paid_at.append(self.since_first_s(now))

    def since_first_s(self, now: float) -> float:
        """Seconds since the first request; 0 before it."""
        return 0.0 if self.first_at is None else now - self.first_at

    def to_json(self) -> dict[str, Any]:
        """All of it, for `GET /_stats`; the last of `paid_per_s` is not a whole second."""
        paid = self.paid.total()
        names = "received outcomes batched prompt_tokens completion_tokens in_flight most_in_flight"
        per_second = Counter(map(int, self.paid_at))
        return {
            **{name: getattr(self, name) for name in (*names.split(), "first_at_unix")},
            "refused_by_limit": self.outcomes["limit"],
            "paid": paid,
            "paid_distinct": len(self.paid),
            "paid_twice": paid - len(self.paid),
            "last_paid_s": self.paid_at[-1] if self.paid_at else None,
            "paid_per_s": [per_second[s] for s in range(max(per_second, default=-1) + 1)],
        }
