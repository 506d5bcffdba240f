"""An engine from settings: what it refuses beforehand, what it remembers between calls."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig
from claimscore.errors import BudgetError, ConfigError
from claimscore.pipeline.llm.budget.cap import spent_so_far
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.providers.schema import Dialect
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message, OutputSchema, Request
from tests.fake_server import FakeServer, text_answer

pytestmark = pytest.mark.anyio

SCHEMA = OutputSchema("answer", {"type": "object", "properties": {}})


def config(server: FakeServer, **settings: Any) -> LLMConfig:
    return LLMConfig(model="openai:loopback", base_url=server.base_url, **settings)


def ask(engine: Engine, n: int, output: OutputSchema | None = None) -> list[Request]:
    return [engine.request([Message("user", str(i))], output=output) for i in range(n)]


async def asked(
    llm: LLMConfig, n: int, cache: Path, output: OutputSchema | None = None, **options: Any
) -> list[Any]:
    """The answers to `n` questions, through an engine that is opened and closed for them."""
    async with open_engine(llm, load_provider(llm), cache, **options) as engine:
        return await engine.answer_all(ask(engine, n, output), lambda answer: answer.text)


async def test_the_second_engine_finds_the_answers_of_the_first(tmp_path: Path) -> None:
    """The cache is the folder that was named; nothing is sent twice."""
    with FakeServer(answer=text_answer("yes")) as server:
        for _ in range(2):
            outcomes = await asked(config(server), 20, tmp_path / "cache")
            assert all(isinstance(outcome, Answer) for outcome in outcomes)
        assert server.n_requests == 20


async def test_a_cap_without_a_price_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """No one can keep a cap on a cost that nobody knows."""
    with FakeServer(answer=text_answer("yes")) as server:
        with pytest.raises(ConfigError, match="--input-price"):
            await asked(config(server, max_cost=1.0), 1, tmp_path / "cache")
        assert server.n_requests == 0


async def test_a_cap_holds_for_all_calls_together(tmp_path: Path) -> None:
    """The ledger counts what earlier calls have sent."""
    path, cache = tmp_path / "spend.jsonl", tmp_path / "cache"
    with FakeServer(answer=text_answer("yes")) as server:
        llm = config(server, max_requests=30)
        with contextlib.closing(Ledger(path)) as ledger:
            await asked(llm, 20, cache, ledger=ledger)
        with contextlib.closing(Ledger(path)) as ledger, pytest.raises(BudgetError):
            await asked(llm, 100, cache, ledger=ledger)
        assert server.n_requests == 30
    assert spent_so_far(path).requests == 30


async def test_a_cache_that_can_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has needs no more; what is missing would be paid for and lost, so is not sent."""
    with FakeServer(answer=text_answer("yes")) as server:
        llm = config(server)
        await asked(llm, 3, tmp_path / "cache")
        monkeypatch.setattr(DiskCache, "read_only", True, raising=False)
        await asked(llm, 3, tmp_path / "cache")
        assert server.n_requests == 3
        with pytest.raises(ConfigError, match="can only be read"):
            await asked(llm, 4, tmp_path / "cache")
        assert server.n_requests == 3


async def test_how_a_server_wants_to_be_asked_is_remembered(tmp_path: Path) -> None:
    """What one run has found out, the next one knows."""
    with FakeServer(answer=text_answer("{}")) as server:
        llm = config(server)
        provider = load_provider(llm)
        assert isinstance(provider, OpenAIProvider)
        async with open_engine(llm, provider, tmp_path / "one"):
            assert provider.on_dialect is not None
            provider.on_dialect(Dialect(output_mode="json_object"))
        await asked(llm, 1, tmp_path / "two", SCHEMA)
        assert server.bodies[-1]["response_format"] == {"type": "json_object"}


async def test_limits_told_by_headers_are_remembered_and_kept(tmp_path: Path) -> None:
    """The next call begins with what the server said to this one."""
    with FakeServer(answer=text_answer("yes"), rpm=6000, depth_s=1) as server:
        await asked(config(server), 5, tmp_path / "one")
        llm = config(server)
        async with open_engine(llm, load_provider(llm), tmp_path / "two") as engine:
            assert engine.observe().rpm == 6000


async def test_what_happens_seldom_is_told(tmp_path: Path) -> None:
    """Limits learnt and the first retry of a kind are events."""
    events: list[str] = []
    with FakeServer(answer=text_answer("yes"), rpm=6000, script={2: "500"}) as server:
        await asked(
            config(server),
            5,
            tmp_path / "cache",
            on_event=lambda kind, **fields: events.append(kind),
        )
    assert {"limits learnt", "first retry"} <= set(events)
