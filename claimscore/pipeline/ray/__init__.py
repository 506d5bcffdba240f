"""`--engine ray`: the models of a run in processes of a Ray cluster.

The driver is the command: it asks the language model with its one engine, keeps cache, limits and
money, and alone writes the manifest. Workers get chunks whose tasks are done, run the model passes
and write the parts. Ray is imported only by `cluster` and `model_workers`, once it is needed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from claimscore.atomic import reason
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.config import RunConfig
    from claimscore.pipeline.model_stage import ModelPool
    from claimscore.pipeline.progress import Progress, ProgressReporter
    from claimscore.runs import RunDirectory

#: How long a cluster's head may take to accept a connection.
REACHED_S = 5.0


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


@contextlib.contextmanager
def ray_models(
    config: RunConfig,
    directory: RunDirectory,
    roles: Sequence[str],
    reporter: ProgressReporter[Progress],
) -> Iterator[ModelPool]:
    """The models of these roles on the cluster that the settings name, or on a Ray of its own.

    `ConfigError` where a node or a model is not as it must be. The workers are gone afterwards.
    """
    from claimscore.pipeline.ray.cluster import connected
    from claimscore.pipeline.ray.model_workers import RayModels

    reporter.phase("starting Ray", directory)
    with connected(config.address):
        models = RayModels(config, directory, roles, reporter)
        try:
            models.load()
            yield models
        finally:
            models.close()
