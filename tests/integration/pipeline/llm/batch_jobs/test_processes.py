"""Real processes, real connections, real kills."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import anyio

from claimscore.cache.key import request_keys
from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig
from claimscore.pipeline.llm.batch_jobs.provider import OpenAIBatchProvider
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message, Request
from tests.fake_server import FakeServer, text_answer
from tests.support.children import processes_with

N_REQUESTS = 90


def questions(url: str) -> list[Request]:
    return [Request("openai", url, "m", (Message("user", str(i)),)) for i in range(N_REQUESTS)]


def ask(url: str, folder: Path) -> None:
    """Ask for what there is not yet; time passes a hundred times as fast."""

    async def sleep(seconds: float) -> None:
        await anyio.sleep(seconds / 100)

    async def run() -> None:
        llm = LLMConfig(model="openai-batch:m", base_url=url)
        provider = OpenAIBatchProvider(
            "m", base_url=url, state=folder / "jobs", max_requests=60, sleep=sleep
        )
        async with open_engine(llm, provider, folder) as engine:
            await engine.answer_all(questions(url), lambda answer: answer.text)

    anyio.run(run)


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
        cache, keys = DiskCache(tmp_path), request_keys(questions(server.base_url))
        kill_when(start(server, tmp_path), lambda: bool(cache.get_many(keys)))
        server.change(batch_delay_s=0.0)
        server.finish_batches()
        last = start(server, tmp_path)
        last.join(60)
        assert last.exitcode == 0
        server.finish_batches()
        assert len(server.paid) == N_REQUESTS
        assert set(server.paid.values()) == {1}
        assert len(cache.get_many(keys)) == N_REQUESTS
    cache.close()
