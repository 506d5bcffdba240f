"""What all clients share. Standard library only: each client has an environment of its own.

A client reads its job (a JSON file), loads its model, says that it is ready, and then obeys one
order a line: do the work once, say how long it took, and save what came out. So models are
loaded once, and the runner decides whose turn it is.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class Job(NamedTuple):
    """What a client is to do: `task` over `items`, with the model in `model`.

    `items` are pairs of texts, or texts, as JSON has them. `more` is for one client alone.
    """

    task: str
    model: str
    items: list[Any]
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(first, second) for first, second in self.items]


class Done(NamedTuple):
    """What came out: `values` an array to compare, `figures` numbers of the client's own.

    `seconds` where the client took the time itself, and not all of the call is the work.
    """

    values: Any = None
    figures: Mapping[str, Any] = MappingProxyType({})
    seconds: float | None = None


Work = Callable[[dict[str, Any]], Done]


def serve(load: Callable[[Job], Work], packages: Sequence[str]) -> None:
    """Obey until the input ends. Answers go to the real output; what libraries print does not."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    content["items"] = json.loads(Path(content["items"]).read_text(encoding="utf-8"))
    try:
        work = load(Job(**content))
    except Exception as exc:
        say(error=f"{type(exc).__name__}: {exc}"[:300])
        raise
    say(versions=versions(*packages))
    for line in sys.stdin:
        order = json.loads(line)
        began, cpu = time.perf_counter(), _cpu_s()
        try:
            done = work(order["options"])
        except Exception as exc:  # the row says so, and the next order may well work
            say(error=f"{type(exc).__name__}: {exc}"[:300])
            continue
        seconds, cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        if done.values is not None:
            import numpy as np  # every environment has it

            np.save(order["out"], np.asarray(done.values), allow_pickle=False)
        if done.seconds is not None:
            seconds = done.seconds
        say(seconds=seconds, cpu_s=cpu_s, figures=dict(done.figures))


def budgeted(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of places, longest first: each at most `budget` tokens, padding included."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def versions(*names: str) -> dict[str, str]:
    """Versions of the packages that do the work, and of Python."""
    found = {name: importlib.metadata.version(name) for name in names}
    return found | {"python": platform.python_version()}
