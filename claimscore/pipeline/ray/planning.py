"""How a cluster is used: how many workers of each kind it has room for. Pure, without Ray."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from claimscore.errors import ConfigError

#: LLM workers: a process each, which does some hundred requests a second. Two at least, so that
#: the loss of one does not stop the stage; one for so many CPUs of the cluster.
LEAST_LLM_WORKERS, MOST_LLM_WORKERS, CPUS_A_LLM_WORKER = 2, 16, 8

#: What Ray sets aside, in CPUs: an LLM worker waits more than it works, and a model worker leaves
#: this share of its CPUs, so that there is room for both wherever Ray starts which of them first.
LLM_CPUS, MODEL_SHARE = 0.05, 0.9

#: What a node has, as Ray calls it: "CPU", "GPU" and others.
Resources = Mapping[str, float]


class Layout(NamedTuple):
    """Processes of each stage; what Ray sets aside for one of the models, and with how many
    threads and on which device ("cpu", "cuda") it computes."""

    llm_workers: int
    model_workers: int
    cpus: float
    gpus: int
    threads: int
    device: str


def plan_layout(
    nodes: Sequence[Resources], device: str, threads: int, *, computes: bool, concurrency: int
) -> Layout:
    """As many workers of each kind as the nodes have room for, of those that ask no more than
    there may be requests in flight.

    A model worker has a GPU; where there are none, or `device` is the CPU, as many CPUs as a run
    in one process has `threads` there, so that it computes the same. `ConfigError` where GPUs
    are asked for and none are there, or no CPU is.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if computes and device == "cuda" and not gpus:
        raise ConfigError(
            "--device cuda: no node of the Ray cluster has a GPU, as far as Ray knows; start its "
            "nodes with --num-gpus, or take --device auto"
        )
    if not sum(cpus):
        raise ConfigError("no node of the Ray cluster has a CPU; start one with --num-cpus")
    wanted = max(LEAST_LLM_WORKERS, sum(cpus) // CPUS_A_LLM_WORKER)
    asking = min(concurrency, MOST_LLM_WORKERS, wanted)
    if not computes:
        return Layout(asking, 0, 0.0, 0, threads, "cpu")
    if device != "cpu" and gpus:
        return Layout(asking, gpus, 0.0, 1, threads, "cuda")
    each = min(threads, max(cpus))
    room = sum(n // each for n in cpus)
    return Layout(asking, room, MODEL_SHARE * each, 0, threads, "cpu")


def share(concurrency: int, workers: int) -> int:
    """Requests that each of the workers, not more than these, may have in flight."""
    return concurrency // workers


def open_chunks(concurrency: int, chunk_records: int) -> int:
    """Chunks that a worker has open, so that its engine never starves."""
    return max(2, math.ceil(2 * concurrency / chunk_records))
