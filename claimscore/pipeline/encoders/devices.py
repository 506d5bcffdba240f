"""Devices: which there are, what one is called, its memory, and the lock that its threads share."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

from claimscore.errors import ConfigError

if TYPE_CHECKING:
    import torch

#: What torch and its libraries write into a `RuntimeError` where memory runs out.
_NO_MEMORY = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cublas_status_alloc_failed",
)


def resolve_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is CUDA where there is one, else the CPU.

    float32 stays float32 there: TF32 would change scores by 1e-3, so it is never on. Raises
    `ConfigError` for a device that is unknown or not there.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if "," in name:
        raise ConfigError(f"--device {name}: several devices are for runs; name one here")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown device {name!r}; known: auto, cpu, cuda, cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; known: auto, cpu, cuda, cuda:N")
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA "
                "devices; use --device cpu, or install torch with CUDA"
            )
        torch.set_float32_matmul_precision("highest")
    return device


def device_names(asked: str) -> tuple[str, ...]:
    """The devices that `--device` means, each once for every worker it is to have.

    "auto" is every GPU there is, else the CPU; "cuda" every GPU; "cuda:0,cuda:2" these two. A GPU
    has one worker, since a batch may take all of its memory. `ConfigError` for a device that is
    not there or is named twice.
    """
    names: list[str] = []
    for part in asked.split(","):
        name = part.strip()
        if not name or (name == "auto" and name != asked):
            raise ConfigError(
                f"--device {asked}: name devices by commas, as in cuda:0,cuda:2; auto stands alone"
            )
        gpus = [f"cuda:{index}" for index in range(n_gpus())]
        names += gpus or [name] if name in ("auto", "cuda") else [name]
    devices = [str(resolve_device(name)) for name in names]
    for device in devices:
        if device.startswith("cuda") and devices.count(device) > 1:
            raise ConfigError(f"--device {asked}: {device} is named twice; a GPU has one worker")
    return tuple(devices)


def multiplies_faster(device: torch.device) -> bool:
    """Whether a device has instructions that multiply bfloat16 faster than float32: AMX or
    AVX-512's on a CPU, tensor cores since Ampere. A property and not a timing, so that a machine
    always decides alike."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    checks = (getattr(torch.cpu, name, None) for name in names)  # private to torch
    return any(is_supported is not None and is_supported() for is_supported in checks)


def cpu_threads() -> int:
    """Threads that this process computes with on a CPU; numbers of stock models depend on it."""
    import torch

    return torch.get_num_threads()


@contextlib.contextmanager
def cpu_pool() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch has, for batches side by side; meanwhile torch computes with one
    thread in each, so the numbers are those of one thread."""
    import torch

    threads = cpu_threads()
    pool = _pool(threads)
    torch.set_num_threads(1)  # MKL has one number for all threads
    try:
        yield pool
    finally:
        torch.set_num_threads(threads)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    import torch

    pool, ready = ThreadPoolExecutor(threads, "batch"), threading.Barrier(threads)

    def start(_: int) -> None:
        torch.set_num_threads(1)
        ready.wait()

    list(pool.map(start, range(threads)))
    return pool


def set_cpu_threads(n: int) -> None:
    """Compute on the CPU with as many threads as another process does."""
    import torch

    torch.set_num_threads(n)


def n_gpus() -> int:
    """The CUDA devices that torch sees here."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether the exception says that memory ran out, on a GPU or on the CPU.

    CUDA has a class for it; the CPU allocator of torch raises a plain `RuntimeError`, of which
    only the text tells.
    """
    import torch

    if isinstance(exc, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(exc, RuntimeError) and any(text in str(exc).lower() for text in _NO_MEMORY)


def free_memory(device: torch.device) -> None:
    """Give cached blocks back to the GPU, so that a smaller batch finds room in one piece."""
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


class DeviceLock:
    """Lets one thread at a time compute on a device, and counts how long each waited for it.

    Two threads keep a device busy: while one computes, the other reads tables, tokenises, builds
    its next batch or writes. Only forward passes hold the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        began = time.monotonic()
        self._lock.acquire()
        _waited.seconds += time.monotonic() - began

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_shared: ContextVar[DeviceLock | None] = ContextVar("device_lock", default=None)


@contextlib.contextmanager
def shared_device() -> Iterator[None]:
    """Models that are loaded within share a device: a batch of one waits for that of another.

    Why one lock for a device and not one for each model: a batch may take all memory that is free.
    """
    token = _shared.set(DeviceLock())
    try:
        yield
    finally:
        _shared.reset(token)


def device_lock() -> DeviceLock:
    """The lock of the device whose models are being loaded, else a new one."""
    return _shared.get() or DeviceLock()


def device_wait_s() -> float:
    """Seconds that this thread has waited for devices so far."""
    return _waited.seconds
