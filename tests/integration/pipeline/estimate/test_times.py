"""How long the whole run takes: language model, models at their remembered pace, the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import claimscore.pipeline.estimate.stage as counting
from claimscore.cli import main
from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.pipeline.encoders.devices import device_label
from claimscore.pipeline.encoders.throughput import Throughput, ThroughputKey, save_throughput
from claimscore.pipeline.estimate import Estimate, estimate_requests, estimate_run
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.run import run
from tests.integration.pipeline.estimate.test_estimate import EXAMPLES, NOWHERE, claimscore_json
from tests.integration.pipeline.estimate.test_passes import CountingClassifier

pytestmark = pytest.mark.usefixtures("rules_answer_once")


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claimscore.pipeline.estimate.hours.os.cpu_count", lambda: 4)


def knows(role: str, tokens_per_s: float, model: str = "embedded") -> None:
    """A pace as an earlier run on this machine has left it."""
    save_throughput(
        ThroughputKey(role, model, "float32", device_label("cpu")),
        Throughput(tokens_per_s * 10, 10.0),
    )


def estimated(*metrics: str, **more: Any) -> Estimate:
    given = {"encoders": EncoderConfig(device="cpu"), **more}
    return estimate_run(RunConfig(str(EXAMPLES), Path("unused"), metrics, **given))


def test_a_pass_takes_its_tokens_by_its_pace() -> None:
    """And the whole run has no part that is not known."""
    knows("nli", 100.0)
    knows("token_encoder", 50.0)
    found = estimated("caspr", "bs-inverse")
    nli, token_scores = found.passes
    assert nli.items is None, "what is not made yet is not known"
    assert nli.tokens
    assert nli.seconds == pytest.approx(nli.tokens / 100)
    assert token_scores.seconds == pytest.approx((token_scores.tokens or 0) / 50)
    assert found.time is not None
    models = found.time.seconds("models")
    assert models == pytest.approx((nli.seconds or 0) + (token_scores.seconds or 0))
    assert found.time.total_s is not None
    assert found.time.total_s > (models or 0)
    assert found.time.bottleneck is not None
    assert found.time.bottleneck.name == "models"


def test_what_the_rules_claim_is_what_the_models_are_then_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rules as language model the expected pairs are the pairs; then none is left."""
    classifier = CountingClassifier()
    monkeypatch.setattr(
        "claimscore.pipeline.model_stage.load_model", lambda role, config: classifier
    )
    (expected,) = estimated("caspr").passes
    run(RunConfig(str(EXAMPLES), tmp_path / "run", ("caspr",)))
    assert expected.expected_items == len(classifier.asked) > 0
    after = estimate_run(
        RunConfig(str(EXAMPLES), tmp_path / "run", ("caspr",)), out=tmp_path / "run"
    )
    (left,) = after.passes
    assert (left.expected_items, left.tokens, left.seconds) == (0, 0, 0.0)
    assert after.time is not None
    assert after.time.unknown == ()


def test_where_nobody_knows_there_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    """The time without it is the least, and a command finds out."""
    found = estimated("caspr", "bs-inverse")
    assert [one.seconds for one in found.passes] == [None, None]
    assert found.time is not None
    assert found.time.total_s is None
    assert found.time.unknown == ("models",)
    notes = "\n".join(found.time_notes)
    assert "--nli embedded is here is not known; claimscore models check embedded --d" in notes
    assert "models check embedded --role token-encoder --device cpu finds out" in notes
    assert main(["estimate", str(EXAMPLES), "--metrics", "caspr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("time: at least 6 s; how long the models will") for line in lines)
    assert any(" ".join(line.split()).startswith("nli-a-b not known about") for line in lines)


def test_half_of_the_models_known_is_not_all(tmp_path: Path) -> None:
    """The others have no number; a model that is missing is named."""
    knows("nli", 100.0)
    both = {"summary": "The rooms were clean.", "source": "The rooms were clean and quiet."}
    records = tmp_path / "in.jsonl"
    records.write_text(json.dumps({"id": "x", **both}) + "\n")
    metrics = ("mnli-doc", "perplexity", "bert-cosine:against=source")
    encoders = EncoderConfig(device="cpu")
    found = estimate_run(RunConfig(str(records), Path("unused"), metrics, encoders=encoders))
    known = {one.role: one.seconds is not None for one in found.passes}
    assert known == {"nli": True, "causal_lm": False, "embedder": False}
    assert found.time is not None
    assert "models" in found.time.unknown
    assert any("--causal-lm is missing" in note for note in found.time_notes)


def test_a_pace_is_of_one_device_and_dtype() -> None:
    """Another one's says nothing."""
    knows("nli", 100.0)
    other = EncoderConfig(device="cpu", dtype="bfloat16")
    (one,) = estimated("caspr", encoders=other).passes
    assert one.tokens_per_s is None
    save_throughput(
        ThroughputKey("nli", "embedded", "float32", "NVIDIA H100"), Throughput(1e6, 1.0)
    )
    (one,) = estimated("caspr").passes
    assert one.tokens_per_s == 100.0


def test_several_devices_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs take half the time; a server counts once, however many there are."""
    names = "claimscore.pipeline.estimate.hours.device_names"
    monkeypatch.setattr(names, lambda asked: ("cuda:0", "cuda:1"))
    label = "claimscore.pipeline.encoders.throughput.device_label"
    monkeypatch.setattr(label, lambda name: {"cuda:0": "a GPU"}[name])
    save_throughput(ThroughputKey("nli", "embedded", "float32", "a GPU"), Throughput(1000, 1.0))
    save_throughput(
        ThroughputKey("token_encoder", "embedded", "float32", "a GPU"), Throughput(1000, 1.0)
    )
    found = estimated("caspr", "bs-inverse", encoders=EncoderConfig())
    for one in found.passes:
        assert one.seconds == pytest.approx((one.tokens or 0) / 2000)
    assert found.time is not None
    chunk = sum(one.tokens or 0 for one in found.passes) / 1000
    assert found.time.seconds("models") == pytest.approx(chunk), "one chunk is one device's"
    save_throughput(
        ThroughputKey("nli", "tei:http://x", "float32", "its server"), Throughput(1000, 1.0)
    )
    served = EncoderConfig(nli="tei:http://x")
    found = estimated("caspr", "bs-inverse", encoders=served, chunk_records=2)
    nli, token_scores = found.passes
    assert nli.seconds == pytest.approx((nli.tokens or 0) / 1000)
    assert found.time is not None
    both = (nli.seconds or 0) + (token_scores.seconds or 0)
    assert found.time.seconds("models") == pytest.approx(both)
    cores = next(stage for stage in found.time.stages if stage.name == "cores")
    assert "the models' too" not in cores.what


def test_the_language_models_hours_are_its_part() -> None:
    """As `hours` says it; of a batch nobody knows."""
    knows("nli", 1e6)
    llm = LLMConfig(model="openai:m", base_url=NOWHERE, rpm=6.0)
    found = estimated("caspr", llm=llm)
    assert found.time is not None
    assert found.hours is not None
    assert found.time.seconds("language model") == pytest.approx(found.hours * 3600)
    assert found.time.bottleneck is not None
    assert found.time.bottleneck.name == "language model"


def test_nobody_knows_how_long_a_batch_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So nobody knows how long the run does."""
    provider = load_provider(LLMConfig(model="openai:m", base_url=NOWHERE))
    monkeypatch.setattr("claimscore.pipeline.estimate.stage.load_provider", lambda llm: provider)
    knows("nli", 1e6)
    found = estimated("caspr", llm=LLMConfig(model="openai-batch:m", base_url=NOWHERE))
    assert found.time is not None
    assert found.time.unknown == ("language model",)


def test_of_large_inputs_the_work_is_counted_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """And scaled up, and said."""
    whole = estimated("bs-inverse", chunk_records=2).passes[0]
    monkeypatch.setattr(counting, "WEIGHED_RECORDS", 4)
    found = estimated("bs-inverse", chunk_records=2)
    assert "work of the models: counted on 4 of 12 records" in found.assumptions
    assert found.passes[0].expected_items == whole.expected_items == 12
    assert found.passes[0].tokens == pytest.approx(whole.tokens, rel=0.5)


def test_requests_of_ones_own_have_no_such_time() -> None:
    """A map has no models."""
    llm = LLMConfig(model="openai:m", base_url=NOWHERE)
    found = estimate_requests(
        iter([]), lambda answer: answer, name="x", llm=llm, provider=load_provider(llm)
    )
    assert found.to_json()["time"] is found.to_json()["disk"] is None


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


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    """For people to the letter; for programs with every figure."""
    knows("nli", 100.0)
    knows("token_encoder", 100.0)
    call = ("estimate", EXAMPLES, "--device", "cpu")
    assert main([*map(str, call)]) == 0
    shown = capsys.readouterr().out
    assert GOLDEN in shown
    assert "--nli embedded 100, --token-encoder embedded 100" in shown
    found = claimscore_json(capsys, *call)
    assert list(found["time"]) == [
        *("total_s", "known_s", "tail_s", "bottleneck", "unknown", "stages", "notes"),
        "machine_usd",
    ]
    assert found["time"]["machine_usd"] is None
    assert found["time"]["bottleneck"] == "models"
    assert found["disk"]["parts"] == 4
    assert found["hours"] is not None, "fields that were there are there"
    json.dumps(found, allow_nan=False)


def test_a_machine_costs_its_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the user names a price and the time is known."""
    knows("nli", 100.0)
    call = ("estimate", EXAMPLES, "--device", "cpu", "--metrics", "caspr", "--machine-price", 36)
    found = claimscore_json(capsys, *call)["time"]
    assert found["machine_usd"] == pytest.approx(found["total_s"] / 100)
    assert main([*map(str, call)]) == 0
    assert "machine: about $0.4" in capsys.readouterr().out
    call = ("estimate", EXAMPLES, "--metrics", "bs-inverse", "--machine-price", 36)
    assert claimscore_json(capsys, *call)["time"]["machine_usd"] is None


def test_a_finished_run_has_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No requests and no work for models; the time is that of scoring again."""
    classifier = CountingClassifier()
    monkeypatch.setattr(
        "claimscore.pipeline.model_stage.load_model", lambda role, config: classifier
    )
    call = (str(EXAMPLES), "--metrics", "caspr", "--out", str(tmp_path / "run"))
    assert main(["run", *call, "--quiet"]) == 0
    assert main(["estimate", *call]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "nothing is missing: a run would send no request" in lines
    assert any(line.startswith("time: about ") for line in lines)
