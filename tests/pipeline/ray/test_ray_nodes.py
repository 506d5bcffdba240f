"""A cluster of several nodes, one of which vanishes. Slow: each node is some processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl
import pytest

from tests.loopback import Loopback
from tests.tiny_models import save_tiny_nli

pytest.importorskip("ray", reason="needs the extra `ray`")
pytest.importorskip("pyarrow", reason="needs the extra `ray`")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS, CONCURRENCY = 256, 32
REQUESTS = 4 * RECORDS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """`ray start` in the foreground; ended, it takes its processes with it."""

    def __init__(self, environment: Mapping[str, str], cwd: Path, *where: str) -> None:
        command = [*(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"), *where]
        sizes = ("--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats")
        self.process = subprocess.Popen(
            [*command, *sizes],
            env=environment,
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def raylet(self) -> int | None:
        """The process that is the node."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                line = (folder / "cmdline").read_bytes()
                if parent == self.process.pid and b"raylet/raylet" in line.split(b"\0")[0]:
                    return int(folder.name)
        return None

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def asking(raylet: int | None) -> bool:
    """Whether an LLM worker is on the node."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and b"Map(LLMWorker)" in (folder / "cmdline").read_bytes():
                return True
    return False


@pytest.fixture
def environment(s3: str, tmp_path: Path) -> dict[str, str]:
    """Of nodes and commands: the store is reached, claimscore is found."""
    place = {"PYTHONPATH": str(Path(__file__).parents[3]), "RAY_AUTH_MODE": "disabled"}
    return {**os.environ, **place, "RAY_TMPDIR": str(tmp_path / "ray")}


@pytest.fixture
def cluster(environment: dict[str, str], tmp_path: Path) -> Iterator[tuple[str, list[Node]]]:
    """The head's address, and three nodes; their working directory is another one."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    address = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        head = ("--head", "--port", address.rpartition(":")[2], "--include-dashboard=false")
        nodes = [Node(environment, elsewhere, *head)]
        stack.callback(nodes[0].close)
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", int(head[2]))),
            ):
                break
            time.sleep(0.2)
        for _ in range(2):
            nodes.append(Node(environment, elsewhere, "--address", address))
            stack.callback(nodes[-1].close)
        while not all(node.raylet() for node in nodes):
            time.sleep(0.2)
        yield address, nodes


def test_a_node_that_vanishes_takes_nothing_with_it(
    cluster: tuple[str, list[Node]], environment: dict[str, str], s3: str, tmp_path: Path
) -> None:
    """One with an LLM worker on it, and model workers; the run directory is in a store. Nothing
    is paid twice but what was in flight there, and the scores are those of one process."""
    address, nodes = cluster
    records = tmp_path / "records.jsonl"
    with records.open("w", encoding="utf-8") as stream:
        for i in range(RECORDS):
            a, b = f"Room {i} is clean. Floor {i} is loud.", f"Bed {i} is hard. Pool {i} is warm."
            stream.write(json.dumps({"summary_a": a, "summary_b": b}) + "\n")
    common = [
        *(sys.executable, "-m", "claimscore", "run", str(records), "--metrics", "caspr,ds"),
        *("--llm", "openai:test", "--cache-namespace", "a server", "--json"),
        *("--max-concurrency", str(CONCURRENCY), "--no-model-store"),
        *("--nli", str(save_tiny_nli(tmp_path / "nli"))),
    ]
    with Loopback() as quick:
        cache = ("--cache-dir", str(tmp_path / "other"), "--base-url", quick.base_url)
        local = [*common, "--out", str(tmp_path / "local"), *cache]
        subprocess.run(local, env=environment, check=True, stdout=subprocess.DEVNULL)
    with Loopback(latency_s=0.5) as server:
        where = ("--out", f"{s3}/run", "--engine", "ray", "--address", address)
        run = subprocess.Popen(
            [*common, *where, "--base-url", server.base_url],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        )
        while server.counts.paid.total() < REQUESTS // 4:
            assert run.poll() is None
            time.sleep(0.05)
        victim = next((node for node in nodes[1:] if asking(node.raylet())), nodes[1])
        raylet = victim.raylet()
        assert raylet is not None
        os.kill(raylet, signal.SIGKILL)
        said, _ = run.communicate()
        stats = server.counts.to_json()
    assert run.returncode == 0
    assert json.loads(said)["records"] == {"total": RECORDS, "done": RECORDS, "failed": 0}
    ours = pl.read_parquet(f"{s3}/run/scores.parquet")
    assert ours.equals(pl.read_parquet(tmp_path / "local" / "scores.parquet"))
    assert stats["paid_distinct"] == REQUESTS
    assert stats["paid_twice"] <= CONCURRENCY // 2
    assert stats["most_in_flight"] <= CONCURRENCY
