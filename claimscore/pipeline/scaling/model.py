"""The formulas: each part's busy seconds, the longest of them, and what is before and after it.

Everything between the first request and the last batch happens at the same time, so it takes as
long as the part that has most to do (the bottleneck law of queueing networks: Denning and
Buzen, 1978), and a chunk more: the models wait for the first chunk's answers, or have
the last chunk left when the last answer is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

from claimscore.pipeline.scaling.machines import MEASURED, Costs, Encoders, Host, LanguageModel
from claimscore.pipeline.scaling.work import PassWork, Work
from claimscore.types import JSON

Phase = Literal["before", "during", "after"]

#: The parts that people ask about by name: a language model whose inside is not known, the
#: encoders, and the machine's cores.
LLM, MODELS, CORES = "language model", "models", "cores"


class Stage(NamedTuple):
    """A part of a run and how long it is busy; None where that is not known.

    `phase`: what is `during` happens at the same time, the rest one after the other.
    """

    name: str
    phase: Phase
    seconds: float | None
    what: str

    def to_json(self) -> JSON:
        return self._asdict()


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """How long a run takes, part by part.

    `tail_s` is the chunk that only one of LLM and models works on. `known_s` is the time with
    what is not known left out: the run takes at least that.
    """

    stages: tuple[Stage, ...]
    known_s: float
    tail_s: float

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parts whose time nobody knows."""
        return tuple(stage.name for stage in self.stages if stage.seconds is None)

    @property
    def total_s(self) -> float | None:
        """All of it; None where a part is not known."""
        return None if self.unknown else self.known_s

    @property
    def bottleneck(self) -> Stage | None:
        """The part that takes longest; None where a part is not known, or there is nothing to do.

        What is `before` or `after` counts as well: of a run that scores longer than it asks,
        scoring is the bottleneck. Cores that compute models for most of their time are called by
        them.
        """
        if self.unknown:
            return None
        busy = [stage for stage in self.stages if stage.seconds]
        longest = max(busy, key=lambda stage: stage.seconds or 0.0, default=None)
        if longest is not None and longest.name == CORES:
            models = next((stage for stage in busy if stage.name == MODELS), longest)
            if (models.seconds or 0.0) > (longest.seconds or 0.0) / 2:
                return models
        return longest

    def seconds(self, name: str) -> float | None:
        """A part's; 0.0 where there is no such part."""
        return next((stage.seconds for stage in self.stages if stage.name == name), 0.0)

    def to_json(self) -> JSON:
        bottleneck = self.bottleneck
        return {
            "total_s": self.total_s,
            "known_s": self.known_s,
            "tail_s": self.tail_s,
            "bottleneck": None if bottleneck is None else bottleneck.name,
            "unknown": list(self.unknown),
            "stages": [stage.to_json() for stage in self.stages],
        }


class Disk(NamedTuple):
    """Bytes that a run leaves, and the parts of its tables before they are put together."""

    cache_bytes: float
    table_bytes: float
    parts: int

    def to_json(self) -> JSON:
        return {
            "cache_bytes": round(self.cache_bytes),
            "table_bytes": round(self.table_bytes),
            "parts": self.parts,
        }


def disk(work: Work, costs: Costs = MEASURED) -> Disk:
    """What the cache and the tables grow by."""
    return Disk(
        work.requests * costs.cache_bytes,
        work.records * costs.record_bytes
        + work.requests * costs.answer_bytes
        + work.items * costs.item_bytes,
        work.chunks * work.steps,
    )


def predict(
    work: Work,
    llm: LanguageModel,
    encoders: Encoders,
    host: Host,
    costs: Costs = MEASURED,
) -> Prediction:
    """How long `work` takes on these machines.

    Nothing is asked, computed or known of chance: `between_losses_s` counts by its average, and
    an outage as the seconds that it lasts.
    """
    asking = list(_asking(work, llm, host, costs))
    models = _models_s(work, encoders)
    cores = _cores_s(work, llm, encoders, models, host, costs)
    reading = work.records * costs.read_s / host.readers
    around = [
        Stage("start", "before", start_s(work, costs), "the process and the models are loaded"),
        Stage("reading", "before", reading, "records are copied"),
    ]
    during = [*asking]
    if work.passes:
        during.append(Stage(MODELS, "during", models, _what_models(work, encoders)))
    parts = work.chunks * work.steps * costs.chunk_step_s / host.part_writers
    during += [
        Stage("parts", "during", parts, "tables of chunks, and the manifest's lines"),
        Stage(CORES, "during", cores, _what_cores(encoders)),
    ]
    scoring = work.records * costs.scoring_s / host.scoring_workers
    after = Stage("scoring", "after", scoring, "tables are read, scores.parquet is written")
    llm_s = max((stage.seconds or 0.0 for stage in asking), default=0.0)
    tail = _tail_s(work, llm_s, models or 0.0, encoders, llm)
    overlapped = max(stage.seconds or 0.0 for stage in during)
    known = sum(stage.seconds or 0.0 for stage in (*around, after)) + overlapped + tail
    return Prediction((*around, *during, after), known, tail)


def start_s(work: Work, costs: Costs) -> float:
    """Seconds until a process is at work, with models where some are needed."""
    return costs.start_s + (costs.load_s if work.passes else 0.0)


def _asking(work: Work, llm: LanguageModel, host: Host, costs: Costs) -> Iterator[Stage]:
    """What an answer passes through, each with the time for all of them."""
    n = work.requests
    if not n:
        return
    waits = llm.outage_s
    if not llm.known:
        yield Stage(LLM, "during", None, "nobody knows when answers come")
    if llm.requests_per_s is not None:
        yield Stage(LLM, "during", waits + n / llm.requests_per_s, "its requests a second")
    if llm.rpm is not None:
        yield Stage("requests a minute", "during", waits + n / llm.rpm * 60, "the provider's limit")
    if llm.tpm is not None:
        seconds = waits + work.tokens / llm.tpm * 60
        yield Stage("tokens a minute", "during", seconds, "the provider's limit")
    if llm.tokens_per_s is not None:
        seconds = waits + work.tokens / llm.tokens_per_s
        yield Stage("servers", "during", seconds, "what the servers read and write")
    if llm.latency_s:
        seconds = waits + n * llm.latency_s / llm.concurrency
        yield Stage("in flight", "during", seconds, "latency by requests in flight")
    each = costs.request_s + llm.rule_s
    yield Stage("engine", "during", n * each / host.llm_workers, "a core of each LLM worker")
    if host.head_s:
        what = "what workers share: claims, limits, money, answers for the cache"
        yield Stage("head node", "during", n * host.head_s, what)
    seconds = n * costs.cache_s / host.cache_writers
    yield Stage("cache writer", "during", seconds, "answers are committed by the group")


def _models_s(work: Work, encoders: Encoders) -> float | None:
    """Seconds until the devices have gone through all passes; None where a pace is not known.

    A chunk is one device's, so more devices than chunks have nothing to do; what is lost with a
    device is half a chunk and the time until another one is there.
    """
    paces = encoders.tokens_per_s
    seconds = 0.0
    for one in work.passes:
        pace = paces.get(one.step)
        if one.tokens and pace is None:
            return None
        seconds += one.tokens / pace if pace else 0.0
    if not work.chunks:
        return 0.0
    chunk = seconds / work.chunks
    if encoders.between_losses_s is not None:
        seconds *= 1 + (encoders.restart_s + chunk / 2) / encoders.between_losses_s
    return max(seconds / encoders.devices, chunk)


def _chunk_s(work: Work, models: float, encoders: Encoders) -> float:
    """A device's time for a chunk."""
    busy = min(encoders.devices, work.chunks)
    return models * busy / work.chunks if work.chunks else 0.0


def _tail_s(
    work: Work, llm_s: float, models: float, encoders: Encoders, llm: LanguageModel
) -> float:
    """What the longer of LLM stage and models has to wait for the other one, once.

    The LLM stage is longer: its last chunk goes through the models. The models are longer: they
    wait for their first chunk, and at the end not all devices are done at once.
    """
    if not work.chunks or not (llm_s and models):
        return 0.0
    chunk = _chunk_s(work, models, encoders)
    if llm_s >= models:
        return chunk
    last = chunk * (1 - 1 / min(encoders.devices, work.chunks)) / 2
    return min(llm_s, llm_s / work.chunks + work.waves * llm.latency_s) + last


def _cores_s(
    work: Work,
    llm: LanguageModel,
    encoders: Encoders,
    models: float | None,
    host: Host,
    costs: Costs,
) -> float:
    """All CPU work of the run's own machine, shared by its cores."""
    asking = work.requests * (costs.request_s + llm.rule_s) / host.llm_workers
    parts = work.chunks * work.steps * costs.chunk_step_s / host.part_writers
    here = (models or 0.0) if encoders.on_cpu else 0.0
    return here + (asking + parts) / host.cores


def _what_models(work: Work, encoders: Encoders) -> str:
    missing = [one.step for one in work.passes if not _has_pace(one, encoders)]
    if missing:
        return f"the pace of {', '.join(missing)} is not known"
    count = encoders.devices
    return "tokens by the devices' pace" if count == 1 else f"tokens by the pace of {count} devices"


def _what_cores(encoders: Encoders) -> str:
    shared = ", the models' too" if encoders.on_cpu else ""
    return f"all CPU work of the run's machine{shared}, by its cores"


def _has_pace(one: PassWork, encoders: Encoders) -> bool:
    return not one.tokens or encoders.tokens_per_s.get(one.step) is not None
