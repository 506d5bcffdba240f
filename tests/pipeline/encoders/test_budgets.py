"""Token budgets: found by memory, remembered, lowered for good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from claimscore.config import EncoderConfig, user_state_dir
from claimscore.pipeline.encoders import budgets, nli
from claimscore.pipeline.encoders.backbone import budgeted_runner
from claimscore.pipeline.encoders.base import ModelInfo
from claimscore.pipeline.encoders.budgets import Budget, Probe, find_budget, measure
from claimscore.pipeline.encoders.token_rows import TokenBatch
from tests.tiny_models import save_tiny_nli

CPU, GPU = torch.device("cpu"), torch.device("cuda")
INFO = ModelInfo("org/model", "abc", "float32")
SETTINGS = SimpleNamespace(hidden_size=384, intermediate_size=1536)


class FakeMemory:
    """A GPU on which a token of a batch takes ``token_bytes``."""

    def __init__(self, free_bytes: int, token_bytes: int) -> None:
        self.name = "Fake GPU"
        self.free_bytes, self.token_bytes = free_bytes, token_bytes
        self.rows: list[int] = []

    def forward(self, batch: TokenBatch) -> None:
        (length,) = batch.lengths.tolist()
        assert len(batch.ids) == len(batch.types) == length
        if length * self.token_bytes > self.free_bytes:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        self.rows.append(length)

    def free(self) -> int:
        return self.free_bytes

    def peak(self, run: Callable[[], object]) -> int:
        run()
        return self.rows[-1] * self.token_bytes

    def probe(self, limit: int = 512, info: ModelInfo = INFO) -> Probe:
        return Probe(info, limit, SETTINGS, self.forward)


@given(free=st.integers(1, 2**40), token=st.integers(1, 2**24), limit=st.integers(1, 10**6))
def test_a_measured_budget_fits(free: int, token: int, limit: int) -> None:
    """A power of two within the memory and the cap, or the longest row where that is more."""
    memory = FakeMemory(free, token)
    found = measure(memory.probe(limit), memory).tokens
    longest = min(limit, budgets.LONGEST_ROW)
    assert found == longest or found & (found - 1) == 0
    assert found <= max(longest, budgets.MOST_TOKENS)
    assert found == longest or found * token <= budgets.GPU_SHARE * free


def test_it_is_the_largest_that_fits() -> None:
    """Half the memory is half the budget; a row too long for it gives its own length."""
    full, half = FakeMemory(10 * 2**30, 2**20), FakeMemory(5 * 2**30, 2**20)
    assert measure(full.probe(), full).tokens == 8192
    assert measure(half.probe(), half).tokens == 4096
    tiny = FakeMemory(2**20, 2**20)
    assert measure(tiny.probe(), tiny).tokens == 512


def test_another_error_is_not_taken_for_a_lack_of_memory() -> None:
    """What a model raises besides is not hidden."""
    memory = FakeMemory(2**30, 1)

    def broken(_batch: TokenBatch) -> None:
        raise RuntimeError("a kernel is missing")

    with pytest.raises(RuntimeError, match="kernel"):
        measure(Probe(INFO, 8, SETTINGS, broken), memory)


def test_a_gpu_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next load of the same model, device and dtype takes the number that was found."""
    memory = FakeMemory(10 * 2**30, 2**20)
    monkeypatch.setattr(budgets, "CudaMemory", lambda device: memory)
    assert find_budget(None, GPU, memory.probe()) == Budget(8192, budgets.MEASURED)
    asked = len(memory.rows)
    memory.free_bytes //= 2
    assert find_budget(None, GPU, memory.probe()) == Budget(8192, budgets.MEASURED)
    assert len(memory.rows) == asked
    other = INFO._replace(dtype="bfloat16")
    assert find_budget(None, GPU, memory.probe(info=other)).tokens == 4096


def test_one_that_is_given_is_taken() -> None:
    """Whatever is remembered."""
    budgets.remember(INFO, "cpu", Budget(64, budgets.LOWERED))
    assert find_budget(77, CPU, Probe(INFO, 512, SETTINGS)) == Budget(77, budgets.GIVEN)


def test_a_lowered_budget_is_remembered() -> None:
    """Memory ran out once: the next run begins where this one ended."""
    probe = Probe(INFO, 512, SETTINGS)
    runner = budgeted_runner(None, CPU, padded=False, probe=probe)
    before = runner.budget

    def forward(places: np.ndarray) -> None:
        if len(places) > 4:
            raise MemoryError

    done = list(runner.run([10] * 200, forward))
    assert sum(map(len, done)) == 200
    assert runner.budget < before
    later = budgeted_runner(None, CPU, padded=False, probe=probe)
    assert (later.budget, later.origin) == (runner.budget, budgets.LOWERED)


def test_a_given_budget_that_is_lowered_is_not_remembered() -> None:
    """It says nothing about what would have been found."""
    probe = Probe(INFO, 512, SETTINGS)
    runner = budgeted_runner(100, CPU, padded=False, probe=probe)

    def forward(places: np.ndarray) -> None:
        if len(places) > 4:
            raise MemoryError

    list(runner.run([10] * 20, forward))
    assert budgets.recall(INFO, "cpu") is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"org/model | abc | cpu | float32": {"tokens": "many"}}', "\x00"]
)
def test_a_damaged_file_is_forgotten(content: str) -> None:
    """And written anew."""
    path = budgets.budgets_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert budgets.recall(INFO, "cpu") is None
    budgets.remember(INFO, "cpu", Budget(32, budgets.LOWERED))
    assert budgets.recall(INFO, "cpu") == Budget(32, budgets.LOWERED)


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on; the next one finds the budget again."""
    (user_state_dir() / "file").write_text("")
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(user_state_dir() / "file" / "below"))
    budgets.remember(INFO, "cpu", Budget(32, budgets.LOWERED))
    assert budgets.recall(INFO, "cpu") is None


def test_a_cpu_has_its_default_unless_memory_is_short() -> None:
    """1,024 tokens of MiniLM take 50 MB, of which memory must have four times as much."""
    assert budgets.cpu_budget(SETTINGS, 2**34) == Budget(1024, budgets.DEFAULT)
    assert budgets.cpu_budget(SETTINGS, None) == Budget(1024, budgets.DEFAULT)
    assert budgets.cpu_budget(SETTINGS, 100 * 2**20) == Budget(512, budgets.BOUNDED)
    assert budgets.cpu_budget(SETTINGS, 0) == Budget(1, budgets.BOUNDED)
    large = SimpleNamespace(hidden_size=4096, intermediate_size=16384)
    assert budgets.cpu_budget(large, 2**30).tokens == 512


def test_available_memory_is_the_least_of_machine_and_container(tmp_path: Path) -> None:
    """A container's file caches are given up when they are needed."""
    assert budgets.available_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   8 kB\n")
    assert budgets.available_memory(tmp_path) == 8192
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert budgets.available_memory(tmp_path) == 8192
    (group / "memory.max").write_text("5000\n")
    (group / "memory.current").write_text("4000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 1000\n")
    assert budgets.available_memory(tmp_path) == 2000


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_a_budget_that_fits(tmp_path: Path) -> None:
    """Measured on the device, remembered, and the same numbers with half of it within 2e-5."""
    path = str(save_tiny_nli(tmp_path / "nli"))
    config = EncoderConfig(nli=path, device="cuda", offline=True)
    found = nli.load(config)
    assert found.budget.origin == budgets.MEASURED
    assert nli.load(config).budget == found.budget
    pairs = [(f"The hotel was clean {i}.", "It was dirty.") for i in range(200)]
    half = EncoderConfig(
        nli=path, device="cuda", offline=True, batch_tokens=found.budget.tokens // 2
    )
    assert np.abs(found.classify(pairs) - nli.load(half).classify(pairs)).max() <= 2e-5
