"""The missing steps of a run on Ray Data, on one machine or on many.

The stages know nothing of it: workers call the functions of `chunk_work`, as one process does.
Ray is imported only by the modules of this package, and only once it is asked for.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
