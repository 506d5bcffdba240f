"""What `--device` means, a copy of the models on each, and the lock that its threads share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import THREADS, load_workers
from claimscore.pipeline.encoders.devices import (
    device_lock,
    device_names,
    free_memory,
    is_out_of_memory,
    resolve_device,
)


def have_gpus(patch: pytest.MonkeyPatch, n: int) -> None:
    patch.setattr(torch.cuda, "is_available", lambda: n > 0)
    patch.setattr(torch.cuda, "device_count", lambda: n)


@pytest.mark.parametrize(
    ("n_gpus", "asked", "names"),
    [
        (3, "auto", ("cuda:0", "cuda:1", "cuda:2")),
        (3, "cuda:1", ("cuda:1",)),
        (3, "cuda:0, cuda:2", ("cuda:0", "cuda:2")),
        (3, "cpu,cuda:1", ("cpu", "cuda:1")),
        (0, "auto", ("cpu",)),
        (0, "cpu,cpu", ("cpu", "cpu")),
        (3, "cuda:0,cuda:0", "cuda:0 is named twice"),
        (3, "cuda,cuda:1", "cuda:1 is named twice"),
        (3, "cuda:0,cuda:3", "torch sees 3 CUDA devices"),
        (3, "cpu,auto", "auto stands alone"),
        (3, "cpu,,cpu", "by commas"),
        (3, "cpu,tpu", "unknown device 'tpu'; known: auto, cpu, cuda"),
        (0, "cuda", "torch sees 0 CUDA devices"),
    ],
)
def test_devices_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, n_gpus: int, asked: str, names: tuple[str, ...] | str
) -> None:
    """Their names, or why they are refused."""
    have_gpus(monkeypatch, n_gpus)
    if isinstance(names, tuple):
        assert device_names(asked) == names
    else:
        with pytest.raises(ConfigError, match=names):
            device_names(asked)


def test_cuda_keeps_float32_exact_and_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 is off on a GPU; a CPU has no cached blocks to free."""
    have_gpus(monkeypatch, 0)
    assert resolve_device("auto") == torch.device("cpu")
    have_gpus(monkeypatch, 1)
    precisions: list[str] = []
    freed: list[bool] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", precisions.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(True))
    free_memory(resolve_device("auto"))
    free_memory(torch.device("cpu"))
    assert (precisions, freed) == (["highest"], [True])


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        pytest.param(MemoryError(), True, id="python"),
        pytest.param(torch.cuda.OutOfMemoryError("CUDA out of memory"), True, id="cuda"),
        pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory"), True, id="cpu"),
        pytest.param(RuntimeError("[enforce fail] not enough memory: you tried"), True, id="win"),
        pytest.param(RuntimeError("shapes cannot be multiplied"), False, id="other"),
        pytest.param(ValueError("out of memory"), False, id="not the allocator's class"),
    ],
)
def test_lack_of_memory_is_told_from_other_errors(exc: Exception, expected: bool) -> None:
    assert is_out_of_memory(exc) is expected


def test_each_device_has_its_own_models_that_share_its_lock() -> None:
    loaded: list[tuple[str, str, Any]] = []

    def load(role: str, config: EncoderConfig) -> Any:
        loaded.append((role, config.device, device_lock()))
        return object()

    workers = load_workers(["nli", "embedder"], EncoderConfig(device="cpu,cpu"), load)
    assert [one[:2] for one in loaded] == [("nli", "cpu"), ("embedder", "cpu")] * 2
    locks = [id(one) for _, _, one in loaded]
    assert locks[0] == locks[1] != locks[2] == locks[3]
    assert workers[0].models["nli"] is not workers[1].models["nli"]
    assert [worker.threads for worker in workers] == [THREADS["cpu"]] * 2
