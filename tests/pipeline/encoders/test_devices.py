"""What `--device` means, and a copy of the models on each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import devices
from claimscore.pipeline.encoders.devices import THREADS, device_names, load_workers
from claimscore.pipeline.encoders.turns import device_turns

torch = pytest.importorskip("torch")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param("auto", ("cuda:0", "cuda:1", "cuda:2"), id="auto"),
        pytest.param("cuda", ("cuda:0", "cuda:1", "cuda:2"), id="every GPU"),
        pytest.param("cuda:1", ("cuda:1",), id="one"),
        pytest.param("cuda:0, cuda:2", ("cuda:0", "cuda:2"), id="two"),
        pytest.param("cpu", ("cpu",), id="none"),
        pytest.param("cpu,cuda:1", ("cpu", "cuda:1"), id="unlike"),
    ],
)
def test_devices_on_a_machine_with_gpus(asked: str, names: tuple[str, ...]) -> None:
    """Every GPU unless some are named."""
    assert device_names(asked) == names


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param("auto", ("cpu",), id="auto"),
        pytest.param("cpu,cpu", ("cpu", "cpu"), id="two workers"),
    ],
)
def test_devices_on_a_machine_without(asked: str, names: tuple[str, ...]) -> None:
    """The CPU, which may have several workers."""
    assert device_names(asked) == names


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param("cuda:0,cuda:0", "cuda:0 is named twice", id="twice"),
        pytest.param("cuda,cuda:1", "cuda:1 is named twice", id="twice by all"),
        pytest.param("cuda:0,cuda:3", "torch sees 3 CUDA devices", id="not there"),
        pytest.param("cpu,auto", "auto stands alone", id="auto among others"),
        pytest.param("cpu,,cpu", "by commas", id="nothing"),
        pytest.param("cpu,tpu", "'tpu'", id="unknown"),
    ],
)
def test_what_is_no_device_is_refused(asked: str, message: str) -> None:
    """Before anything is loaded, in one line."""
    with pytest.raises(ConfigError, match=message):
        device_names(asked)


@pytest.mark.usefixtures("no_gpu")
def test_no_gpu_is_refused_where_one_is_asked_for() -> None:
    """Never the CPU in its place."""
    with pytest.raises(ConfigError, match="torch sees 0 CUDA devices"):
        device_names("cuda")


def test_each_device_has_its_own_models_that_take_turns() -> None:
    """Two devices, two roles: four models, and the two of a device share its turns."""
    loaded: list[tuple[str, str, Any]] = []

    def load(role: str, config: EncoderConfig) -> Any:
        loaded.append((role, config.device, device_turns()))
        return object()

    workers = load_workers(["nli", "embedder"], EncoderConfig(device="cpu,cpu"), load)
    assert [(role, device) for role, device, _ in loaded] == [
        ("nli", "cpu"),
        ("embedder", "cpu"),
    ] * 2
    turns = [id(one) for _, _, one in loaded]
    assert turns[0] == turns[1] != turns[2] == turns[3]
    assert workers[0].models["nli"] is not workers[1].models["nli"]
    assert [worker.threads for worker in workers] == [THREADS["cpu"]] * 2


def test_where_no_model_is_needed_no_device_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without models runs where torch is not installed."""
    monkeypatch.setattr(devices, "device_names", lambda asked: pytest.fail("looked"))

    def load(role: str, config: EncoderConfig) -> Any:
        raise AssertionError("loaded")

    assert load_workers([], EncoderConfig(device="cuda"), load) == []


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_models_behind_servers_need_no_device(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """One worker asks them, however many GPUs there are; one model of ours, and it needs one."""
    monkeypatch.setattr(devices, "device_names", lambda asked: ("cuda:0", "cuda:1"))
    monkeypatch.setattr(devices, "resolve_device", lambda name: SimpleNamespace(type="cuda"))
    config = EncoderConfig(nli="tei:http://a", embedder="openai:m@http://b", device=device)

    def load(role: str, config: EncoderConfig) -> Any:
        return role

    (worker,) = load_workers(["nli", "embedder"], config, load)
    assert worker == ({"nli": "nli", "embedder": "embedder"}, "their servers", 1)
    names = [worker.name for worker in load_workers(["nli", "token_encoder"], config, load)]
    assert names == ["cuda:0", "cuda:1"]
