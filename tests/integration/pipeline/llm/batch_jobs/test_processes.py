"""Real processes, real connections, real kills."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.cache.key import request_keys
from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.batch_jobs import provider as provider_module
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message, Request
from tests.fake_server import FakeServer, text_answer
from tests.support.children import processes_with

N_REQUESTS = 90


def questions(family: str, url: str) -> list[Request]:
    url = url.removesuffix("/v1") if family == "anthropic" else url
    return [Request(family, url, "m", (Message("user", str(i)),)) for i in range(N_REQUESTS)]


@contextlib.contextmanager
def short_waits() -> Iterator[None]:
    """Time passes a hundred times as fast."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LINGER_S", "FIRST_POLL_S", "LONGEST_POLL_S", "SETTLE_S"):
            patch.setattr(provider_module, name, getattr(provider_module, name) / 100)
        yield


def ask(family: str, url: str, folder: Path) -> None:
    """Ask for what there is not yet."""

    async def run() -> None:
        llm = LLMConfig(model=f"{family}-batch:m", base_url=url)
        provider: Any = load_provider(llm)
        provider._most = 60
        async with open_engine(llm, provider, folder) as engine:
            await engine.answer_all(questions(family, url), lambda answer: answer.text)

    with short_waits():
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


@pytest.mark.parametrize("family", ["openai", "anthropic"])
def test_a_run_that_was_stopped_goes_on_within_its_cap(family: str, tmp_path: Path):
    """What was in its job, and so was counted, is not counted again."""

    async def run(server: FakeServer, *, stops: bool) -> None:
        llm = LLMConfig(
            model=f"{family}-batch:m", base_url=server.base_url, max_requests=N_REQUESTS
        )
        requests = questions(family, server.base_url)
        async with (
            open_engine(llm, load_provider(llm), tmp_path, ledger=ledger) as engine,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(engine.answer_all, requests, lambda answer: answer.text)
            while not engine.stats.why.startswith(f"{N_REQUESTS} requests to m are in"):
                await anyio.sleep(0.1)
            if stops:
                engine.stop()
            else:
                server.finish_batches()

    with FakeServer(answer=text_answer("fine"), batch_delay_s=3600.0) as server, short_waits():
        stopped = pytest.RaisesGroup(pytest.RaisesExc(StoppedEarly, match="run the same command"))
        with contextlib.closing(Ledger(tmp_path / "spend.jsonl")) as ledger, stopped:
            anyio.run(functools.partial(run, server, stops=True))
        with contextlib.closing(Ledger(tmp_path / "spend.jsonl")) as ledger:
            anyio.run(functools.partial(run, server, stops=False))
        assert len(server.batches) == 1
        assert set(server.paid.values()) == {1}
