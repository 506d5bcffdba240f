"""Several base URLs in settings: what they are called, what is refused, what people read."""

import itertools
from typing import Any

import pytest

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.budget.ledger import Spent
from claimscore.pipeline.llm.providers.base import SeveralServers, load_provider
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.pipeline.llm.stats import EngineStats, ServerStats

A, B, C = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", "http://127.0.0.1:3/v1"


def config(*urls: str, **settings: Any) -> LLMConfig:
    return LLMConfig(**{"model": "openai:m", "base_url": urls, **settings})


@pytest.mark.parametrize("urls", list(itertools.permutations([A, B, C])))
def test_the_namespace_is_the_set_of_them(urls: tuple[str, ...]) -> None:
    for given in (urls, (*urls, urls[0]), [f"{url}/" for url in urls]):
        provider = load_provider(config(*given))
        assert isinstance(provider, SeveralServers)
        assert provider.namespace == f"{A} {B} {C}"
        assert [server.base_url for server in provider.servers] == [A, B, C]
    assert load_provider(config(*urls, cache_namespace="mine")).namespace == "mine"
    assert load_provider(config(A, B)).namespace != load_provider(config(A)).namespace


@pytest.mark.parametrize("given", [A, (A,), [A, A], (A, f"{A}/")])
def test_one_server_is_what_it_always_was(given: Any) -> None:
    provider = load_provider(LLMConfig(model="openai:m", base_url=given))
    assert isinstance(provider, OpenAIProvider)
    assert provider.namespace == provider.base_url == A


def test_a_key_goes_to_none_of_them_where_one_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(ConfigError, match="http://gpu/v1: OPENAI_API_KEY would be sent"):
        load_provider(config(A, "http://gpu/v1"))
    load_provider(config(A, "http://gpu/v1", allow_http_key=True))


def test_servers_are_told_where_there_are_several() -> None:
    """What answers on this machine is none, and two models of one server are one."""
    idle = (0, 0, 0, 0.0, 0.0, "", None, None, "none")
    local, one, two = (ServerStats(address, *idle) for address in ("", A, B))
    stats = EngineStats()
    stats.see([[local], [one], [one]], Spent())
    assert stats.servers == []
    stats.see([[local], [one, two]], Spent())
    assert stats.servers == [one, two]
