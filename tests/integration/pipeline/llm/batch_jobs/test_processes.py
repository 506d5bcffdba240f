"""Real processes, real connections, real kills."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import anyio

from claimscore.cache.key import request_key
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.types import Completion, Message, Request
from tests.fake_server import FakeServer, text_answer
from tests.support.children import processes_with

N_REQUESTS = 90


def ask(url: str, folder: Path) -> None:
    """Ask for what there is not yet; time passes a hundred times as fast."""
    anyio.run(_ask, url, folder)


async def _ask(url: str, folder: Path) -> None:
    kept = folder / "kept.jsonl"

    def read() -> dict[str, Completion]:
        lines = kept.read_text().splitlines() if kept.exists() else []
        return {
            item["key"]: Completion.from_json(item["answer"]) for item in map(json.loads, lines)
        }

    def keep(answers: Mapping[str, Completion]) -> None:
        lines = [json.dumps({"key": k, "answer": a.to_json()}) + "\n" for k, a in answers.items()]
        with kept.open("ab", buffering=0) as stream:  # all or, after a kill, none
            stream.write("".join(lines).encode())

    def find(keys: Iterable[str]) -> dict[str, Completion]:
        have = read()
        return {key: have[key] for key in keys if key in have}

    async def sleep(seconds: float) -> None:
        await anyio.sleep(seconds / 100)

    provider = OpenAIBatchProvider(
        "m", base_url=url, state=folder / "batches", max_requests=60, sleep=sleep
    )
    await provider.recover(keep, find)
    requests = [
        Request("openai", url, "m", (Message("user", f"question {i}"),)) for i in range(N_REQUESTS)
    ]
    have = read()
    async with anyio.create_task_group() as tasks:
        provider.start(tasks)
        for request in requests:
            if request_key(request) not in have:
                tasks.start_soon(provider.complete, request)
    await provider.aclose()


def start(server: FakeServer, folder: Path) -> BaseProcess:
    processes = processes_with(__name__, "claimscore.pipeline.llm.batch_jobs.client")
    process = processes.Process(target=ask, args=(server.base_url, folder))
    process.start()
    return process


def kill_when(process: BaseProcess, condition: Callable[[], bool]) -> None:
    """SIGKILL, as soon as something is seen to have happened."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.join()


def test_killed_processes_pay_nothing_twice(tmp_path: Path):
    """After the upload, after the creation, while answers arrive: everything is paid once.

    The first two hold the journal's lock, which ends with them.
    """
    with FakeServer(answer=text_answer("fine"), batch_delay_s=None) as server:
        files = server._batches.files
        kill_when(start(server, tmp_path), lambda: len(files) >= 1)
        kill_when(start(server, tmp_path), lambda: len(server.batches) >= 2)
        server.finish_batches()
        kept = tmp_path / "kept.jsonl"
        kill_when(start(server, tmp_path), lambda: kept.exists() and kept.stat().st_size > 0)
        server.change(batch_delay_s=0.0)
        server.finish_batches()
        last = start(server, tmp_path)
        last.join(60)
        assert last.exitcode == 0
        server.finish_batches()
        assert len(server.paid) == N_REQUESTS
        assert set(server.paid.values()) == {1}
    answers = {json.loads(line)["key"] for line in kept.read_text().splitlines()}
    assert len(answers) == N_REQUESTS
    assert JobJournal(tmp_path / "batches").names() == []
