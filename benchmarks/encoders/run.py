"""claimscore's encoder stage beside its peers, one table:

    python benchmarks/encoders/run.py [--rows NAME ...] [--clients NAME ...] [--out FILE]

Models are loaded once by clients in processes of their own, held to one core and then to two;
within each round they take turns, together with a measurement of what the machine can do.
Peers are used where `setup_peers.sh` installed them; rows of a GPU are skipped without one.
`--rows gpu` is all that a GPU is measured and tested by.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import figures
import own
from figures import TableLine
from overlap import overlap
from play import Bench, play, say
from rows import ROWS
from workers import CLIENTS, WorkerError
from workloads import find_workloads

HERE = Path(__file__).parent
GPU = "gpu"


class OwnRow(NamedTuple):
    """A row without the peers' models."""

    name: str
    what: str
    play: Callable[[Bench], list[TableLine]]
    needs_gpu: bool = False


OWN_ROWS = (
    OwnRow("tokenise", "tokenising and building batches", own.tokenise),
    OwnRow("lookup", "look-up of stored results", own.lookup),
    OwnRow("overlap", "a run whose two stages take equal time", overlap),
    OwnRow("gpu-memory", "half the memory of a GPU", own.gpu_memory, needs_gpu=True),
    OwnRow("gpu-tests", "the tests of a GPU: the CPU's numbers", own.gpu_tests, needs_gpu=True),
)


def main() -> None:
    names = [row.name for row in ROWS] + [row.name for row in OWN_ROWS]
    clients = [name for name in CLIENTS if name not in ("peak", "before")]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shown = ", ".join([*names, GPU])
    parser.add_argument("--rows", nargs="+", choices=[*names, GPU], metavar="NAME", help=shown)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", choices=clients, default=clients)
    parser.add_argument(
        "--before", type=Path, help="another checkout of claimscore, beside this one"
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--environments", type=Path, default=HERE / ".venvs")
    parser.add_argument("--workloads", type=Path, help="default: shared/data/encoder_workloads")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the items: to try it")
    parser.add_argument("--out", type=Path, help="everything measured, as JSON")
    asked = parser.parse_args()
    chosen = set(asked.rows or names)
    if GPU in chosen:
        chosen |= {name for name in names if name.startswith(GPU)}

    bench = Bench(
        workloads=find_workloads(asked.workloads),
        environments=asked.environments.resolve(),
        rounds=asked.rounds,
        scale=asked.scale,
        clients=frozenset(asked.clients),
        before=None if asked.before is None else asked.before.resolve(),
    )
    lines: list[TableLine] = []
    everything: dict[str, Any] = {}
    cuda = has_cuda()
    for row in ROWS:
        if row.name not in chosen:
            continue
        if row.device == "cuda" and not cuda:
            lines.append(skipped(row.what))
            continue
        for threads in asked.threads if row.device == "cpu" else [os.cpu_count() or 1]:
            played = play(bench, row, threads)
            lines += figures.lines(played)
            everything[f"{row.name}, {threads}"] = figures.as_json(played)
    for own_row in OWN_ROWS:
        if own_row.name not in chosen:
            continue
        if own_row.needs_gpu and not cuda:
            lines.append(skipped(own_row.what))
            continue
        try:
            found = own_row.play(bench)
        except WorkerError as exc:
            found = [TableLine(own_row.what, "", "", None, str(exc))]
        lines += found
        everything[own_row.name] = [line._asdict() for line in found]

    print(figures.table(lines))
    print(f"\n{machine()}, Python {platform.python_version()}, {asked.rounds} rounds")
    for client, versions in bench.versions.items():
        print(f"{client}: {', '.join(f'{name} {version}' for name, version in versions.items())}")
    if asked.out is not None:
        content = {"machine": machine(), "versions": bench.versions, "rows": everything}
        asked.out.write_text(json.dumps(content, indent=1), encoding="utf-8")


def has_cuda() -> bool:
    """Whether torch sees a GPU; said once."""
    import torch

    there = torch.cuda.is_available()
    say(f"GPU: {torch.cuda.get_device_name(0)}" if there else "no CUDA device: no rows of a GPU")
    return there


def skipped(what: str) -> TableLine:
    name = what if what.startswith("GPU") else f"GPU: {what}"
    return TableLine(name, "GPU", "", None, "not run: no CUDA device")


def machine() -> str:
    """The processor, its cores, and which fast arithmetic it has."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return f"{os.cpu_count()} cores ({platform.processor() or platform.machine()})"
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    found = {name.strip(): value.strip() for name, value in fields.items()}
    flags = set(found.get("flags", "").split())
    fast = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{os.cpu_count()} cores ({found.get('model name', '')}; {', '.join(fast)})"


if __name__ == "__main__":
    main()
