"""Runs on Ray: killed, stopped, refused; the same results as in one process."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claimscore.config import EncoderConfig, LLMConfig, RunConfig
from claimscore.errors import AuthenticationError, StoppedEarly
from claimscore.pipeline.run import run
from tests.fake_server import FakeServer
from tests.support.children import killed_at_last
from tests.support.tiny_models import save_tiny_nli

pytest.importorskip("ray", reason="needs the extra `ray`")

#: Ray deprecates settings of its own, and leaves sockets to the collector.
RAYS_OWN = ("DeprecationWarning", "FutureWarning", "ResourceWarning")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in RAYS_OWN),
]

RECORDS, RPM, CONCURRENCY = 40, 3600, 16
REQUESTS = 4 * RECORDS


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    """One Ray for all tests of this file."""
    from claimscore.pipeline.ray.cluster import connected

    with connected(None):
        yield


def write_records(path: Path, n: int) -> str:
    with path.open("w", encoding="utf-8") as stream:
        for i in range(n):
            record = {
                "id": f"r{i}",
                "summary_a": f"Room {i} is clean and quiet. Floor {i} is loud.",
                "summary_b": f"Bed {i} is hard but cheap. Pool {i} is warm.",
            }
            stream.write(json.dumps(record) + "\n")
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """Four requests a record, in chunks of eight records, and a small model."""
    return RunConfig(
        input=write_records(tmp_path / "records.jsonl", RECORDS),
        out=tmp_path / "ray",
        metrics=("caspr", "ds"),
        encoders=EncoderConfig(nli=str(save_tiny_nli(tmp_path / "nli"))),
        llm=LLMConfig(
            "openai:test", rpm=RPM, max_concurrency=CONCURRENCY, cache_namespace="a server"
        ),
        cache_dir=tmp_path / "cache",
        chunk_records=8,
        model_store=False,
        engine="ray",
    )


def at(server: FakeServer, config: RunConfig, **changes: object) -> RunConfig:
    llm = dataclasses.replace(config.llm, base_url=server.base_url, **changes)
    return dataclasses.replace(config, llm=llm)


def locally(config: RunConfig, **changes: object) -> RunConfig:
    return dataclasses.replace(config, engine="local", address=None, **changes)


def workers(title: str) -> list[int]:
    """Processes of this test's Ray that call themselves so."""
    parents: dict[int, int] = {}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if title in (folder / "cmdline").read_bytes().decode():
                found.append(pid)

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in found if is_ours(pid)]


@contextlib.contextmanager
def meanwhile(server: FakeServer, *acts: tuple[int, Callable[[], None]]) -> Iterator[None]:
    """Each act once so many answers were paid for."""
    over = threading.Event()

    def watch() -> None:
        for paid, act in acts:
            while server.counts.paid.total() < paid and not over.is_set():
                time.sleep(0.01)
            if not over.is_set():
                act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kill(title: str) -> Callable[[], None]:
    """Once there is one."""

    def act() -> None:
        while not (found := workers(title)):
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)

    return act


@pytest.mark.usefixtures("ray_here")
def test_a_killed_worker_loses_and_changes_nothing(config: RunConfig, tmp_path: Path) -> None:
    """Begun in one process, stopped by a cap, gone on with on Ray, where a worker is killed: the
    scores of a local run, and no request is sent twice."""
    with FakeServer(latency_s=0.05) as quick:
        alone = at(quick, config, rpm=None)
        run(locally(alone, out=tmp_path / "local", cache_dir=tmp_path / "other"))
    with FakeServer(latency_s=0.05, rpm=RPM, depth_s=2.0, headers="none") as server:
        first = at(server, config, max_requests=20)
        with pytest.raises(StoppedEarly, match="max-requests"):
            run(locally(first))
        with meanwhile(server, (80, kill("ray::ModelActor"))):
            result = run(at(server, config))
        stats = server.counts.to_json()
    assert result.summary["records"] == {"total": RECORDS, "done": RECORDS, "failed": 0}
    ours, theirs = config.out / "scores.parquet", tmp_path / "local" / "scores.parquet"
    assert ours.read_bytes() == theirs.read_bytes()
    assert stats["paid_distinct"] == stats["paid"] == REQUESTS
    assert stats["most_in_flight"] <= CONCURRENCY
    assert stats["refused_by_limit"] == 0


@pytest.mark.usefixtures("ray_here")
def test_an_interrupted_run_goes_on_in_one_process(config: RunConfig) -> None:
    with FakeServer(latency_s=0.05, rpm=RPM, depth_s=2.0, headers="none") as server:
        interrupted = (30, lambda: os.kill(os.getpid(), signal.SIGINT))
        with meanwhile(server, interrupted), pytest.raises(StoppedEarly, match="interrupted"):
            run(at(server, config))
        before = server.counts.to_json()
        assert 30 <= before["paid"] < REQUESTS
        assert before["in_flight"] == 0
        result = run(locally(at(server, config)))
        stats = server.counts.to_json()
    assert result.summary["records"]["done"] == RECORDS
    assert stats["paid_twice"] == 0
    assert stats["paid_distinct"] == REQUESTS
    assert result.summary["spent"]["requests"] == REQUESTS


def test_sigterm_while_ray_starts_ends_with_75(config: RunConfig) -> None:
    """Ray's own handler would leave by `SystemExit`, and its C++ part by an abort."""
    command = [
        *(sys.executable, "-m", "claimscore", "run", config.input, "--out", str(config.out)),
        *("--metrics", "caspr", "--llm", "builtin", "--nli", str(config.encoders.nli)),
        *("--engine", "ray"),
    ]
    note = config.out / ".state" / "now.json"
    with killed_at_last(subprocess.Popen(command, stderr=subprocess.PIPE)) as process:
        while not (note.exists() and "starting Ray" in note.read_text()):
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(2.0)
        process.terminate()
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 75, stderr
    assert b"run the same command to go on" in stderr


@pytest.mark.usefixtures("ray_here")
def test_a_refused_key_stops_the_run_as_a_wrong_setting(config: RunConfig) -> None:
    with FakeServer(key="right") as server, pytest.raises(AuthenticationError) as error:
        run(at(server, config, max_concurrency=1))
    assert "OPENAI_API_KEY" in str(error.value)
    assert not (config.out / "scores.parquet").exists()
