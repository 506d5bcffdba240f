"""What does the work: a language model's servers, encoder devices, and the machine of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from claimscore.errors import ConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class LanguageModel:
    """What the language model gives; None where nothing bounds it.

    `rpm` and `tpm` are limits, `tokens_per_s` is what all servers of one's own read and write
    together, `latency_s` one answer's, `requests_per_s` is all that is known of how fast answers
    come. `outage_s` are seconds in which nobody answers; not `known`: nobody can say when they do.
    `rule_s` is the CPU time of an answer that is made in the run's own process (the rules).
    """

    rpm: float | None = None
    tpm: float | None = None
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    latency_s: float = 0.0
    concurrency: int = 64
    outage_s: float = 0.0
    rule_s: float = 0.0
    known: bool = True

    def __post_init__(self) -> None:
        for name in ("rpm", "tpm", "tokens_per_s", "requests_per_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be above zero, not {value}")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, not {self.concurrency}")


@dataclasses.dataclass(frozen=True, slots=True)
class Encoders:
    """The devices that models compute on; one has one chunk at a time.

    `tokens_per_s` is one device's pace at a pass, by its step; None or missing where nobody knows.
    `on_cpu`: the device is all the cores of the run's own machine. `between_losses_s` is how long
    a device works before it is lost, on average; its chunk is computed again after `restart_s`.
    """

    devices: int = 1
    tokens_per_s: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    on_cpu: bool = False
    between_losses_s: float | None = None
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ConfigError(f"devices must be at least 1, not {self.devices}")
        for step, pace in self.tokens_per_s.items():
            if pace is not None and not pace > 0:
                raise ConfigError(f"the tokens a second of {step} must be above zero, not {pace}")
        if self.between_losses_s is not None and not self.between_losses_s > 0:
            raise ConfigError("seconds between losses must be above zero")


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The machine that the run itself is on, or the head node of a cluster.

    `llm_workers` are processes with an event loop of their own that ask the language model. With
    a head node, what they share is there (claims, limits, money, answers for the cache): `op_s` a
    request and `call_s` a call, which carries `requests_a_call`. `cache_writers` and
    `scoring_workers` are how many share that work; where there is one, more would have to be built.
    `part_writers` write tables, `readers` read the input.
    """

    cores: int = 1
    llm_workers: int = 1
    op_s: float = 0.0
    call_s: float = 0.0
    requests_a_call: float = 1.0
    cache_writers: int = 1
    part_writers: int = 1
    scoring_workers: int = 1
    readers: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("op_s", "call_s") else 1
            if not value >= least:
                raise ConfigError(f"{field.name} must be at least {least}, not {value}")

    @property
    def head_s(self) -> float:
        """Seconds of the head node a request."""
        return self.op_s + self.call_s / self.requests_a_call


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """What claimscore itself costs: seconds of one core, and bytes.

    Measured by benchmarks/scaling/measure.py on one core of an AMD EPYC (Zen 3) of November 2026,
    while other work ran beside it. `request_s` is all of the LLM stage a request: making it,
    asking, reading the answer, its rows and its part; the engine alone takes 0.0006.
    """

    start_s: float = 1.5
    load_s: float = 4.0
    read_s: float = 0.00016
    request_s: float = 0.0015
    cache_s: float = 0.00003
    chunk_step_s: float = 0.006
    scoring_s: float = 0.0067
    cache_bytes: float = 1_970.0
    record_bytes: float = 700.0
    answer_bytes: float = 110.0
    item_bytes: float = 11.0


MEASURED = Costs()
