"""What all clients share. Standard library only: each client has an environment of its own.

A client asks `--n` questions at `--base-url`, at most `--concurrency` at a time, with the
limits it was told of, and prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

MODEL = "gpt-4o-mini"
SYSTEM = (
    "You break a sentence into single claims. Each claim says one thing, stands on its own, "
    "names its subject, and adds nothing that the sentence does not say. Answer with one claim "
    "a line and nothing else; repeat no claim; keep the words of the sentence where you can."
)
THINGS = ("pool", "room", "lobby", "bar", "garden", "gym", "bed", "view", "staff", "breakfast")


def options() -> argparse.Namespace:
    """The command line of every client."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=128)
    parser.add_argument("--rpm", type=float)
    parser.add_argument("--tpm", type=float)
    parser.add_argument("--unlimited", action="store_true", help="the server has no limits")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--work", type=Path, required=True, help="caches and other files")
    parser.add_argument("--system", default=SYSTEM)
    parser.add_argument("--parser", default="text", help="text, or another one: length")
    return parser.parse_args()


def messages(number: int, system: str) -> list[dict[str, str]]:
    """Question `number`: no two are alike."""
    first, second = THINGS[number % 10], THINGS[number // 10 % 10]
    user = f"House {number}: the {first} is warm and quiet, and the {second} was cleaned today."
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


class Meter:
    """Wall and CPU time of the work itself, imports left out."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), _cpu_s()

    def report(self, answered: int, n: int, *, packages: tuple[str, ...], **more: Any) -> None:
        """Print the line that a client owes, with the versions of the packages that do the work."""
        wall_s, cpu_s = time.perf_counter() - self._wall, _cpu_s() - self._cpu
        result = {
            "answered": answered,
            "lost": n - answered,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "versions": versions(*packages),
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            **more,
        }
        print(json.dumps(result), flush=True)


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def versions(*names: str) -> dict[str, str]:
    """Versions of the packages that do the work, and of Python."""
    found = {name: importlib.metadata.version(name) for name in names}
    return found | {"python": platform.python_version()}


def note(error: BaseException) -> None:
    """One line for whoever looks at a client by hand."""
    print(f"{type(error).__name__}: {error}"[:200], file=sys.stderr)
