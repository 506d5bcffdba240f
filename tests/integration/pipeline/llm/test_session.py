"""An engine from settings, on the fake server: what it refuses, remembers, and does with several
servers; a run of batch jobs that was stopped."""

import contextlib
import functools
from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.config import LLMConfig
from claimscore.errors import AuthenticationError, BudgetError, StoppedEarly, UnknownModelError
from claimscore.pipeline.llm.batch_jobs import provider as batches
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message, OutputSchema
from tests.fake_server import FakeServer, text_answer

pytestmark = pytest.mark.anyio


def config(*servers: FakeServer, **settings: Any) -> LLMConfig:
    urls = tuple(server.base_url for server in servers)
    return LLMConfig(**{"model": "openai:m", "base_url": urls, **settings})


async def asked(
    llm: LLMConfig, n: int, cache: Path, output: OutputSchema | None = None, **options: Any
) -> tuple[list[Any], Engine]:
    """The answers to `n` questions, through an engine that is opened and closed for them."""
    async with open_engine(llm, load_provider(llm), cache, **options) as engine:
        requests = [engine.request([Message("user", str(i))], output=output) for i in range(n)]
        outcomes = await engine.answer_all(requests, lambda answer: answer.text)
    return outcomes, engine


async def test_the_cap_reserves_a_longer_answer_before_it_is_sent(tmp_path: Path) -> None:
    """In two calls, for the ledger counts what the first has spent."""
    with FakeServer(answer=text_answer("cut"), completion_tokens=2000) as server:
        llm = config(server, input_price=0.0, output_price=1.0, max_cost=1700 / 1e6)
        for _ in range(2):
            with (
                contextlib.closing(Ledger(tmp_path / "spend.jsonl")) as ledger,
                pytest.raises(BudgetError, match=r"768 .* may cost up to \$0\.001024"),
            ):
                await asked(llm, 1, tmp_path / "cache", ledger=ledger)
            assert [body["max_tokens"] for body in server.bodies] == [256, 512]


async def test_each_has_limits_of_its_own(tmp_path: Path) -> None:
    """What the headers of one say is kept there, and added up."""
    with (
        FakeServer(answer=text_answer("yes"), rpm=1200, depth_s=1) as one,
        FakeServer(answer=text_answer("yes"), rpm=300, depth_s=1) as two,
    ):
        _, engine = await asked(config(one, two), 40, tmp_path / "one")
        assert engine.stats.rpm == 1500
        assert one.counts.outcomes["limit"] + two.counts.outcomes["limit"] <= 8
        assert one.counts.paid.total() + two.counts.paid.total() == 40


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"models": ("other",)}, UnknownModelError), ({"key": "sk-2"}, AuthenticationError)],
    ids=["model", "key"],
)
async def test_a_server_that_is_set_up_wrong_stops_the_run_and_is_named(
    wrong: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    with FakeServer(answer=text_answer("yes")) as good, FakeServer(**wrong) as bad:
        llm = config(good, bad, max_concurrency=2)
        with anyio.fail_after(60), pytest.raises(error, match=bad.base_url):
            await asked(llm, 100, tmp_path)


@pytest.mark.parametrize("family", ["openai", "anthropic"])
def test_batch_jobs_that_were_left_are_collected_within_the_cap(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in its job, and so was counted, is neither counted nor paid for again."""
    for name in ("LINGER_S", "FIRST_POLL_S", "LONGEST_POLL_S", "SETTLE_S"):
        monkeypatch.setattr(batches, name, getattr(batches, name) / 100)

    async def run(server: FakeServer, *, stops: bool) -> None:
        llm = config(server, model=f"{family}-batch:m", max_requests=90)
        async with (
            open_engine(llm, load_provider(llm), tmp_path, ledger=ledger) as engine,
            anyio.create_task_group() as tasks,
        ):
            requests = [engine.request([Message("user", str(i))]) for i in range(90)]
            tasks.start_soon(engine.answer_all, requests, lambda answer: answer.text)
            while not engine.stats.why.startswith("90 requests to m are in"):
                await anyio.sleep(0.1)
            if stops:
                engine.stop()
            else:
                server.finish_batches()

    with FakeServer(answer=text_answer("fine"), batch_delay_s=3600.0) as server:
        stopped = pytest.RaisesGroup(pytest.RaisesExc(StoppedEarly, match="run the same command"))
        with contextlib.closing(Ledger(tmp_path / "spend.jsonl")) as ledger, stopped:
            anyio.run(functools.partial(run, server, stops=True))
        with contextlib.closing(Ledger(tmp_path / "spend.jsonl")) as ledger:
            anyio.run(functools.partial(run, server, stops=False))
        assert len(server.batches) == 1
        assert set(server.paid.values()) == {1}
