"""The requirements of a node of the cluster, and how many workers the nodes have room for.

Pure, without Ray. Each node is asked before anything is spent, and each worker asks again where
it starts: the node may have come later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from claimscore import __version__
from claimscore.atomic import write_text
from claimscore.config import missing_environment
from claimscore.errors import ConfigError

#: A file in the run directory that says which call works there: a node that reads it sees that
#: folder, and not another one of its name.
_MARK = ".state/cluster"

#: What a node has, as Ray calls it: "CPU", "GPU" and others.
Resources = Mapping[str, float]


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
    each = min(threads, max(cpus))
    return Layout(sum(n // each for n in cpus), each, 0, threads, "cpu")


def mark_run_folder(folder: Path, mark: str) -> None:
    """Leave in the run directory what `lacking` looks for."""
    write_text(folder / _MARK, mark)


def lacking(where: str, mark: str, key_names: Sequence[str]) -> str | None:
    """The lack of this machine, as the rest of a sentence that begins with its name; None where it
    lacks nothing. `mark` was left in the run directory `where`."""
    try:
        found = (Path(where) / _MARK).read_text()
    except FileNotFoundError:
        found = ""
    except OSError as exc:
        return f"cannot read {where}: {exc}"
    if found != mark:
        return (
            f"does not see {where}, or has another folder of that name; name an --out that all "
            "nodes share: a folder on a network"
        )
    missing = missing_environment(key_names)
    if missing:
        return (
            f"has no {', '.join(missing)}: keys are not sent to other machines; set it there "
            "before `ray start`"
        )
    return None


def refuse_node(node: str, version: str, lack: str | None, *, driver: str = __version__) -> None:
    """`ConfigError` where a node has not the driver's version ("" is none), or lacks something, as
    `lacking` says."""
    if version != driver:
        has = f"claimscore {version}" if version else "no claimscore"
        raise ConfigError(
            f"node {node} of the Ray cluster has {has}, the driver {driver}; on every node: "
            f"pip install 'claimscore[ray]=={driver}'"
        )
    if lack is not None:
        raise ConfigError(f"node {node} of the Ray cluster {lack}")
