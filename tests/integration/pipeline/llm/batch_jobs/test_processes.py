"""Real processes, real connections, real kills."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.cache.key import request_keys
from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message, Request
from tests.fake_server import FakeServer, text_answer
from tests.support.children import processes_with

N_REQUESTS = 90


def questions(family: str, url: str) -> list[Request]:
    url = url.removesuffix("/v1") if family == "anthropic" else url
    return [Request(family, url, "m", (Message("user", str(i)),)) for i in range(N_REQUESTS)]


def ask(family: str, url: str, folder: Path) -> None:
    """Ask for what there is not yet; time passes a hundred times as fast."""
    sleep = anyio.sleep

    async def shortly(seconds: float) -> None:
        await sleep(seconds / 100)

    async def run() -> None:
        llm = LLMConfig(model=f"{family}-batch:m", base_url=url)
        provider: Any = load_provider(llm)
        provider._server.max_requests = provider._most = 60
        async with open_engine(llm, provider, folder) as engine:
            await engine.answer_all(questions(family, url), lambda answer: answer.text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "sleep", shortly)
        anyio.run(run)


def start(family: str, server: FakeServer, folder: Path) -> BaseProcess:
    processes = processes_with(__name__, "claimscore.pipeline.llm.batch_jobs.provider")
    process = processes.Process(target=ask, args=(family, server.base_url, folder))
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


@pytest.mark.parametrize("family", ["openai", "anthropic"])
def test_killed_processes_pay_nothing_twice(family: str, tmp_path: Path):
    """After the upload, after the creation, while answers arrive: everything is paid once.

    The first two hold the journal's lock, which ends with them.
    """
    with FakeServer(answer=text_answer("fine"), batch_delay_s=3600.0) as server:
        files = server._batches.files
        kill_when(start(family, server, tmp_path), lambda: bool(files or server.batches))
        kill_when(start(family, server, tmp_path), lambda: len(server.batches) >= 2)
        server.finish_batches()
        cache, keys = DiskCache(tmp_path), request_keys(questions(family, server.base_url))
        kill_when(start(family, server, tmp_path), lambda: bool(cache.get_many(keys)))
        server.change(batch_delay_s=0.0)
        server.finish_batches()
        last = start(family, server, tmp_path)
        last.join(60)
        assert last.exitcode == 0
        server.finish_batches()
        assert len(server.paid) == N_REQUESTS
        assert set(server.paid.values()) == {1}
        assert len(cache.get_many(keys)) == N_REQUESTS
    cache.close()
