"""`--engine ray`: the models of a run in processes of a Ray cluster.

The driver is the command: it asks the language model with its one engine, keeps cache, limits and
money, and alone reads and writes the run directory. Workers get the rows of chunks whose tasks are
done, run the model passes and give back their rows. Ray is imported only by `cluster` and
`model_workers`, once it is needed; here is what can be said without it.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from claimscore import __version__
from claimscore.atomic import reason
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.config import RunConfig

#: How long a cluster's head may take to accept a connection.
REACHED_S = 5.0

#: What a node has, as Ray calls it: "CPU", "GPU" and others.
Resources = Mapping[str, float]


def check_ray(config: RunConfig) -> None:
    """`ConfigError` where the run cannot be given to Ray, before anything is read or spent."""
    if config.engine != "ray":
        return
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "--engine ray: Ray is not installed; pip install 'claimscore[ray]', or leave the "
            "option out"
        )
    device = config.encoders.device
    if "," in device or ":" in device:
        raise ConfigError(
            f"--device {device}: that names GPUs of one machine; with --engine ray it is auto "
            "(GPUs where the cluster has any), cpu or cuda"
        )
    if (config.address or "").startswith("ray://"):
        raise ConfigError(
            f"--address {config.address}: Ray's client port cannot be used; run the command on a "
            "node of the cluster with --address auto, or name the head's HOST:6379"
        )
    if config.address not in (None, "auto", "local"):
        _reach(config.address)


def _reach(address: str) -> None:
    """`ConfigError` where nothing answers there; Ray itself would go on trying for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--address {address}: it is auto, or the HOST:PORT of a cluster's head")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_S).close()
    except OSError as exc:
        raise ConfigError(
            f"--address {address}: no Ray cluster can be reached there ({reason(exc)}); is it up?"
        ) from exc


class Layout(NamedTuple):
    """How many workers there are; the CPUs and GPUs that Ray sets aside for each; with how many
    threads and on which device ("cpu", "cuda") each computes."""

    workers: int
    cpus: int
    gpus: int
    threads: int
    device: str


def plan_layout(nodes: Sequence[Resources], device: str, threads: int) -> Layout:
    """As many workers as the nodes have room for.

    A worker has a GPU; where there are none, or `device` is the CPU, as many CPUs as a run in one
    process has `threads`, so that it computes the same. `ConfigError` where GPUs are asked for
    and there are none, or where no node has a CPU.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if device == "cuda" and not gpus:
        raise ConfigError(
            "--device cuda: no node of the Ray cluster has a GPU, as far as Ray knows; start its "
            "nodes with --num-gpus, or take --device auto"
        )
    if device != "cpu" and gpus:
        return Layout(gpus, 0, 1, threads, "cuda")
    if not sum(cpus):
        raise ConfigError("no node of the Ray cluster has a CPU; start one with --num-cpus")
    a_worker = min(threads, max(cpus))
    return Layout(sum(n // a_worker for n in cpus), a_worker, 0, threads, "cpu")


#: The advice where a node has not what the driver has.
INSTALL = f"on every node: pip install 'claimscore[ray]=={__version__}'"


def refuse_node(node: str, version: str, no_keys: Sequence[str], *, driver: str) -> None:
    """`ConfigError` where a node has not the driver's version, or lacks keys, whose variables are
    named."""
    if version != driver:
        raise ConfigError(
            f"node {node} of the Ray cluster has claimscore {version}, the driver {driver}; "
            f"on every node: pip install 'claimscore[ray]=={driver}'"
        )
    if no_keys:
        raise ConfigError(
            f"node {node} of the Ray cluster has no {', '.join(no_keys)}: keys are not sent to "
            "other machines; set it there before `ray start`"
        )
