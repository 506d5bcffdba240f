"""Runs that are simulated beside the formulas: in each another part is the bottleneck."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

from machines import Encoders, Host, LanguageModel, predict
from setups import COSTS, hotel_pairs
from simulate import Chances, Simulated, simulate

from claimscore.pipeline.estimate.run_time import Costs, Prediction, Work

#: How far the formulas may be from the simulation.
TOLERANCE = 0.05

#: Scoring is the same sum on both sides: without it the parts that are simulated are seen.
UNSCORED = dataclasses.replace(COSTS, scoring_s=0.0)


class Scenario(NamedTuple):
    """A run, and what is the bottleneck in it."""

    name: str
    bottleneck: str
    work: Work
    llm: LanguageModel
    encoders: Encoders
    host: Host = Host(cores=16)
    chances: Chances = Chances()
    costs: Costs = UNSCORED


class Compared(NamedTuple):
    """What the formulas say of a scenario, and what happened in its simulation."""

    scenario: Scenario
    prediction: Prediction
    simulated: Simulated

    @property
    def ratio(self) -> float:
        """Predicted over simulated seconds."""
        return self.prediction.known_s / self.simulated.total_s


def _encoders(devices: int, pace: float, **more: object) -> Encoders:
    paces = {"nli": pace, "token_scores": pace}
    return Encoders(devices, paces, **more)  # type: ignore[arg-type]


_WORK = hotel_pairs(6_400)
_FAST = _encoders(2, 200_000)
_QUICK = LanguageModel(rpm=50_000, latency_s=1.5, concurrency=2048)
_SERVERS = LanguageModel(tokens_per_s=1e7, latency_s=1.5, concurrency=4096)

SCENARIOS = (
    Scenario(
        "a provider's requests a minute",
        "requests a minute",
        _WORK,
        LanguageModel(rpm=5_000, latency_s=1.5, concurrency=256),
        _FAST,
    ),
    Scenario(
        "a provider's tokens a minute",
        "tokens a minute",
        _WORK,
        LanguageModel(tpm=2e6, latency_s=1.5, concurrency=256),
        _FAST,
    ),
    Scenario(
        "64 requests in flight, no limit",
        "in flight",
        _WORK,
        LanguageModel(latency_s=1.5, concurrency=64),
        _FAST,
    ),
    Scenario(
        "two requests that wait for each other",
        "in flight",
        dataclasses.replace(_WORK, waves=2),
        LanguageModel(latency_s=1.5, concurrency=64),
        _FAST,
    ),
    Scenario(
        "servers of one's own",
        "servers",
        _WORK,
        LanguageModel(tokens_per_s=20_000, latency_s=1.5, concurrency=256),
        _FAST,
    ),
    Scenario("two slow encoder devices", "models", _WORK, _QUICK, _encoders(2, 20_000)),
    Scenario("eight slow encoder devices", "models", _WORK, _QUICK, _encoders(8, 8_000)),
    Scenario(
        "eight devices, each lost every 20 minutes",
        "models",
        hotel_pairs(25_600),
        _QUICK,
        _encoders(8, 8_000, between_losses_s=1200.0, restart_s=60.0),
    ),
    Scenario(
        "an outage of five minutes",
        "requests a minute",
        _WORK,
        LanguageModel(rpm=5_000, latency_s=1.5, concurrency=256, outage_s=300.0),
        _FAST,
    ),
    Scenario(
        "a laptop: models and engine share 8 cores",
        "models",
        hotel_pairs(1_280),
        LanguageModel(latency_s=1.5, concurrency=64),
        _encoders(1, 23_200, on_cpu=True),
        Host(cores=8),
    ),
    Scenario("answers at once: one engine", "engine", _WORK, _SERVERS, _encoders(8, 200_000)),
    Scenario(
        "a cache that takes 1 ms an answer",
        "cache writer",
        _WORK,
        _SERVERS,
        _encoders(8, 200_000),
        Host(cores=64, engines=16),
        costs=dataclasses.replace(UNSCORED, cache_s=0.001),
    ),
)


@functools.cache
def compared(name: str) -> Compared:
    """The scenario of that name by formulas and by events."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    given = (scenario.work, scenario.llm, scenario.encoders, scenario.host, scenario.costs)
    group = max(8, round(scenario.work.requests / 6_000))
    return Compared(scenario, predict(*given), simulate(*given, scenario.chances, group=group))
