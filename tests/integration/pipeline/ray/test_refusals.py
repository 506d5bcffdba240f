"""What is refused before Ray is started, and which work goes to a cluster."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline import run as pipeline_run
from claimscore.pipeline.ray import check_ray


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return RunConfig("records.jsonl", tmp_path / "run", ("caspr", "ds"), engine="ray")


def test_ray_that_is_missing_is_named_with_the_command(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'claimscore\[ray\]'"):
        check_ray(config)
    check_ray(dataclasses.replace(config, engine="local"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"address": "ray://head:10001"}, "--address auto", id="Ray's client"),
        pytest.param({"address": "127.0.0.1:1"}, "no Ray cluster can be reached", id="closed"),
        pytest.param({"address": "head"}, "HOST:PORT", id="no port"),
        pytest.param({"encoders": EncoderConfig(device="cuda:0")}, "cuda:0", id="one GPU"),
        pytest.param({"encoders": EncoderConfig(device="cpu,cuda")}, "cpu,cuda", id="devices"),
    ],
)
def test_settings_that_no_cluster_can_keep_are_refused(
    config: RunConfig, changes: dict[str, Any], message: str
) -> None:
    """In one line that says what to do; Ray itself would try an address for minutes."""
    pytest.importorskip("ray", reason="needs the extra `ray`")
    with pytest.raises(ConfigError, match=message):
        check_ray(dataclasses.replace(config, **changes))


def test_scoring_goes_to_the_cluster_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where models are missing, and only then; each call as it is told."""
    given: list[tuple[str | None, list[str]]] = []

    def cluster(config: RunConfig, directory: Any, roles: list[str], tell: Any) -> Any:
        given.append((config.address, roles))
        raise StoppedEarly("at the cluster")

    pytest.importorskip("ray", reason="needs the extra `ray`")
    monkeypatch.setattr("claimscore.pipeline.ray.model_workers.ray_models", cluster)
    monkeypatch.setattr(pipeline_run, "check_ray", lambda config: None)
    records = tmp_path / "records.jsonl"
    records.write_text('{"summary_a": "Rooms are clean.", "summary_b": "Rooms are loud."}\n')
    out = tmp_path / "run"
    pipeline_run.run(RunConfig(str(records), out, ("ds",)))
    call = RunConfig("", out, ("ds",), engine="ray", address="head:6379")
    pipeline_run.score(call)
    with pytest.raises(StoppedEarly, match="at the cluster"):
        pipeline_run.score(dataclasses.replace(call, metrics=("caspr",)))
    assert given == [("head:6379", ["nli"])]


def test_an_address_goes_with_ray(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--engine ray"):
        RunConfig("records.jsonl", tmp_path, address="auto")
