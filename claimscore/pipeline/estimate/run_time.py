"""How long a run takes, and which part is the slowest: formulas over figures that the caller gives.

All stages between the first request and the last batch are at work at the same time. Together they
take as long as the slowest of them (the bottleneck law of queueing networks: Denning and Buzen,
1978), and a chunk more: the models wait for the first chunk's answers, or have the last chunk left
when the last answer is there. `claimscore estimate` gives the figures of one machine,
`benchmarks/scaling` those of many; a simulation there checks the formulas (the page `scaling.md`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from claimscore.types import JSON

#: The stages that users ask about by name: the language model, the encoders, the machine's cores.
LLM, MODELS, CORES = "language model", "models", "cores"


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """The cost of claimscore itself: seconds of one core, and bytes.

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


@dataclasses.dataclass(frozen=True, slots=True)
class PassWork:
    """A model pass: its items (pairs or texts) and their tokens, as `passes.counting` counts."""

    step: str
    items: float
    tokens: float


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """The amounts that a run asks, computes and writes.

    `waves` are the requests of a chunk that wait for each other's answers, one after the other
    (claims are negated after they were made: 2). `steps` are what the manifest has of a chunk.
    """

    records: float
    requests: float
    prompt_tokens: float
    completion_tokens: float
    passes: tuple[PassWork, ...] = ()
    chunk_records: int = 64
    waves: int = 1
    steps: int = 1

    @property
    def tokens(self) -> float:
        """Tokens of the language model, prompts and answers."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def items(self) -> float:
        """Pairs and texts of all passes."""
        return sum(one.items for one in self.passes)

    @property
    def chunks(self) -> int:
        return math.ceil(self.records / self.chunk_records)


class Disk(NamedTuple):
    """Bytes that a run leaves, and the parts of its tables before they are put together."""

    cache_bytes: int
    table_bytes: int
    parts: int


def disk(work: Work, costs: Costs = MEASURED) -> Disk:
    """How much the cache and the tables grow."""
    answers, items = work.requests * costs.answer_bytes, work.items * costs.item_bytes
    return Disk(
        round(work.requests * costs.cache_bytes),
        round(work.records * costs.record_bytes + answers + items),
        work.chunks * work.steps,
    )


class Stage(NamedTuple):
    """A part of a run and how long it is busy; None where that is not known.

    Stages of the phase `during` are at work at the same time, the others one after the other.
    """

    name: str
    phase: Literal["before", "during", "after"]
    seconds: float | None
    what: str


class OwnStages(NamedTuple):
    """claimscore's own work, each stage done by one worker."""

    start: Stage
    reading: Stage
    engine: Stage
    cache_writer: Stage
    parts: Stage
    scoring: Stage

    @classmethod
    def of(cls, work: Work, costs: Costs = MEASURED, *, rule_s: float = 0.0) -> OwnStages:
        """The stages of `work`; `rule_s` is the CPU time of an answer that the rules make."""
        start = costs.start_s + (costs.load_s if work.passes else 0.0)
        asking = work.requests * (costs.request_s + rule_s)
        writing = work.chunks * work.steps * costs.chunk_step_s
        return cls(
            Stage("start", "before", start, "the process and the models are loaded"),
            Stage("reading", "before", work.records * costs.read_s, "records are copied"),
            Stage("engine", "during", asking, "one core asks and reads the answers"),
            Stage(
                "cache writer",
                "during",
                work.requests * costs.cache_s,
                "answers are committed by the group",
            ),
            Stage("parts", "during", writing, "tables of chunks, and the manifest's lines"),
            Stage(
                "scoring",
                "after",
                work.records * costs.scoring_s,
                "tables are read, scores.parquet is written",
            ),
        )


def models_stage(
    work: Work, tokens_per_s: Mapping[str, float | None], devices: int, *, slower: float = 1.0
) -> Stage | None:
    """The model passes on `devices` that work alike; None where there are no passes.

    `tokens_per_s` is one device's throughput by the pass's step, `slower` a factor on all of their
    work. A chunk is one device's, so more devices than chunks have nothing to do.
    """
    if not work.passes:
        return None
    missing = [one.step for one in work.passes if one.tokens and not tokens_per_s.get(one.step)]
    if missing:
        return Stage(MODELS, "during", None, f"the pace of {', '.join(missing)} is not known")
    seconds = pass_seconds(work, tokens_per_s)
    chunk = seconds / max(1, work.chunks)
    paces = "the devices' pace" if devices == 1 else f"the pace of {devices} devices"
    return Stage(MODELS, "during", max(seconds * slower / devices, chunk), f"tokens by {paces}")


def pass_seconds(work: Work, tokens_per_s: Mapping[str, float | None]) -> float:
    """Seconds of one device for all passes whose throughput is known."""
    return sum(one.tokens / pace for one in work.passes if (pace := tokens_per_s.get(one.step)))


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """How long a run takes, stage by stage.

    `tail_s` is the chunk that only one of language model and models works on.
    """

    stages: tuple[Stage, ...]
    tail_s: float

    @property
    def known_s(self) -> float:
        """The seconds without the stages that are not known: the run takes at least that."""
        during = [stage.seconds or 0.0 for stage in self.stages if stage.phase == "during"]
        around = [stage.seconds or 0.0 for stage in self.stages if stage.phase != "during"]
        return sum(around) + max(during) + self.tail_s

    @property
    def unknown(self) -> tuple[str, ...]:
        """Stages whose time is not known."""
        return tuple(stage.name for stage in self.stages if stage.seconds is None)

    @property
    def total_s(self) -> float | None:
        """All of it; None where a stage is not known."""
        return None if self.unknown else self.known_s

    @property
    def bottleneck(self) -> Stage | None:
        """The stage that takes longest; None where one is not known, or there is nothing to do.

        Stages `before` and `after` count as well: of a run that scores longer than it asks,
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
        """A stage's; 0.0 where there is no such stage."""
        return next((stage.seconds for stage in self.stages if stage.name == name), 0.0)

    def to_json(self) -> JSON:
        bottleneck = self.bottleneck
        return {
            "total_s": self.total_s,
            "known_s": self.known_s,
            "tail_s": self.tail_s,
            "bottleneck": None if bottleneck is None else bottleneck.name,
            "unknown": list(self.unknown),
            "stages": [stage._asdict() for stage in self.stages],
        }


def predict(
    work: Work,
    own: OwnStages,
    llm: Sequence[Stage],
    models: Stage | None,
    *,
    devices: int = 1,
    cores: int = 1,
    on_cpu: bool = False,
    latency_s: float = 0.0,
) -> Prediction:
    """How long `work` takes: claimscore's own stages, the language model's `llm`, the models.

    `on_cpu`: the device of the models is all `cores` of the run's own machine. `latency_s` is
    one answer's. Chance has no part in it.
    """
    asking = (*llm, own.engine, own.cache_writer) if work.requests else ()
    models_s = (models.seconds or 0.0) if models is not None else 0.0
    own_s = (own.engine.seconds or 0.0) + (own.parts.seconds or 0.0)
    cores_s = (models_s if on_cpu else 0.0) + own_s / cores
    shared = ", the models' too" if on_cpu else ""
    what = f"all CPU work of the run's machine{shared}, by its cores"
    during = [*asking, *([models] if models is not None else []), own.parts]
    during.append(Stage(CORES, "during", cores_s, what))
    llm_s = max((stage.seconds or 0.0 for stage in asking), default=0.0)
    return Prediction(
        (own.start, own.reading, *during, own.scoring),
        _tail_s(work, llm_s, models_s, devices, latency_s),
    )


def _tail_s(work: Work, llm_s: float, models_s: float, devices: int, latency_s: float) -> float:
    """Seconds that the longer of LLM stage and models waits for the other one, once.

    The LLM stage is longer: its last chunk goes through the models. The models are longer: they
    wait for their first chunk, and at the end not all devices are done at once.
    """
    if not work.chunks or not (llm_s and models_s):
        return 0.0
    busy = min(devices, work.chunks)
    chunk = models_s * busy / work.chunks
    if llm_s >= models_s:
        return chunk
    return min(llm_s, llm_s / work.chunks + work.waves * latency_s) + chunk * (1 - 1 / busy) / 2
