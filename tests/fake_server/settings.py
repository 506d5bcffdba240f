"""What the fake server is told to be: one frozen record for Python, JSON and command line.

A fault is a name, some with `:argument`:

    400 ... 599             that status; "429:0.2" with `retry-after-ms: 200`
    quota, model            429 `insufficient_quota`, 404 `model_not_found`
    filter                  400 `content_filter`
    schema                  400 as a model without schemas words it
    reset                   the connection is reset instead of an answer
    malformed, truncated    a 200 whose body is no JSON; half an answer
    empty, odd              a 200 without a text; with the text "Perhaps"
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

#: Faults of an answer that was made, and so was paid for.
PAID_FAULTS = frozenset({"malformed", "truncated", "empty", "odd"})
#: Faults that show after the latency, without an answer.
LATE_FAULTS = frozenset({"500", "502", "504", "reset"})
FAULTS = PAID_FAULTS | LATE_FAULTS | {"quota", "model", "filter", "schema"}


@dataclasses.dataclass(frozen=True, slots=True)
class Outage:
    """When no request is answered: seconds after the first request, or request numbers from 1.

    `refuse` (by time only) closes the port and drops all connections, requests in flight
    included; "503" concerns the requests that arrive meanwhile.
    """

    how: Literal["503", "refuse"] = "503"
    from_s: float = math.inf
    to_s: float = math.inf
    from_n: float = math.inf
    to_n: float = math.inf

    def holds(self, since_first_s: float, number: int) -> bool:
        """Whether a request that arrives now is inside; both ends are, of numbers."""
        return self.from_s <= since_first_s < self.to_s or self.from_n <= number <= self.to_n


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Everything that may be changed while the server runs.

    `rates` draws a fault for each request by its number; `on_content` (a piece of text -> fault)
    is the same for a question however often it is asked. `logprobs`: what an answer has of them is
    given to those who ask, or they are ignored. `schema`: whether a JSON schema of the answer is
    taken. `completion_tokens` is a number or (least, most), then drawn by content. `headers`:
    "none" say nothing of limits, not even when to come again.
    """

    # answers
    latency_s: float = 0.0
    text: str | None = None
    completion_tokens: int | tuple[int, int] | None = None
    logprobs: Literal["given", "ignored"] = "given"
    schema: Literal["taken", "refused"] = "taken"
    # who may ask what
    key: str | None = None
    models: tuple[str, ...] = ()
    # budgets
    rpm: float | None = None
    tpm: float | None = None
    depth_s: float = 60.0
    headers: Literal["answer", "none"] = "answer"
    quota_after: int | None = None
    # faults
    script: Mapping[int, str] = dataclasses.field(default_factory=dict)
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    on_content: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    # batches: seconds until one is done; None: when told
    batch_delay_s: float | None = 0.0

    def __post_init__(self) -> None:
        for fault in (*self.script.values(), *self.rates, *self.on_content.values()):
            name = fault.partition(":")[0]
            if name not in FAULTS and not (name.isdigit() and 400 <= int(name) < 600):
                raise ValueError(f"unknown fault {fault!r}; known: {', '.join(sorted(FAULTS))}")

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """These settings with some values changed; plain JSON is understood."""
        return dataclasses.replace(self, **{name: _typed(name, v) for name, v in values.items()})


def _typed(name: str, value: Any) -> Any:
    """JSON has neither tuples, nor whole numbers as keys, nor our records."""
    if name == "script":
        return {int(number): fault for number, fault in value.items()}
    if name == "outages":
        return tuple(o if isinstance(o, Outage) else Outage(**o) for o in value)
    return tuple(value) if isinstance(value, list) else value
