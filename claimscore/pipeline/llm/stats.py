"""What an engine has done so far, as plain numbers for whoever draws them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from claimscore.types import JSON


@dataclasses.dataclass(slots=True)
class EngineStats:
    """Counts since the engine was made.

    `sent` counts requests to the provider, attempts included; `answered` those that brought
    an answer; `hits` stored answers used; `rejected` new answers that failed their check;
    `failed` rows given a `Failure`, `failures` the same by kind; `retries` what was tried
    again, by kind of error. `usd` is None where the price is unknown. `waiting_s` is how long
    nothing will be sent (`is_down`: has been answered), and `why`; `rpm` and `tpm` are the
    limits that are kept and `limits_from` where they are known from; `last_error` is why
    something was last tried again.
    """

    sent: int = 0
    answered: int = 0
    hits: int = 0
    rejected: int = 0
    failed: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    possibly_billed_usd: float = 0.0
    retries: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)
    waiting_s: float = 0.0
    why: str = ""
    is_down: bool = False
    rpm: float | None = None
    tpm: float | None = None
    limits_from: str = "none"
    last_error: str = ""

    def as_json(self) -> JSON:
        """All of it as plain values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "retries": dict(self.retries), "failures": dict(self.failures)}

    @classmethod
    def from_json(cls, values: JSON) -> EngineStats:
        """What `as_json` gave, perhaps in another process."""
        counters: dict[str, Counter[str]] = {
            name: Counter(values[name]) for name in ("retries", "failures")
        }
        return cls(**{**values, **counters})

    def least_s(self, n_rows: int) -> float | None:
        """Seconds that so many rows take at least, by a pause, the known limit and the share of
        rows that had to be asked; None where nobody can say when the server is back."""
        if self.is_down:
            return None
        share = min(1.0, self.sent / self.rows_done) if self.rows_done else 1.0
        return self.waiting_s + (60 * share * n_rows / self.rpm if self.rpm else 0.0)

    @property
    def all_too_long(self) -> bool:
        """Whether every row failed because it was too long for the model."""
        return 0 < self.failed == self.failures["context_length"] == self.rows_done

    @property
    def rows_done(self) -> int:
        """Rows that have an outcome."""
        return self.hits + self.answered - self.rejected + self.failed


#: Counts that are summed over engines; the rest is what holds the slowest of them back.
_SUMMED = (
    *("sent", "answered", "hits", "rejected", "failed", "in_flight"),
    *("prompt_tokens", "completion_tokens", "possibly_billed_usd", "retries", "failures"),
)


def merged(parts: Iterable[EngineStats]) -> EngineStats:
    """Several engines as one: counts are summed; the longest wait, the limits and the last error
    are those of whichever has them. They are down where all of them are."""
    total, parts = EngineStats(), list(parts)
    for part in parts:
        for name in _SUMMED:
            setattr(total, name, getattr(total, name) + getattr(part, name))
        if part.waiting_s > total.waiting_s:
            total.waiting_s, total.why = part.waiting_s, part.why
        if part.rpm is not None or part.tpm is not None:
            total.rpm, total.tpm, total.limits_from = part.rpm, part.tpm, part.limits_from
        total.last_error = part.last_error or total.last_error
    total.is_down = bool(parts) and all(part.is_down for part in parts)
    costs = [part.usd for part in parts if part.usd is not None]
    total.usd = sum(costs) if costs and len(costs) == len(parts) else None
    return total
