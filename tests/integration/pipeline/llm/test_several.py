"""Several servers at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.config import LLMConfig
from claimscore.errors import AuthenticationError, UnknownModelError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message
from tests.fake_server import FakeServer, text_answer

pytestmark = pytest.mark.anyio


def config(*urls: str, **settings: Any) -> LLMConfig:
    return LLMConfig(**{"model": "openai:m", "base_url": urls, **settings})


async def test_without_an_engine_they_take_turns() -> None:
    """For who asks a provider himself."""
    with FakeServer(answer=text_answer("a")) as one, FakeServer(answer=text_answer("b")) as two:
        provider = load_provider(config(one.base_url, two.base_url))
        request = Engine(provider, None).request([Message("user", "x")])  # type: ignore[arg-type]
        texts = [(await provider.complete(request)).text for _ in range(4)]
        await provider.aclose()
    assert sorted(texts) == ["a", "a", "b", "b"]


async def asked(llm: LLMConfig, n: int, folder: Path, **options: Any) -> tuple[list[Any], Engine]:
    provider = load_provider(llm)
    async with open_engine(llm, provider, folder / "cache", **options) as engine:
        requests = [engine.request([Message("user", str(i))]) for i in range(n)]
        outcomes = await engine.answer_all(requests, lambda answer: answer.text)
        engine.observe()
    return outcomes, engine


async def test_three_of_different_speed_one_dies_and_one_comes_back(tmp_path: Path) -> None:
    """All records are done, nothing is asked twice but what was in flight, and whoever comes back
    is used again. Shares are counted in virtual time, in `test_servers`."""
    speeds, slots, n = (0.1, 0.2, 0.2), 8, 240
    returns = [{"how": "refuse", "from_s": 0.65, "to_s": 0.9}]
    dies = [{"how": "refuse", "from_s": 1.3, "to_s": 99}]
    events: list[tuple[str, dict[str, Any]]] = []
    with (
        FakeServer(answer=text_answer("yes"), latency_s=speeds[0]) as fast,
        FakeServer(answer=text_answer("yes"), latency_s=speeds[1], outages=returns) as back,
        FakeServer(answer=text_answer("yes"), latency_s=speeds[2], outages=dies) as gone,
    ):
        servers = (fast, back, gone)
        llm = config(*(server.base_url for server in servers), max_concurrency=slots)
        outcomes, engine = await asked(
            llm, n, tmp_path, on_event=lambda kind, **fields: events.append((kind, fields))
        )
        assert all(isinstance(outcome, Answer) for outcome in outcomes)
        assert engine.stats.failed == 0
        assert engine.max_concurrency == 3 * slots
        again = sum(server.counts.received for server in servers) - n
        assert again <= 2 * slots  # probes that are refused do not arrive
        assert all(server.counts.paid for server in servers)
        assert back.counts.paid_at[-1] > 0.9  # it is used again
        told = {server.address: server.answered for server in engine.stats.servers}
        assert sum(told.values()) == n
    kinds = [(kind, fields["server"]) for kind, fields in events if kind.startswith("server ")]
    assert ("server back", back.base_url) in kinds
    assert ("server down", gone.base_url) in kinds
    assert kinds.count(("server back", gone.base_url)) == 0
    assert json.dumps(engine.stats.as_json()["servers"])


async def test_each_has_limits_of_its_own(tmp_path: Path) -> None:
    """What one server's headers say is kept there, remembered for it, and added up."""
    rates = {"rpm": 1200, "depth_s": 1}, {"rpm": 300, "depth_s": 1}
    with (
        FakeServer(answer=text_answer("yes"), **rates[0]) as one,
        FakeServer(answer=text_answer("yes"), **rates[1]) as two,
    ):
        llm = config(one.base_url, two.base_url)
        _, engine = await asked(llm, 40, tmp_path)
        assert engine.stats.rpm == 1500
        assert one.counts.outcomes["limit"] + two.counts.outcomes["limit"] <= 8
        assert one.counts.paid.total() + two.counts.paid.total() == 40
        async with open_engine(config(two.base_url), load_provider(config(two.base_url))) as again:
            assert again.observe().rpm == 300


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"models": ("other",)}, UnknownModelError), ({"key": "sk-2"}, AuthenticationError)],
    ids=["model", "key"],
)
async def test_a_server_that_is_set_up_wrong_is_named(
    wrong: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    """The run stops: to go on without it would hide the slip."""
    with FakeServer(answer=text_answer("yes")) as good, FakeServer(**wrong) as bad:
        llm = config(good.base_url, bad.base_url, max_concurrency=2)
        with anyio.fail_after(10), pytest.raises(error, match=bad.base_url):
            await asked(llm, 100, tmp_path)
