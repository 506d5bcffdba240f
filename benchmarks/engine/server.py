"""The loopback server of the tests in a process of its own, and what it allows at best."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
ANSWER = "The pool is warm. The pool is quiet. The room was cleaned today ($digest)."

Settings = dict[str, Any]


class Server:
    """A fresh server; `stats` are its own counts."""

    def __init__(self, folder: Path, settings: Settings, *, log: bool = False) -> None:
        self.log = folder / "server.log.jsonl"
        config = folder / "server.json"
        config.write_text(json.dumps({"text": ANSWER, **settings}))
        command = [sys.executable, "-m", "tests.fake_server", "--config", str(config)]
        if log:
            command += ["--log", str(self.log)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.base_url = self._process.stdout.readline().strip()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def stats(self) -> dict[str, Any]:
        """What it has seen so far."""
        return self._call("/_stats", None)

    def control(self, **orders: Any) -> dict[str, Any]:
        """Other settings, or `reset=True`."""
        return self._call("/_control", json.dumps(orders).encode())

    def _call(self, path: str, data: bytes | None) -> dict[str, Any]:
        """An outage may have closed the port: then it waits for its end."""
        url = self.base_url.removesuffix("/v1") + path
        give_up = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(url, data, timeout=30) as answer:
                    found: dict[str, Any] = json.load(answer)
                return found
            except OSError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.1)


def ideal_s(settings: Settings, n: int, tokens: float, concurrency: int) -> float:
    """The least time in which a client could get so many answers from such a server.

    From the first request to the last answer: the slowest of what the limits let through
    after their first credit and what so many requests in flight bring home; the last answer's
    latency; the outages, in which nothing is answered.
    """
    latency_s = settings.get("latency_s", 0.0)
    credit = settings.get("depth_s", 60.0) / 60
    times = [(n / concurrency - 1) * latency_s, 0.0]
    for name, units in (("rpm", n), ("tpm", tokens)):
        if name in settings:
            times.append((units / settings[name] - credit) * 60)
    ideal = max(times) + latency_s
    for outage in settings.get("outages", ()):
        if outage["from_s"] < ideal:
            ideal += outage["to_s"] - outage["from_s"]
    return float(ideal)
