"""Machines that a run may be on, and how long it takes there, by the formulas of `estimate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from claimscore.errors import ConfigError
from claimscore.pipeline.estimate import run_time
from claimscore.pipeline.estimate.run_time import (
    LLM,
    MEASURED,
    Costs,
    OwnStages,
    Prediction,
    Stage,
    Work,
    models_stage,
    pass_seconds,
)


@dataclasses.dataclass(frozen=True, slots=True)
class LanguageModel:
    """The language model's servers; None where nothing bounds them.

    `rpm` and `tpm` are limits, `tokens_per_s` are read and written by all servers of one's own
    together, `latency_s` is one answer's, `requests_per_s` is all that is known of how fast answers
    come. In `outage_s` seconds nothing is answered; not `known`: it is not known when answers come.
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

    def stages(self, work: Work) -> Iterator[Stage]:
        """The bounds on answers, each with the seconds for all of them."""
        n, waits = work.requests, self.outage_s
        bounds = (
            (LLM, "its requests a second", n, self.requests_per_s),
            ("requests a minute", "the provider's limit", 60 * n, self.rpm),
            ("tokens a minute", "the provider's limit", 60 * work.tokens, self.tpm),
            ("servers", "tokens that the servers read and write", work.tokens, self.tokens_per_s),
        )
        if not self.known:
            yield Stage(LLM, "during", None, "when answers come is not known")
        for name, what, amount, rate in bounds:
            if rate is not None:
                yield Stage(name, "during", waits + amount / rate, what)
        if self.latency_s:
            seconds = waits + n * self.latency_s / self.concurrency
            yield Stage("in flight", "during", seconds, "latency by requests in flight")


@dataclasses.dataclass(frozen=True, slots=True)
class Encoders:
    """The devices that models compute on; one has one chunk at a time.

    `tokens_per_s` is one device's throughput at a pass, by its step; None or missing where it is
    not known. `on_cpu`: the device is all the cores of the run's own machine. A device works for
    `between_losses_s` on average before it is lost; its chunk is computed again after `restart_s`.
    """

    devices: int = 1
    tokens_per_s: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    on_cpu: bool = False
    between_losses_s: float | None = None
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ConfigError(f"devices must be at least 1, not {self.devices}")
        for step, rate in self.tokens_per_s.items():
            if rate is not None and not rate > 0:
                raise ConfigError(f"the tokens a second of {step} must be above zero, not {rate}")
        if self.between_losses_s is not None and not self.between_losses_s > 0:
            raise ConfigError("seconds between losses must be above zero")

    def stage(self, work: Work) -> Stage | None:
        """All passes; a device that is lost costs half a chunk and the time of its restart."""
        slower = 1.0
        if self.between_losses_s is not None:
            chunk = pass_seconds(work, self.tokens_per_s) / max(1, work.chunks)
            slower += (self.restart_s + chunk / 2) / self.between_losses_s
        return models_stage(work, self.tokens_per_s, self.devices, slower=slower)


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The machine that the run is on, and how many share each of its parts' work.

    `engines` ask the language model: one a run, so more are runs beside each other. Today
    a run has one `cache_writer`, scoring worker and reader too; `part_writers` write tables.
    """

    cores: int = 1
    engines: int = 1
    cache_writers: int = 1
    part_writers: int = 1
    scoring_workers: int = 1
    readers: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value >= 1:
                raise ConfigError(f"{field.name} must be at least 1, not {value}")


def shared(stage: Stage, workers: int) -> Stage:
    """The stage where so many share its work."""
    return stage._replace(seconds=(stage.seconds or 0.0) / workers)


def predict(
    work: Work, llm: LanguageModel, encoders: Encoders, host: Host, costs: Costs = MEASURED
) -> Prediction:
    """How long `work` takes on these machines.

    Chance has no part in it: losses count by their average, an outage by its seconds.
    """
    own = OwnStages.of(work, costs, rule_s=llm.rule_s)
    return run_time.predict(
        work,
        own._replace(
            reading=shared(own.reading, host.readers),
            engine=shared(own.engine, host.engines),
            cache_writer=shared(own.cache_writer, host.cache_writers),
            parts=shared(own.parts, host.part_writers),
            scoring=shared(own.scoring, host.scoring_workers),
        ),
        list(llm.stages(work)),
        encoders.stage(work),
        devices=encoders.devices,
        cores=host.cores,
        on_cpu=encoders.on_cpu,
        latency_s=llm.latency_s,
    )
