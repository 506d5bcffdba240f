"""The closed form agrees with a simulation by events, and its page is made of it."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path

import pytest
import setups
import simulate as simulation
from machines import Encoders, Host, LanguageModel
from scaling_scenarios import SCENARIOS, TOLERANCE, Scenario, compared
from scaling_tables import changes, count, span

from claimscore.pipeline.estimate.run_time import PassWork, Work

ROOT = Path(__file__).resolve().parents[4]


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


def test_a_lost_device_costs_its_chunk_and_its_restart() -> None:
    """The chunk is computed again, whole; nothing is lost for good."""
    models = Encoders(1, {"nli": 10.0}, between_losses_s=200.0, restart_s=30.0)
    llm = LanguageModel(latency_s=1.0, concurrency=100)
    found = simulation.simulate(small(640, 10), llm, models, Host(), FREE, EVEN)
    lasting = dataclasses.replace(models, between_losses_s=None)
    without = simulation.simulate(small(640, 10), llm, lasting, Host(), FREE, EVEN)
    assert without.losses == 0
    assert found.losses > 0
    assert found.chunks_done == 10
    lost = found.total_s - without.total_s
    assert 30 * found.losses < lost < (30 + 64) * found.losses


def test_nobody_is_answered_in_an_outage() -> None:
    """And it ends: the run takes as much longer."""
    llm = LanguageModel(rpm=60, latency_s=0.5, concurrency=10)
    models, work = Encoders(1, {"nli": 1e6}), small(640, 200)
    found, without = (
        simulation.simulate(work, one, models, Host(), FREE, EVEN)
        for one in (dataclasses.replace(llm, outage_s=100.0), llm)
    )
    assert without.total_s == pytest.approx(199.5, abs=0.1)
    assert found.total_s == pytest.approx(without.total_s + 100, abs=1.1)


def test_the_same_seed_is_the_same_run() -> None:
    """And another one is another."""
    scenario = SCENARIOS[0]
    given = (setups.hotel_pairs(320), scenario.llm, scenario.encoders, scenario.host, FREE)
    first, again, other = (
        simulation.simulate(*given, simulation.Chances(seed=seed), group=16).total_s
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_the_bottleneck_moves_and_the_run_gets_shorter() -> None:
    """Each change is of what was slowest, and none makes it slower; in the end it is the GPUs."""
    steps = list(changes(setups.CLUSTERS[-1], setups.hotel_pairs(1e8)))
    times = [step.prediction.known_s for step in steps]
    assert times == sorted(times, reverse=True)
    assert len(steps) > 2
    last = steps[-1].prediction.bottleneck
    assert last is not None
    assert last.name in ("servers", "models")


def test_one_gpu_is_shared_so_that_both_end_together() -> None:
    """Language model and encoders take the same time on it, by their work."""
    split = setups.with_servers(setups.CLUSTERS[1], setups.hotel_pairs(1e6), setups.ASSUMED)
    assert 0.5 < split.serving < 1
    seconds = split.prediction.seconds
    assert seconds("servers") == pytest.approx(seconds("models"))


def test_the_page_is_up_to_date() -> None:
    """docs/explanation/scaling.md has the tables that the model makes now."""
    path = ROOT / "scripts" / "make_scaling_doc.py"
    spec = importlib.util.spec_from_file_location("make_scaling_doc", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "explanation/scaling.md").read_text(encoding="utf-8")
    assert script.scaling_doc(page) == page, "run python scripts/make_scaling_doc.py"


def test_figures_are_no_more_exact_than_they_are() -> None:
    """Two digits, and a unit that people think in."""
    said = [span(seconds) for seconds in (40, 61, 3600, 100_000, 1e6, 1e9)]
    assert said == ["40 s", "1.0 min", "1.0 h", "28 h", "12 days", "11,574 days"]
    assert count(1e6) == "10⁶"
    assert math.isclose(setups.ASSUMED.encoder_tokens_per_s, 204_590, rel_tol=1e-3)
