"""The missing steps of a run on Ray Data, on one machine or on many.

The stages know nothing of it: workers call the functions of `chunk_work`, as one process does.
Ray is imported only by the modules of this package, and only once it is asked for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimscore.atomic import reason
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.config import RunConfig
    from claimscore.pipeline.chunks import ChunkTodo
    from claimscore.pipeline.llm.providers.base import Provider
    from claimscore.pipeline.plan import Plan
    from claimscore.pipeline.progress import Progress
    from claimscore.pipeline.runner import Runner
    from claimscore.pipeline.telling import Teller
    from claimscore.rundir import RunDirectory

#: How long a cluster's head may take to accept a connection.
REACHED_S = 5.0


def check_ray(config: RunConfig) -> None:
    """`ConfigError` where the run cannot be given to Ray, before anything is read or spent."""
    if config.engine != "ray":
        return
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            "--engine ray: Ray is not installed; pip install 'claimscore[ray]', or leave the "
            "option out"
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
def ray_runner(
    config: RunConfig,
    directory: RunDirectory,
    plan: Plan,
    provider: Provider | None,
    todo: list[ChunkTodo],
    tell: Teller[Progress],
) -> Iterator[Runner]:
    """A `Runner` on the cluster that the settings name, or on one that is gone afterwards."""
    from claimscore.pipeline.ray.cluster import connected
    from claimscore.pipeline.ray.runner import RayRunner

    tell.phase("starting Ray", directory)
    with connected(config.address):
        yield RayRunner(config, directory, plan, provider, todo, tell)
