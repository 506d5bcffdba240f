"""Several base URLs from settings to answers: what they are called, what is refused, and three
real servers of which one dies and one comes back."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.commands.options import llm_config
from claimscore.config import LLMConfig
from claimscore.console.text import servers_text
from claimscore.errors import AuthenticationError, ConfigError, UnknownModelError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import SeveralServers, load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message
from tests.fake_server import FakeServer, text_answer

pytestmark = pytest.mark.anyio

A, B, C = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", "http://127.0.0.1:3/v1"


def config(*urls: str, **settings: Any) -> LLMConfig:
    return LLMConfig(**{"model": "openai:m", "base_url": urls, **settings})


# -- what they are called


@pytest.mark.parametrize("urls", list(itertools.permutations([A, B, C])))
def test_the_namespace_is_the_set_of_them(urls: tuple[str, ...]) -> None:
    """Neither order nor repetition nor spelling makes another question of it."""
    for given in (urls, (*urls, urls[0]), [f"{url}/" for url in urls]):
        provider = load_provider(config(*given))
        assert isinstance(provider, SeveralServers)
        assert provider.namespace == f"{A} {B} {C}"
        assert [server.base_url for server in provider.servers] == [A, B, C]
    assert load_provider(config(*urls, cache_namespace="mine")).namespace == "mine"
    assert load_provider(config(A, B)).namespace != load_provider(config(A)).namespace


@pytest.mark.parametrize("given", [A, (A,), [A, A], (A, f"{A}/")])
def test_one_server_is_what_it_always_was(given: Any) -> None:
    """In whatever way it is given, however often."""
    provider = load_provider(LLMConfig(model="openai:m", base_url=given))
    assert isinstance(provider, OpenAIProvider)
    assert provider.namespace == provider.base_url == A


def test_one_address_is_kept_as_text_and_several_as_a_tuple() -> None:
    """Scripts and run.toml find the text that they know."""
    assert [LLMConfig(base_url=given).base_url for given in (None, (), "", A, [A], [A, B, A])] == [
        *(None, None, None, A, A),
        (A, B),
    ]
    assert LLMConfig(base_url=[A, B]).base_urls == (A, B)
    assert LLMConfig().base_urls == ()


@pytest.mark.parametrize("separator", [",", ", ", ";", " "])
def test_a_list_in_one_text_is_refused_and_not_quoted(
    separator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a path of the first server; an address may hold a secret."""
    together = separator.join(["http://user:secret@a/v1", B])
    with pytest.raises(ConfigError, match="a --base-url each") as refused:
        LLMConfig(base_url=together)
    monkeypatch.setenv("OPENAI_BASE_URL", together)
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL") as refused_too:
        load_provider(LLMConfig(model="openai:m"))
    assert "secret" not in f"{refused.value}{refused_too.value}"


def test_an_empty_address_among_others_is_refused() -> None:
    """An unset variable in a script must not send the key to OpenAI."""
    with pytest.raises(ConfigError, match="empty"):
        config(A, "")


def test_a_batch_is_one_servers() -> None:
    """And says so."""
    with pytest.raises(ConfigError, match="give --base-url once"):
        load_provider(config(A, B, model="openai-batch:m"))


def test_a_key_goes_to_none_of_them_where_one_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain http to another machine is refused for each."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(ConfigError, match="http://gpu/v1: OPENAI_API_KEY would be sent"):
        load_provider(config(A, "http://gpu/v1"))
    load_provider(config(A, "http://gpu/v1", allow_http_key=True))


def test_the_option_may_be_given_more_than_once() -> None:
    """And not at all."""
    rest = dict.fromkeys(
        ["rpm", "tpm", "max_cost", "max_requests", "max_failures", "input_price", "output_price"]
    )
    rest |= {"max_concurrency": 4, "timeout_s": 1.0, "max_outage_s": 1.0, "llm": "openai:m"}
    rest |= {"allow_http_key": False, "cache_namespace": None}
    found = [llm_config({**rest, "base_url": given}).base_url for given in ((), (A,), (A, B))]
    assert found == [None, A, (A, B)]


async def test_without_an_engine_they_take_turns() -> None:
    """For who asks a provider himself."""
    with FakeServer(answer=text_answer("a")) as one, FakeServer(answer=text_answer("b")) as two:
        provider = load_provider(config(one.base_url, two.base_url))
        request = Engine(provider, None).request([Message("user", "x")])  # type: ignore[arg-type]
        texts = [(await provider.complete(request)).text for _ in range(4)]
        await provider.aclose()
    assert sorted(texts) == ["a", "a", "b", "b"]


# -- what people read


def test_shares_are_told_once_there_are_any() -> None:
    """Names are short where hosts differ, and whole where only paths do."""

    def server(address: str, answered: int, down_s: float = 0.0) -> dict[str, Any]:
        return {"address": address, "answered": answered, "down_s": down_s}

    assert servers_text([]) == servers_text([server(A, 0), server(B, 0)]) == ""
    told = servers_text([server(A, 3), server(B, 1, 42.0)])
    assert told == "servers 127.0.0.1:1 75 %, 127.0.0.1:2 25 % (down for 42 s)"
    told = servers_text([server(A, 0, 5.0), server(f"{A}/x", 0)])
    assert told == f"servers {A} (down for 5 s), {A}/x"


# -- at work


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
