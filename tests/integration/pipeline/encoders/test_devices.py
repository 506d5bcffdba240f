"""What `--device` means, a copy of the models on each, and the lock that its threads share."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline import encoders
from claimscore.pipeline.encoders import THREADS, load_workers
from claimscore.pipeline.encoders.batching import BatchRunner
from claimscore.pipeline.encoders.devices import (
    DeviceLock,
    device_lock,
    device_names,
    device_wait_s,
    shared_device,
)
from claimscore.pipeline.encoders.protocols import ModelInfo


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


def test_each_device_has_its_own_models_that_share_its_lock() -> None:
    """Two devices, two roles: four models, and the two of a device share its lock."""
    loaded: list[tuple[str, str, Any]] = []

    def load(role: str, config: EncoderConfig) -> Any:
        loaded.append((role, config.device, device_lock()))
        return object()

    workers = load_workers(["nli", "embedder"], EncoderConfig(device="cpu,cpu"), load)
    assert [(role, device) for role, device, _ in loaded] == [
        ("nli", "cpu"),
        ("embedder", "cpu"),
    ] * 2
    locks = [id(one) for _, _, one in loaded]
    assert locks[0] == locks[1] != locks[2] == locks[3]
    assert workers[0].models["nli"] is not workers[1].models["nli"]
    assert [worker.threads for worker in workers] == [THREADS["cpu"]] * 2


def test_where_no_model_is_needed_no_device_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without models runs where torch is not installed."""
    monkeypatch.setattr(encoders, "device_names", lambda asked: pytest.fail("looked"))

    def load(role: str, config: EncoderConfig) -> Any:
        raise AssertionError("loaded")

    assert load_workers([], EncoderConfig(device="cuda"), load) == []


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_models_behind_servers_need_no_device(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """One worker asks them, however many GPUs there are; one model of ours, and it needs one."""
    monkeypatch.setattr(encoders, "device_names", lambda asked: ("cuda:0", "cuda:1"))
    monkeypatch.setattr(encoders, "resolve_device", lambda name: SimpleNamespace(type="cuda"))
    config = EncoderConfig(nli="tei:http://a", embedder="openai:m@http://b", device=device)

    def load(role: str, config: EncoderConfig) -> Any:
        return role

    (worker,) = load_workers(["nli", "embedder"], config, load)
    assert worker == ({"nli": "nli", "embedder": "embedder"}, "their servers", 1)
    names = [worker.name for worker in load_workers(["nli", "token_encoder"], config, load)]
    assert names == ["cuda:0", "cuda:1"]


def runner(budget: int = 4) -> BatchRunner:
    info = ModelInfo("org/model", "abc", "float32")
    return BatchRunner(info, torch.device("cpu"), given=budget, padded=False)


class Device:
    """Notices when two threads compute at once."""

    def __init__(self, most_tokens: int = 1000) -> None:
        self.most_tokens = most_tokens
        self.at_work = 0
        self.most_at_work = 0
        self._mutex = threading.Lock()

    def __call__(self, places: NDArray[np.int64], *_built: object) -> None:
        with self._mutex:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
        time.sleep(0.001)
        with self._mutex:
            self.at_work -= 1
        if len(places) > self.most_tokens:
            raise MemoryError


def test_the_models_of_one_device_compute_one_at_a_time() -> None:
    """Two models, three threads, one device: never two batches at once."""
    with shared_device():
        runners = [runner(), runner()]
    device = Device()

    def work(number: int) -> list[int]:
        batches = runners[number % 2].run([1] * 40, device)
        return [int(place) for places in batches for place in places]

    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(work, range(3)))
    assert device.most_at_work == 1
    assert done == [list(range(40))] * 3


def test_two_devices_compute_at_the_same_time() -> None:
    """Each has a lock of its own, and so has a model that is loaded by itself."""
    both = threading.Barrier(2, timeout=20)
    with shared_device():
        first = runner()
    with shared_device():
        second = runner()

    def work(own: BatchRunner) -> int:
        return sum(1 for _ in own.run([1] * 4, lambda places: (both.wait(), None)[1]))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(work, (first, second))) == [1, 1]
        assert list(threads.map(work, (runner(), runner()))) == [1, 1]


def test_a_batch_is_built_while_another_thread_computes() -> None:
    """Building happens without the device."""
    with shared_device():
        own = runner()
        lock = device_lock()
    built: list[int] = []

    def build(places: NDArray[np.int64]) -> int:
        built.append(len(places))
        return len(places)

    computed: list[tuple[int, int]] = []

    def work() -> None:
        for _ in own.run([1] * 4, lambda places, n: computed.append((len(places), n)), build=build):
            pass

    thread = threading.Thread(target=work)
    with lock:
        thread.start()
        deadline = time.monotonic() + 20
        while not built and time.monotonic() < deadline:
            time.sleep(0.001)
        assert (built, computed) == ([4], [])
    thread.join()
    assert computed == [(4, 4)]


def test_an_error_gives_the_device_back() -> None:
    """A thread that fails must not keep the others waiting for ever."""
    with shared_device():
        own = runner()

    def broken(places: NDArray[np.int64]) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        list(own.run([1], broken))
    assert [places.tolist() for places in own.run([1, 1], lambda places: None)] == [[0, 1]]


def test_a_budget_that_another_thread_lowered_stays_lowered() -> None:
    """A batch that was planned before cannot raise it again."""
    own = runner(64)
    device = Device(most_tokens=10)
    first = own.run([1] * 64, device)

    def lower_meanwhile(places: NDArray[np.int64], *_built: object) -> None:
        if len(places) == 64:
            own.budget = 5  # as another thread has found out
        device(places)

    assert [len(places) for places in own.run([1] * 64, lower_meanwhile)] == [5] * 12 + [4]
    assert own.budget == 5
    assert sum(len(places) for places in first) == 64


def test_waiting_is_counted_for_the_thread_that_waits() -> None:
    """So that the time of a pass is work."""
    lock, waited = DeviceLock(), []

    def wait() -> None:
        before = device_wait_s()
        with lock:
            pass
        waited.append(device_wait_s() - before)

    before = device_wait_s()
    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
    thread.join()
    assert waited[0] >= 0.03
    assert device_wait_s() - before < 0.03
