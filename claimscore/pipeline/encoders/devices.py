"""The devices of a run, each with a copy of the models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import Model
from claimscore.pipeline.encoders.loading import resolve_device
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.encoders.turns import one_device

#: Threads that share a device. A GPU waits while a thread tokenises, reads and writes, so another
#: one computes then; a CPU does both with the same cores, and a second chunk only takes memory.
THREADS = {"cpu": 1, "cuda": 2}

#: The loaded models by role: those that a missing step needs.
Models = Mapping[str, Model]


class Worker(NamedTuple):
    """A device's models, the threads that share them, and what people call the device."""

    models: Models
    name: str = "cpu"
    threads: int = 1


#: Loads the model of a role onto the one device that the config names.
Load = Callable[[str, EncoderConfig], Model]


def load_workers(roles: Iterable[str], config: EncoderConfig, load: Load) -> list[Worker]:
    """A copy of the models of these roles on each of `device_names`.

    Where all of them are behind servers, one worker asks them, and torch is not imported.
    `ConfigError` where a device is not there, or a model cannot be had or used.
    """
    wanted = list(roles)
    if not wanted:
        return []
    if config.device in ("auto", "cpu") and all(
        is_served(getattr(config, role) or "") for role in wanted
    ):
        return [Worker({role: load(role, config) for role in wanted}, "their servers")]
    return [_worker(wanted, config, name, load) for name in device_names(config.device)]


def _worker(roles: list[str], config: EncoderConfig, name: str, load: Load) -> Worker:
    own = dataclasses.replace(config, device=name)
    with one_device():
        models = {role: load(role, own) for role in roles}
    return Worker(models, name, THREADS[resolve_device(name).type])


def device_names(asked: str) -> tuple[str, ...]:
    """The devices that `--device` means, each once for every worker it is to have.

    "auto" is every GPU there is, else the CPU; "cuda" every GPU; "cuda:0,cuda:2" these two. A GPU
    has one worker: the budget of its batches is found for all of its memory. `ConfigError` for
    what is not there or is named twice.
    """
    names: list[str] = []
    for part in asked.split(","):
        name = part.strip()
        if not name or (name == "auto" and name != asked):
            raise ConfigError(
                f"--device {asked}: name devices by commas, as in cuda:0,cuda:2; auto stands alone"
            )
        names += _every_gpu() or [name] if name in ("auto", "cuda") else [name]
    devices = [str(resolve_device(name)) for name in names]
    for device in devices:
        if device.startswith("cuda") and devices.count(device) > 1:
            raise ConfigError(f"--device {asked}: {device} is named twice; a GPU has one worker")
    return tuple(devices)


def cpu_threads() -> int:
    """Threads that this process computes with on a CPU; results depend on their number."""
    import torch

    return torch.get_num_threads()


def set_cpu_threads(n: int) -> None:
    """Compute on the CPU with as many threads as another process does."""
    import torch

    torch.set_num_threads(n)


def n_gpus() -> int:
    """The CUDA devices that torch sees here."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _every_gpu() -> list[str]:
    return [f"cuda:{index}" for index in range(n_gpus())]
