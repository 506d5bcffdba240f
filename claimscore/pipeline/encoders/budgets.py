"""How many tokens share a forward pass: found by the device's memory, and remembered.

Batches are a function of the texts and the budget, so a budget that changed between two runs can
change the last bits of a score (2e-5 at most). That is why it is found once for each model,
device and dtype and then kept, and why it moves in powers of two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from claimscore.config import user_state_dir
from claimscore.pipeline.encoders.base import ModelInfo
from claimscore.pipeline.encoders.loading import free_memory, is_out_of_memory
from claimscore.pipeline.encoders.remembered import keep_fact, read_facts
from claimscore.pipeline.encoders.token_rows import TokenBatch

if TYPE_CHECKING:
    import torch

#: Tokens in one forward pass, by device, where nothing is measured: enough to keep the products
#: busy, few enough that the states of a layer stay near the cores (CPU) or that launching costs
#: nothing (GPU).
DEFAULT_TOKENS = {"cpu": 1024, "cuda": 32_768}
#: More than this pays nowhere: the products are busy long before.
MOST_TOKENS = 131_072
#: The share of the free memory that batches may take; the rest is for what is not seen coming
#: (fragments, other processes).
GPU_SHARE, CPU_SHARE = 0.8, 0.25
#: Tokens of the row that is measured, where a model sets no limit.
LONGEST_ROW = 4096
BUDGETS_FILE = "token-budgets.json"

DEFAULT, GIVEN = "default of the device", "given"
MEASURED, LOWERED, BOUNDED = "measured", "lowered when memory ran out", "bounded by free memory"


class Budget(NamedTuple):
    """Tokens in one forward pass, and where the number is from: one of the words above."""

    tokens: int
    origin: str


class Probe(NamedTuple):
    """What is known of a loaded model: enough to measure it and to know it again.

    ``forward`` runs a batch; None where nothing is to be measured. ``limit`` is its longest row.
    """

    info: ModelInfo
    limit: int
    settings: Any  # transformers' config classes share no typed fields
    forward: Callable[[TokenBatch], object] | None = None


class Memory(Protocol):
    """A device's memory."""

    name: str

    def free(self) -> int:
        """Bytes that could be had now."""
        ...

    def peak(self, run: Callable[[], object]) -> int:
        """Bytes that ``run`` takes at its worst moment, beside what is held already."""
        ...


class CudaMemory:
    """A GPU's memory; what torch keeps without using it counts as free."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._cuda = torch.cuda
        self.name = str(torch.cuda.get_device_name(device))

    def free(self) -> int:
        free, _ = self._cuda.mem_get_info(self._device)
        kept = self._cuda.memory_reserved(self._device)
        return int(free) + kept - self._cuda.memory_allocated(self._device)

    def peak(self, run: Callable[[], object]) -> int:
        self._cuda.synchronize(self._device)
        self._cuda.reset_peak_memory_stats(self._device)
        held = self._cuda.memory_allocated(self._device)
        run()
        self._cuda.synchronize(self._device)
        return int(self._cuda.max_memory_allocated(self._device)) - held


def find_budget(given: int | None, device: torch.device, probe: Probe | None = None) -> Budget:
    """Return the budget: the one given, else the one remembered, else a new one.

    On a GPU it is measured, and remembered, where there is a ``probe`` with a forward; on a CPU it
    is the default, less where memory is short.
    """
    if given is not None:
        return Budget(given, GIVEN)
    if device.type != "cuda":
        known = None if probe is None else recall(probe.info, device.type)
        return known or cpu_budget(None if probe is None else probe.settings, available_memory())
    if probe is None:
        return Budget(DEFAULT_TOKENS[device.type], DEFAULT)
    memory = CudaMemory(device)
    known = recall(probe.info, memory.name)
    if known is not None or probe.forward is None:
        return known or Budget(DEFAULT_TOKENS[device.type], DEFAULT)
    measured = measure(probe, memory, free=partial(free_memory, device))
    remember(probe.info, memory.name, measured)
    return measured


def keep_lowered(probe: Probe | None, device: torch.device, tokens: int) -> None:
    """Remember for later runs that memory ran out above ``tokens``."""
    if probe is not None:
        name = CudaMemory(device).name if device.type == "cuda" else device.type
        remember(probe.info, name, Budget(tokens, LOWERED))


def measure(probe: Probe, memory: Memory, *, free: Callable[[], None] = lambda: None) -> Budget:
    """Return the largest power of two that fits, from one forward pass of the longest row.

    Memory grows with the tokens of a batch, and in the longest row a token costs most, so the
    measured bytes a token are those of the worst batch. A row that does not fit alone gives its
    own length: no batch may be larger.
    """
    import torch

    assert probe.forward is not None
    length = max(1, min(probe.limit, LONGEST_ROW))
    run = partial(probe.forward, longest_row(length))
    try:
        with torch.inference_mode():
            run()  # what is made once (handles, workspaces) is no cost of a token
            peak = memory.peak(run)
    except (RuntimeError, MemoryError) as exc:
        if not is_out_of_memory(exc):
            raise
        peak = None
    free()
    if peak is None:
        return Budget(length, MEASURED)
    fitting = int(GPU_SHARE * memory.free() * length / max(1, peak))
    return Budget(max(length, power_of_two(min(fitting, MOST_TOKENS))), MEASURED)


def longest_row(length: int) -> TokenBatch:
    """Return one row of ``length`` tokens, the second half of which is a second text."""
    types = (np.arange(length) >= length // 2).astype(np.int64)
    return TokenBatch.of(np.full(length, 4, dtype=np.int64), types, np.array([length]))


def cpu_budget(settings: Any, available: int | None) -> Budget:
    """Return the CPU's default, halved until its states take `CPU_SHARE` of the memory there is."""
    tokens = default = DEFAULT_TOKENS["cpu"]
    if available is not None:
        while tokens > 1 and tokens * bytes_per_token(settings) > CPU_SHARE * available:
            tokens //= 2
    return Budget(tokens, DEFAULT if tokens == default else BOUNDED)


def bytes_per_token(settings: Any) -> int:
    """Return about what a token takes in one layer in float32: states, their products, the
    feed-forward block, each with copies."""
    hidden = _first_of(settings, ("hidden_size", "dim", "d_model", "n_embd"), 1024)
    inner = _first_of(
        settings, ("intermediate_size", "hidden_dim", "encoder_ffn_dim", "d_ff"), 4 * hidden
    )
    return 4 * (16 * hidden + 4 * inner)


def _first_of(settings: Any, names: tuple[str, ...], default: int) -> int:
    found = (getattr(settings, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), default)


def available_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process could still get; None where the system does not say.

    The least of what the machine has left and what a container's limit leaves.
    """
    left = [_meminfo(root), _cgroup(root)]
    return min((value for value in left if value is not None), default=None)


def _meminfo(root: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _cgroup(root: Path) -> int | None:
    folder = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: there is no limit
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        caches = 0
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith("inactive_file "):
                caches = int(line.split()[1])  # given up when it is needed
        return max(0, limit - used + caches)
    return None


def power_of_two(tokens: int) -> int:
    """Return the largest power of two that is not more, at least 1."""
    return 1 << (max(1, tokens).bit_length() - 1)


def recall(info: ModelInfo, device_name: str) -> Budget | None:
    """Return the budget that an earlier run found; None where there is none that can be read."""
    row = read_facts(budgets_file()).get(_key(info, device_name))
    if not isinstance(row, dict):
        return None
    tokens, origin = row.get("tokens"), row.get("origin")
    if type(tokens) is not int or tokens < 1 or origin not in (MEASURED, LOWERED):
        return None
    return Budget(tokens, origin)


def remember(info: ModelInfo, device_name: str, budget: Budget) -> None:
    """Keep the budget in the user's state folder; a folder that cannot be written is no error."""
    row = {"tokens": budget.tokens, "origin": budget.origin}
    keep_fact(budgets_file(), _key(info, device_name), row)


def budgets_file() -> Path:
    """Where budgets are remembered; deleting it makes later runs find them again."""
    return user_state_dir() / BUDGETS_FILE


def _key(info: ModelInfo, device_name: str) -> str:
    return " | ".join((info.model, info.revision, device_name, info.dtype))
