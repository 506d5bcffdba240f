"""The formulas for how long a run takes: what must hold whatever the figures are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from machines import Encoders, Host, LanguageModel, predict

from claimscore.pipeline.estimate.run_time import Costs, PassWork, Prediction, Work


def by_name(found: Prediction) -> dict[str, float | None]:
    return {stage.name: stage.seconds for stage in found.stages}


WORK = Work(6_400, 64_000, 64_000 * 300, 64_000 * 30, (PassWork("nli", 1e6, 4e7),), steps=3)
FREE = Costs(0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("llm", "encoder", "host", "part", "seconds"),
    [
        pytest.param({"rpm": 600}, {}, {}, "requests a minute", 6_400, id="requests"),
        pytest.param({"tpm": 2_112_000}, {}, {}, "tokens a minute", 600, id="tokens"),
        pytest.param({"tokens_per_s": 21_120}, {}, {}, "servers", 1_000, id="servers"),
        pytest.param({"latency_s": 2, "concurrency": 64}, {}, {}, "in flight", 2_000, id="flight"),
        pytest.param({"requests_per_s": 10}, {}, {}, "language model", 6_400, id="told"),
        pytest.param({"rpm": 600, "outage_s": 50}, {}, {}, "requests a minute", 6_450, id="outage"),
        pytest.param({"rule_s": 0.01}, {}, {}, "engine", 640, id="rules"),
        pytest.param({}, {"devices": 4}, {}, "models", 10_000, id="models"),
        pytest.param({}, {"devices": 1000}, {}, "models", 400, id="a chunk is one device's"),
        pytest.param(
            {}, {"between_losses_s": 2_000, "restart_s": 600}, {}, "models", 56_000, id="losses"
        ),
    ],
)  # fmt: skip
def test_each_part_by_hand(
    llm: dict[str, Any], encoder: dict[str, Any], host: dict[str, Any], part: str, seconds: float
) -> None:
    """100 chunks of 64 records; a model of 1,000 tokens a second has 400 s of work a chunk."""
    models = Encoders(**{"tokens_per_s": {"nli": 1_000.0}, **encoder})
    found = predict(WORK, LanguageModel(**llm), models, Host(**host), FREE)
    assert found.seconds(part) == pytest.approx(seconds)


def test_costs_by_hand() -> None:
    costs = Costs(10, 20, 0.01, 0.02, 0.001, 0.5, 0.03)
    host = Host(cores=8, engines=4, cache_writers=2, part_writers=5, scoring_workers=16)
    found = predict(WORK, LanguageModel(), Encoders(1, {"nli": 1e9}), host, costs)
    assert by_name(found) == pytest.approx(
        {
            "start": 30,
            "reading": 64,
            "engine": 320,
            "cache writer": 32,
            "models": 0.04,
            "parts": 30,
            "cores": (320 + 30) / 8,
            "scoring": 12,
        }
    )
    assert found.bottleneck is not None
    assert found.bottleneck.name == "engine"


def test_what_nobody_knows_is_not_a_number() -> None:
    found = predict(WORK, LanguageModel(rpm=600), Encoders(), Host(), FREE)
    assert (found.total_s, found.bottleneck, found.unknown) == (None, None, ("models",))
    assert found.known_s == pytest.approx(6_400)
    found = predict(WORK, LanguageModel(known=False), Encoders(1, {"nli": 1e6}), Host(), FREE)
    assert found.unknown == ("language model",)
    said = json.loads(json.dumps(found.to_json()))
    assert said["total_s"] is said["bottleneck"] is None
    unknown = [stage["name"] for stage in said["stages"] if stage["seconds"] is None]
    assert unknown == said["unknown"] == ["language model"]


def test_the_tail_is_a_chunk() -> None:
    slow = LanguageModel(rpm=600, latency_s=1.0, concurrency=10**9)
    found = predict(WORK, slow, Encoders(1, {"nli": 1e5}), Host(), FREE)
    assert found.tail_s == pytest.approx(4)
    found = predict(WORK, slow, Encoders(1, {"nli": 1e3}), Host(), FREE)
    assert found.tail_s == pytest.approx(64 + 1)
    assert predict(WORK, slow, Encoders(1), Host(), FREE).tail_s == 0
