"""The closed form agrees with a simulation by events, and its page is made of it."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest
import setups
import simulate as simulation
from machines import Encoders, Host, LanguageModel
from scaling_scenarios import SCENARIOS, TOLERANCE, Scenario, compared

from claimscore.pipeline.estimate.run_time import PassWork, Work

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_formulas_agree_with_the_simulation(scenario: Scenario) -> None:
    """Within 5 %, whatever the bottleneck is; every request and every chunk was done."""
    found = compared(scenario.name)
    assert found.prediction.bottleneck is not None
    assert found.prediction.bottleneck.name == scenario.bottleneck
    assert abs(found.ratio - 1) <= TOLERANCE
    assert found.simulated.chunks_done == scenario.work.chunks
    assert found.simulated.requests_done == pytest.approx(scenario.work.requests)


EVEN = simulation.Chances(latency_spread=0.0, chunk_spread=0.0)
FREE = setups.COSTS.__class__(0, 0, 0, 0, 0, 0, 0)


def small(records: int, requests: int) -> Work:
    return Work(records, requests, 0, 0, (PassWork("nli", 1, records * 10),))


def test_a_run_that_can_be_followed_by_hand() -> None:
    """Two chunks of two requests of 1 s, one in flight; a chunk takes a device 64 s."""
    llm, models = LanguageModel(latency_s=1.0, concurrency=1), Encoders(1, {"nli": 10.0})
    found = simulation.simulate(small(128, 4), llm, models, Host(), FREE, EVEN)
    assert found.first_chunk_s == 2.0
    assert found.answered_s == 4.0
    assert found.total_s == found.modelled_s == 2 + 64 + 64
    two = simulation.simulate(
        small(128, 4), llm, dataclasses.replace(models, devices=2), Host(), FREE, EVEN
    )
    assert two.total_s == 4 + 64


def test_one_gpu_is_shared_so_that_both_end_together() -> None:
    split = setups.with_servers(setups.CLUSTERS[1], setups.hotel_pairs(1e6), setups.ASSUMED)
    assert 0.5 < split.serving < 1
    seconds = split.prediction.seconds
    assert seconds("servers") == pytest.approx(seconds("models"))


def test_the_page_is_up_to_date() -> None:
    path = ROOT / "scripts" / "make_scaling_doc.py"
    spec = importlib.util.spec_from_file_location("make_scaling_doc", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "explanation/scaling.md").read_text(encoding="utf-8")
    assert script.scaling_doc(page) == page, "run python scripts/make_scaling_doc.py"
