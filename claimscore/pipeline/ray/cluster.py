"""Joining a Ray cluster or starting one, what it has, and whether its nodes can do the work."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from claimscore import __version__
from claimscore.config import missing_environment, path_or_address, set_environment
from claimscore.errors import ConfigError

# Ray reads these when it is imported.
set_environment(
    {
        "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
        "RAY_BACKEND_LOG_LEVEL": "fatal",  # its C++ parts write into our standard error
        "RAY_worker_niceness": "0",  # else workers of a Ray of our own yield to all others
    }
)

import ray  # noqa: E402  # after the settings above
import ray.data  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

#: LLM workers: a process each, which does some hundred requests a second. Two at least, so that
#: the loss of one does not stop the stage; one for so many CPUs of the cluster.
LEAST_LLM_WORKERS, MOST_LLM_WORKERS, CPUS_A_LLM_WORKER = 2, 16, 8


class Layout(NamedTuple):
    """How the cluster is used: processes of each stage, and what one of the models takes."""

    llm_workers: int
    model_workers: int
    cpus: int
    gpus: int
    threads: int
    device: str


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Use the Ray that this process is connected to, else join one or start one until the end.

    `ConfigError` where there is none at the address, or one that does not fit.
    """
    _be_quiet()
    if ray.is_initialized():
        yield
        return
    start: dict[str, Any] = {"address": address}
    if address is None:
        cpus = os.cpu_count() or 1
        start = {
            "address": "local",
            "num_cpus": cpus + LEAST_LLM_WORKERS,  # these wait more than they work
            "include_dashboard": False,
        }
    try:
        with _silent():
            ray.init(**start, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, RuntimeError, ValueError) as exc:
        where = "on this machine" if address is None else f"at --address {address}"
        hint = "" if address is None else "; is it up, and does it want RAY_AUTH_MODE=token?"
        raise ConfigError(f"Ray {where}: {first_line(exc)}{hint}") from exc
    try:
        _be_quiet()
        yield
    finally:
        ray.shutdown()


def _be_quiet() -> None:
    """What Ray says while it works is in its own logs; standard error is for people."""
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Its thread for errors of the cluster prints them to standard output, whatever is asked for.
    ray._private.worker._worker_logs_enabled = False
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing reaches standard error: Ray's C++ part says there that it will be silent."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def check_nodes(where: str, key_names: Sequence[str]) -> None:
    """`ConfigError` where a node that may get work lacks claimscore, the folder, or a key.

    A key stays where it is: none is sent to another node. That each of `key_names` is set there
    is asked of a process that Ray starts, which has what its node was started with.
    """

    def version_there() -> str:
        # Sent as code: the node may have another claimscore, or none.
        try:
            from claimscore import __version__ as version
        except ImportError:
            return ""
        return version

    for node, version in _ask_nodes(version_there):
        if version != __version__:
            there = f"claimscore {version}" if version else "no claimscore"
            raise ConfigError(
                f"node {node} of the Ray cluster has {there}, this process {__version__}; on "
                f"every node: pip install 'claimscore[ray]=={__version__}'"
            )
    for node, (sees, lacks) in _ask_nodes(_look_around, where, tuple(key_names)):
        if not sees:
            raise ConfigError(
                f"node {node} of the Ray cluster does not see {where}; name an --out that all "
                "nodes share: a folder on a network, or s3://BUCKET/FOLDER"
            )
        if lacks:
            raise ConfigError(
                f"node {node} of the Ray cluster has no {', '.join(lacks)}: keys are not sent to "
                "other machines; set it there before `ray start`"
            )


def _look_around(where: str, key_names: Sequence[str]) -> tuple[bool, tuple[str, ...]]:
    """Whether the folder is seen here, and which keys are not."""
    place = path_or_address(where)
    return isinstance(place, str) or place.is_dir(), missing_environment(key_names)


def _ask_nodes(question: Callable[..., Any], *args: object) -> Iterator[tuple[str, Any]]:
    """The answer of every node that may get work."""
    task = ray.remote(question)
    asked = [
        (
            str(node["NodeManagerAddress"]),
            task.options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(*args),
        )
        for node in _nodes()
        if node["Resources"].get("CPU")
    ]
    for name, answer in asked:
        yield name, ray.get(answer)


def layout(device: str, threads: int, computes: bool, concurrency: int) -> Layout:
    """How many workers of each kind the cluster has room for, of those that ask no more than
    there may be requests in flight.

    A model worker has a GPU; where there are none, or `device` is the CPU, as many CPUs as a run
    in one process has `threads` there, so that it computes the same.
    """
    resources: Any = ray.cluster_resources  # without types
    total: dict[str, float] = resources()
    cpus, gpus = int(total.get("CPU", 1)), int(total.get("GPU", 0))
    if device == "cuda" and not gpus:
        raise ConfigError("--device cuda: no node of the Ray cluster has a GPU")
    asking = min(concurrency, MOST_LLM_WORKERS, max(LEAST_LLM_WORKERS, cpus // CPUS_A_LLM_WORKER))
    if device != "cpu" and gpus:
        return Layout(asking, gpus, 1, 1, threads, "cuda")
    each = min(threads, max(1, *(int(node["Resources"].get("CPU", 0)) for node in _nodes())))
    room = max(1, (cpus - asking) // each)
    return Layout(asking, room if computes else 0, each, 0, threads, "cpu")


def share(concurrency: int, workers: int) -> int:
    """Requests that each of the workers, not more than these, may have in flight."""
    return concurrency // workers


def open_chunks(concurrency: int, chunk_records: int) -> int:
    """Chunks that a worker has open, so that its engine never starves."""
    return max(2, math.ceil(2 * concurrency / chunk_records))


def _nodes() -> list[dict[str, Any]]:
    nodes: Any = ray.nodes  # without types
    return [node for node in nodes() if node["Alive"]]


def first_line(exc: BaseException) -> str:
    """Of an error of Ray's, whose messages are long."""
    return next((line.strip() for line in str(exc).splitlines() if line.strip()), repr(exc))
