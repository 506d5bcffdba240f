"""Real processes, real connections, real kills."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from claimscore.pipeline.llm.providers.batch_files import BatchFolder
from claimscore.pipeline.llm.providers.openai_batch import OpenAIBatchProvider
from claimscore.types import Message, Request
from tests.loopback import Loopback, text_answer

pytestmark = pytest.mark.anyio

N_REQUESTS = 90

#: Asks for what it has not got yet; time passes a hundred times as fast.
CHILD = """
import json, sys
from pathlib import Path
import anyio
from claimscore.cache.key import request_key
from claimscore.pipeline.llm.providers.openai_batch import OpenAIBatchProvider
from claimscore.types import Completion, Message, Request

url, folder, n_requests = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
kept = folder / "kept.jsonl"

def read():
    lines = kept.read_text().splitlines() if kept.exists() else []
    return {item["key"]: Completion.from_json(item["answer"]) for item in map(json.loads, lines)}

def keep(answers):
    with kept.open("a") as stream:
        for key, answer in answers.items():
            stream.write(json.dumps({"key": key, "answer": answer.to_json()}) + "\\n")

def find(keys):
    have = read()
    return {key: have[key] for key in keys if key in have}

async def sleep(seconds):
    await anyio.sleep(seconds / 100)

async def main():
    provider = OpenAIBatchProvider(
        "m", base_url=url, state=folder / "batches", max_requests=60, sleep=sleep
    )
    await provider.recover(keep, find)
    requests = [
        Request("openai", url, "m", (Message("user", f"question {i}"),)) for i in range(n_requests)
    ]
    have = read()
    async with anyio.create_task_group() as tasks:
        for request in requests:
            if request_key(request) not in have:
                tasks.start_soon(provider.complete, request)
    await provider.aclose()

anyio.run(main)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def start(server: Loopback, folder: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", CHILD, server.base_url, str(folder), str(N_REQUESTS)]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


def kill_when(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """SIGKILL, as soon as something is seen to have happened."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate()


def test_killed_processes_pay_nothing_twice(tmp_path: Path):
    """After the upload, after the creation, while answers arrive: everything is paid once."""
    with Loopback(answer=text_answer("fine"), batch_delay_s=None) as server:
        files = server._batches.files
        kill_when(start(server, tmp_path), lambda: len(files) == 1)
        kill_when(start(server, tmp_path), lambda: len(server.batches) == 2)
        server.finish_batches()
        kept = tmp_path / "kept.jsonl"
        kill_when(start(server, tmp_path), lambda: kept.exists() and kept.stat().st_size > 0)
        server.change(batch_delay_s=0.0)
        server.finish_batches()
        last = start(server, tmp_path)
        _, errors = last.communicate(timeout=60)
        assert last.returncode == 0, errors
        server.finish_batches()
        assert len(server.paid) == N_REQUESTS
        assert set(server.paid.values()) == {1}
    answers = {json.loads(line)["key"] for line in kept.read_text().splitlines()}
    assert len(answers) == N_REQUESTS
    assert BatchFolder(tmp_path / "batches").names() == []


def test_two_processes_at_once_pay_nothing_twice(tmp_path: Path):
    """They share the batches of the folder."""
    with Loopback(answer=text_answer("fine"), batch_delay_s=0.2) as server:
        processes = [start(server, tmp_path) for _ in range(2)]
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        assert set(server.paid.values()) == {1}
        assert len(server.paid) == N_REQUESTS


async def test_a_lost_answer_over_a_real_connection(tmp_path: Path):
    """Of every step; the connection is reset after the server has done it."""
    lost = {
        "POST /v1/files": ("lost",),
        "POST /v1/batches": ("lost", "500"),
        "GET /v1/batches": ("reset", "503"),
        "GET /v1/files": ("reset",),
        "GET /v1/batches/batch_2": ("reset",),
    }

    async def sleep(seconds: float) -> None:
        await anyio.sleep(seconds / 1000)

    with Loopback(answer=text_answer("fine"), on_path=lost, batch_rates={"500": 0.3}) as server:
        provider = OpenAIBatchProvider(
            "m", base_url=server.base_url, state=tmp_path / "s", sleep=sleep
        )
        answers: list[str] = []

        async def complete(number: int) -> None:
            request = Request("openai", "n", "m", (Message("user", str(number)),))
            answers.append((await provider.complete(request)).text)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(complete, number)
        await provider.aclose()
        assert answers == ["fine"] * 20
        assert set(server.paid.values()) == {1}
        assert len(server.paid) == 20
