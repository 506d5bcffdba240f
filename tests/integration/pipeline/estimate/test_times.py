"""How long the whole run takes: language model, models at their remembered pace, the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.pipeline.encoders.devices import device_label
from claimscore.pipeline.encoders.throughput import Throughput, ThroughputKey, save_throughput
from claimscore.pipeline.estimate import Estimate, estimate_run
from claimscore.pipeline.estimate.run_time import Prediction
from claimscore.pipeline.llm.providers.base import load_provider
from tests.integration.pipeline.estimate.test_estimate import EXAMPLES, NOWHERE
from tests.support.command_line import Command
from tests.support.pass_doubles import FakeModel

pytestmark = pytest.mark.usefixtures("rules_answer_once")


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claimscore.pipeline.estimate.hours.os.cpu_count", lambda: 4)


def knows(
    role: str,
    tokens_per_s: float,
    model: str = "embedded",
    device: str | None = None,
    limit: int | None = None,
) -> None:
    """A pace as an earlier run on this machine has left it."""
    key = ThroughputKey(role, model, "float32", device or device_label("cpu"))
    save_throughput(key, Throughput(tokens_per_s * 10, 10.0, limit))


def estimated(*metrics: str, source: Path = EXAMPLES, **more: Any) -> Estimate:
    given = {"encoders": EncoderConfig(device="cpu"), "check_entailment": False, **more}
    return estimate_run(RunConfig(str(source), Path("unused"), metrics, **given))


def time_of(found: Estimate) -> Prediction:
    assert found.time is not None
    return found.time


def bottleneck(found: Estimate) -> str | None:
    stage = time_of(found).bottleneck
    return None if stage is None else stage.name


def test_what_the_rules_claim_is_what_the_models_are_then_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Command
) -> None:
    """With the rules as language model the expected pairs are the pairs; of a finished run none is
    left, and the time is that of scoring again."""
    classifier = FakeModel()
    load = "claimscore.pipeline.model_stage.load_model"
    monkeypatch.setattr(load, lambda role, config: classifier)
    expected = estimated("caspr", check_entailment=True).passes
    call = (EXAMPLES, "--llm", "builtin-rules", "--metrics", "caspr", "--out", tmp_path / "run")
    assert cli("run", *call, "--quiet").status == 0
    assert sum(one.expected_items or 0 for one in expected) == sum(map(len, classifier.calls)) > 0
    after = cli("estimate", *call, "--json").json()
    for left in after["passes"]:
        assert (left["expected_items"], left["tokens"], left["seconds"]) == (0, 0, 0.0)
    assert after["time"]["unknown"] == []
    lines = cli("estimate", *call).out.splitlines()
    assert "nothing is missing: a run would send no request" in lines
    assert any(line.startswith("time: about ") for line in lines)


def test_where_nobody_knows_there_is_no_number(cli: Command) -> None:
    """The time without it is the least, and a command finds out."""
    found = estimated("caspr", "bs-inverse")
    assert [one.seconds for one in found.passes] == [None, None]
    assert (time_of(found).total_s, time_of(found).unknown) == (None, ("models",))
    notes = "\n".join(found.time_notes)
    assert "--nli embedded is here is not known; claimscore models check embedded --d" in notes
    assert "models check embedded --role token-encoder --device cpu finds out" in notes
    lines = cli("estimate", EXAMPLES, "--metrics", "caspr").out.splitlines()
    assert any(line.startswith("time: at least 6 s; how long the models will") for line in lines)
    assert any(" ".join(line.split()).startswith("nli-a-b not known about") for line in lines)


def test_several_devices_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs take half the time; a server counts once, however many there are."""
    names = "claimscore.pipeline.estimate.hours.device_names"
    monkeypatch.setattr(names, lambda asked: ("cuda:0", "cuda:1"))
    label = "claimscore.pipeline.encoders.throughput.device_label"
    monkeypatch.setattr(label, lambda name: {"cuda:0": "a GPU"}[name])
    for role in ("nli", "token_encoder"):
        knows(role, 1000.0, device="a GPU")
    knows("nli", 1000.0, "tei:http://x", "its server")
    found = estimated("caspr", "bs-inverse", encoders=EncoderConfig())
    for one in found.passes:
        assert one.seconds == pytest.approx((one.tokens or 0) / 2000)
    chunk = sum(one.tokens or 0 for one in found.passes) / 1000
    assert time_of(found).seconds("models") == pytest.approx(chunk), "one chunk is one device's"
    served = EncoderConfig(nli="tei:http://x")
    found = estimated("caspr", "bs-inverse", encoders=served, chunk_records=2)
    nli, token_scores = found.passes
    assert nli.seconds == pytest.approx((nli.tokens or 0) / 1000)
    both = (nli.seconds or 0) + (token_scores.seconds or 0)
    assert time_of(found).seconds("models") == pytest.approx(both)
    cores = next(stage for stage in time_of(found).stages if stage.name == "cores")
    assert "the models' too" not in cores.what


def test_the_language_models_hours_are_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `hours` says it; of a batch nobody knows, except that a day is promised."""
    knows("nli", 1e6)
    llm = LLMConfig(model="openai:m", base_url=NOWHERE, rpm=6.0)
    found = estimated("caspr", llm=llm)
    assert found.hours is not None
    assert time_of(found).seconds("language model") == pytest.approx(found.hours * 3600)
    assert bottleneck(found) == "language model"
    provider = load_provider(llm)
    monkeypatch.setattr("claimscore.pipeline.estimate.stage.load_provider", lambda llm: provider)
    found = estimated("caspr", llm=LLMConfig(model="openai-batch:m", base_url=NOWHERE))
    assert (found.hours, time_of(found).unknown) == (None, ("language model",))
    assert "24 hours" in found.assumptions[-1]


GOLDEN = """\
time: about 48 s in all, stages at work at the same time; the slowest part: models
part                busy for  by
start               6 s       the process and the models are loaded
models              42 s      tokens by the devices' pace
  nli-a-b           37 s      about 220 pairs, 3,726 tokens, 100 tokens a second
  token_scores-a-b  5 s       about 12 pairs, 500 tokens, 100 tokens a second
cores               42 s      all CPU work of the run's machine, the models' too, by its cores
disk: about 94.6 kB more in the cache, 16.2 kB of tables
"""


def test_the_command_shows_it(cli: Command) -> None:
    """For people to the letter; for programs with every figure, and with the machine's price where
    the user names one and the time is known."""
    knows("nli", 100.0)
    knows("token_encoder", 100.0)
    call = ("estimate", EXAMPLES, "--device", "cpu", "--no-check-entailment")
    shown = cli(*call).out
    assert GOLDEN in shown
    assert "machine: about $0.4" in cli(*call, "--machine-price", 36).out
    assert "--nli embedded 100, --token-encoder embedded 100" in shown
    found = cli(*call, "--json").json()
    assert list(found["time"]) == [
        *("total_s", "known_s", "tail_s", "bottleneck", "unknown", "stages", "notes"),
        "machine_usd",
    ]
    assert (found["time"]["machine_usd"], found["time"]["bottleneck"]) == (None, "models")
    assert found["disk"]["parts"] == 4
    json.dumps(found, allow_nan=False)
    unknown = cli("estimate", EXAMPLES, "--nli", "other", "--machine-price", 36, "--json").json()
    assert unknown["time"]["machine_usd"] is None
