"""What the loopback server is told to be: one frozen record for Python, JSON and command line.

A fault is a name, some with `:argument`:

    400 ... 599       that status; "429:0.2" with `retry-after-ms: 200`
    limit             429 as a rate limit words it, without a `retry-after`
    quota             429 with the code `insufficient_quota`
    model             404 with the code `model_not_found`
    context, filter   400 `context_length_exceeded`, 400 `content_filter`
    logprobs          400 as a model without them words it
    reset, hangup     the connection is reset, or closed, instead of an answer
    stall             never answered, the connection stays
    delay:S           answered S seconds later than the latency
    malformed         a 200 whose body is no JSON
    truncated, half   half an answer, then the end of the connection, or silence
    filtered, length, refusal, empty     a 200 with that finish reason, refusal or no text
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

#: Faults of an answer that was made, and so was paid for.
PAID_FAULTS = frozenset(
    {"delay", "malformed", "truncated", "half", "filtered", "length", "refusal", "empty"}
)
#: Faults that show after the latency, without an answer.
LATE_FAULTS = frozenset({"500", "502", "504", "reset", "hangup", "stall"})
#: Refusals: they come at once and take nothing from a budget.
REFUSALS = frozenset({"limit", "quota", "model", "context", "filter", "logprobs"})
FAULTS = PAID_FAULTS | LATE_FAULTS | REFUSALS

OUTAGES = frozenset({"503", "reset", "hangup", "stall", "refuse"})


@dataclasses.dataclass(frozen=True, slots=True)
class Outage:
    """When nobody is answered: seconds after the first request, or request numbers from 1.

    `refuse` (by time only) closes the port and drops all connections, requests in flight
    included; every other way concerns the requests that arrive meanwhile.
    """

    how: str = "503"
    from_s: float | None = None
    to_s: float | None = None
    from_n: int | None = None
    to_n: int | None = None

    def __post_init__(self) -> None:
        if self.how not in OUTAGES:
            raise ValueError(f"outage {self.how!r}; known: {', '.join(sorted(OUTAGES))}")
        if self.how == "refuse" and (self.from_s is None or self.to_s is None):
            raise ValueError("an outage that refuses connections needs from_s and to_s")

    def holds(self, since_first_s: float, number: int) -> bool:
        """Whether a request that arrives now is inside; both ends are, of numbers."""
        by_time = self.from_s is not None and self.to_s is not None
        if by_time and self.from_s <= since_first_s < self.to_s:  # type: ignore[operator]
            return True
        by_number = self.from_n is not None and self.to_n is not None
        return by_number and self.from_n <= number <= self.to_n  # type: ignore[operator]


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Everything that may be changed while the server runs.

    `rates` draws a fault for each request by its number and the seed; `by_content` and
    `on_content` (a piece of text -> fault) are the same for a question however often it is
    asked. `logprobs`: what an answer has of them is given to those who ask, or they are ignored
    or refused. `completion_tokens` is a number or (least, most), then drawn by content.
    `charge` is what a request takes from the token budget when it is admitted: what it
    will use ("known"), or its `max_tokens` until it is answered ("reserved").
    `shown_depth_s`: the headers tell of a bucket of that depth, not of the enforced one.
    `on_path` (such as "POST /v1/batches") is used up one by one: a fault before the thing is
    done, "lost" after it, "" for none.
    """

    seed: int = 0
    # answers
    latency_s: float = 0.0
    latency_sigma: float = 0.0
    text: str | None = None
    completion_tokens: int | tuple[int, int] | None = None
    usage: bool = True
    logprobs: Literal["given", "ignored", "refused"] = "given"
    # who may ask what
    key: str | None = None
    models: tuple[str, ...] = ()
    max_prompt_chars: int | None = None
    # budgets
    rpm: float | None = None
    tpm: float | None = None
    depth_s: float = 60.0
    shown_depth_s: float | None = None
    charge: Literal["known", "reserved"] = "known"
    headers: Literal["answer", "admission", "none"] = "answer"
    retry_after: Literal["both", "ms", "s", "none"] = "both"
    quota_after: int | None = None
    # faults
    script: Mapping[int, str] = dataclasses.field(default_factory=dict)
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    by_content: Mapping[str, float] = dataclasses.field(default_factory=dict)
    on_content: Mapping[str, str] = dataclasses.field(default_factory=dict)
    on_path: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    # batches: seconds until one is done (None: when told), the share of its lines that is
    # done before it expires, faults of lines, and an error that fails it before it starts
    batch_delay_s: float | None = 0.0
    batch_share: float = 1.0
    batch_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    batch_error: str | None = None
    batch_max_lines: int = 50_000

    def __post_init__(self) -> None:
        named = [*self.script.values(), *self.rates, *self.by_content, *self.on_content.values()]
        for fault in (*named, *self.batch_rates):
            name = fault.partition(":")[0]
            if name not in FAULTS and not (name.isdigit() and 400 <= int(name) < 600):
                raise ValueError(f"unknown fault {fault!r}; known: {', '.join(sorted(FAULTS))}")

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """These settings with some values changed; plain JSON is understood."""
        known = {field.name for field in dataclasses.fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown setting {', '.join(unknown)}; known: {', '.join(known)}")
        return dataclasses.replace(self, **{name: _typed(name, v) for name, v in values.items()})


def _typed(name: str, value: Any) -> Any:
    """JSON has neither tuples, nor whole numbers as keys, nor our records."""
    if name == "script":
        return {int(number): fault for number, fault in value.items()}
    if name == "outages":
        return tuple(o if isinstance(o, Outage) else Outage(**o) for o in value)
    if name == "on_path":
        return {path: tuple(faults) for path, faults in value.items()}
    return tuple(value) if isinstance(value, list) else value
