"""Clients as processes that wait for their turn: models are loaded once, rounds interleave."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Client -> its file, and the environment that has its packages ("" is this one).
CLIENTS: dict[str, tuple[str, str]] = {
    "claimscore": ("claimscore_client.py", ""),
    "before": ("claimscore_client.py", ""),
    "peak": ("peak_client.py", ""),
    "sentence-transformers": ("sentence_transformers_client.py", "sentence-transformers"),
    "pipeline": ("pipeline_client.py", "sentence-transformers"),
    "bert-score": ("bert_score_client.py", "bert-score"),
    "openvino": ("openvino_client.py", "openvino"),
    "onnxruntime": ("onnxruntime_client.py", "onnxruntime"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One order done; `values` is a file with what came out, or None."""

    seconds: float
    cpu_s: float
    figures: Mapping[str, float]
    values: Path | None


class WorkerError(RuntimeError):
    """A client could not load its model or do its work; the text says why."""


def python_of(client: str, environments: Path) -> Path | None:
    """The interpreter with a client's packages; None where it is not installed."""
    _, environment = CLIENTS[client]
    if not environment:
        return Path(sys.executable)
    folder = environments / environment
    return folder / "bin" / "python" if (folder / "done").exists() else None


def cores(threads: int) -> list[int]:
    """The cores that a client may use: the last ones, since the first has the interrupts."""
    return sorted(os.sched_getaffinity(0))[-threads:]


class Worker:
    """A client with its model, held to so many threads and cores."""

    def __init__(
        self, client: str, python: Path, job: Mapping[str, Any], folder: Path, checkout: Path = ROOT
    ) -> None:
        self.client = client
        threads = int(job["threads"])
        self._folder = Path(tempfile.mkdtemp(prefix=f"{client}-", dir=folder))
        self._errors = self._folder / "errors.txt"
        path = self._folder / "job.json"
        path.write_text(json.dumps(dict(job)), encoding="utf-8")
        self._orders = 0
        own = {
            **dict.fromkeys(
                ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads)
            ),
            "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
            "HF_HUB_OFFLINE": "1",
            "CLAIMSCORE_CACHE_DIR": str(self._folder / "cache"),
            "CLAIMSCORE_STATE_DIR": str(self._folder / "state"),
        }
        if not CLIENTS[client][1]:
            own["PYTHONPATH"] = str(checkout)
        allowed = cores(threads) if job["device"] == "cpu" else sorted(os.sched_getaffinity(0))
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python), str(HERE / "clients" / CLIENTS[client][0]), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **own},
                preexec_fn=lambda: os.sched_setaffinity(0, allowed),
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ready(self, timeout_s: float = 600.0) -> dict[str, str]:
        """Wait until the model is loaded; the versions of the client's packages."""
        versions: dict[str, str] = self._answer(timeout_s)["versions"]
        return versions

    def order(self, options: Mapping[str, Any], timeout_s: float = 1800.0) -> Measured:
        """Have the work done once."""
        assert self._process.stdin is not None
        self._orders += 1
        out = self._folder / f"{self._orders}.npy"
        order = json.dumps({"options": dict(options), "out": str(out)})
        with contextlib.suppress(BrokenPipeError):  # the answer that does not come says more
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answer(timeout_s)
        return Measured(
            answer["seconds"], answer["cpu_s"], answer["figures"], out if out.exists() else None
        )

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        there, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if there else b""
        if not line:
            reason = self._last_words() if there else f"no answer in {timeout_s:.0f} s"
            self._process.kill()
            raise WorkerError(f"{self.client}: {reason}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.client}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it ended without a word"
