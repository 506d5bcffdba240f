"""What a token costs: whose price is taken, and that no model gets another's by accident."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from genai_prices import data_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.budget.pricing import PICO, Price, Prices, Rates, find_price
from claimscore.types import Completion, Request

MTOK = 10**6
OPENAI = "https://api.openai.com/v1"
OWN = {"input_price": 1.0, "output_price": 3.0}


def config(model: str, **settings: Any) -> LLMConfig:
    return LLMConfig(model=model, **settings)


def known(model: str, **settings: Any) -> Price:
    price = find_price(config(model, **settings))
    assert price is not None
    return price


def usd(price: Price, prompt: int, completion: int, cached: int = 0) -> float:
    return price.cost(prompt, completion, cached) / PICO


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "openai-batch:gpt-5-mini", "openai:mine"])
def test_the_users_own_prices_hold_as_given(model: str) -> None:
    price = known(model, **OWN)
    assert usd(price, MTOK, MTOK) == 4.0
    assert "--input-price" in price.source


class Server:
    """What a provider says of itself, where its prices are looked up."""

    family = "openai"

    def __init__(self, model: str, base_url: str = OPENAI) -> None:
        self.model, self.base_url, self.namespace = model, base_url, base_url

    async def complete(self, request: Request) -> Completion:
        raise NotImplementedError

    async def aclose(self) -> None: ...


def test_each_model_at_each_server_has_its_own_price() -> None:
    """Where one of them is not known, a cap in dollars is refused by its name."""
    hosted, local = Server("gpt-4o-mini"), Server("gpt-4o", "http://gpu:8000/v1")
    prices = Prices((config("openai:gpt-4o-mini"), hosted), (config("openai:gpt-4o", **OWN), local))
    assert prices.of(hosted) == known("openai:gpt-4o-mini")
    assert prices.of(hosted, "gpt-4o") == known("openai:gpt-4o")
    assert prices.of(local) == known("openai:m", **OWN)
    prices.require(["gpt-4o"])
    with pytest.raises(ConfigError, match=r"what mine costs .* --input-price .* --max-requests"):
        prices.require(["mine"])
    request = Request("openai", local.namespace, "gpt-4o", ())
    assert prices(request) == prices.of(local)


def test_builtin_costs_nothing() -> None:
    assert known("builtin").most(10**9, 10**9) == 0


def test_the_table_knows_openai() -> None:
    price = known("openai:gpt-4o-mini")
    assert usd(price, MTOK, 0) == 0.15
    assert usd(price, MTOK, 0, cached=MTOK) == 0.075
    assert usd(price, 0, MTOK) == 0.6
    assert "gpt-4o-mini" in price.source


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4-turbo", "gpt-5"])
def test_a_batch_costs_half(model: str) -> None:
    """What is cached is not halved where the table says nothing of batches."""
    online, batch = known(f"openai:{model}"), known(f"openai-batch:{model}")
    assert usd(batch, MTOK, 0) == usd(online, MTOK, 0) / 2
    assert usd(batch, 0, MTOK) == usd(online, 0, MTOK) / 2
    assert batch.cached_input_per_mtok <= batch.input_per_mtok
    if model == "gpt-4o-mini":
        assert batch.cached_input_per_mtok == online.cached_input_per_mtok


@pytest.mark.parametrize(
    ("url", "model", "is_known"),
    [
        pytest.param(OPENAI, "gpt-4o-mini", True, id="openai"),
        pytest.param("https://api.openai.com:443/v1/", "gpt-4o-mini", True, id="its port said"),
        pytest.param("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile", True, id="groq"),
        pytest.param("https://api.moonshot.ai/v1", "kimi-k2-0905-preview", True, id="an open end"),
        pytest.param("https://openrouter.ai/api/v1", "openai/gpt-4o-mini", True, id="openrouter"),
        pytest.param("https://mine.openai.azure.com/openai/v1", "gpt-4.1", True, id="azure"),
        pytest.param("http://127.0.0.1:8000/v1", "gpt-4o-mini", False, id="loopback"),
        pytest.param("https://llm.example.org/v1", "gpt-4o-mini", False, id="another host"),
        pytest.param("https://api.openai.com.example.org", "gpt-4o-mini", False, id="host begins"),
        pytest.param("https://example.org/api.openai.com/v1", "gpt-4o-mini", False, id="a path"),
        pytest.param("https://api.openai.com@example.org", "gpt-4o-mini", False, id="a user name"),
        pytest.param("https://api.openai.com:8443/v1", "gpt-4o-mini", False, id="another port"),
        pytest.param("http://api.openai.com/v1", "gpt-4o-mini", False, id="plain http"),
        pytest.param("https://api.openai.com:port/v1", "gpt-4o-mini", False, id="no port"),
        pytest.param("https://[api.openai.com]/v1", "gpt-4o-mini", False, id="no host"),
        pytest.param("https://api.anthropic.com/v1", "gpt-4o-mini", False, id="another company"),
        pytest.param("https://example.org/.googleapis.com", "gemini-2.5-pro", False, id="in front"),
        pytest.param(
            "https://api.moonshot.example.org/v1", "kimi-k2-0905-preview", False, id="behind"
        ),
        pytest.param(OPENAI, "no-such-model", False, id="no such model"),
        pytest.param(OPENAI, "whisper-1", False, id="paid by the minute"),
    ],
)
def test_a_name_has_a_price_at_the_address_of_its_company_alone(
    url: str, model: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = f"openai:{model}"
    assert (find_price(config(llm), url) is not None) is is_known
    assert (find_price(config(llm, base_url=url)) is not None) is is_known
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    assert (find_price(config(llm)) is not None) is is_known


def test_several_servers_have_a_price_where_it_is_the_same() -> None:
    here = "http://127.0.0.1:8000/v1"
    assert known("openai:gpt-4o-mini", base_url=[OPENAI, f"{OPENAI}/"]) == known(
        "openai:gpt-4o-mini"
    )
    assert find_price(config("openai:gpt-4o-mini", base_url=[here, OPENAI])) is None
    assert known("openai:m", base_url=[here, OPENAI], **OWN)


# -- what the table can say: never taken too low

NOW = datetime.datetime.now(datetime.UTC)


def prices(of_input: Any, of_output: Any = None, **more: Any) -> ModelPrice:
    return ModelPrice(
        input_mtok=of_input, output_mtok=of_input if of_output is None else of_output, **more
    )


def conditional(constraint: Any, then: ModelPrice) -> list[ConditionalPrice]:
    return [ConditionalPrice(prices=prices(1)), ConditionalPrice(constraint, prices=then)]


def hours(begin: int, end: int) -> TimeOfDateConstraint:
    return TimeOfDateConstraint(
        *((NOW + datetime.timedelta(hours=hour)).time() for hour in (begin, end))
    )


TOMORROW = StartDateConstraint((NOW + datetime.timedelta(days=1)).date())
TIERS = prices(TieredPrices(1, [Tier(10, 2), Tier(30, 4)]), TieredPrices(1, [Tier(20, 3)]))


@pytest.mark.parametrize(
    ("llm", "found", "costs"),
    [
        pytest.param(
            "openai:m",
            TIERS,
            {10: 10 + 1, 11: 22 + 1, 20: 40 + 1, 21: 42 + 3, 30: 60 + 3, 31: 124 + 3},
            id="longer prompts",
        ),
        pytest.param(
            "openai:m", conditional(hours(5, 6), prices(2)), {1: 4}, id="the dearest hour"
        ),
        pytest.param("openai:m", conditional(TOMORROW, prices(5)), {1: 10}, id="more tomorrow"),
        pytest.param("openai:m", conditional(TOMORROW, prices(0.5)), {1: 2}, id="less tomorrow"),
        pytest.param("openai-batch:b", prices(1), {1: 1.6}, id="a batch as the table says"),
        pytest.param("openai-batch:m", prices(1, 4), {1: 2.5}, id="a batch for half"),
        pytest.param(
            "openai:gpt-9",
            prices(1, cache_write_mtok=1.25),
            {1023: 1024, 1024: 1281},
            id="written to a cache unasked",
        ),
        pytest.param("openai:m", prices(1, requests_kcount=12), {0: 12_001}, id="a fee"),
    ],
)
def test_the_highest_price_that_may_hold_is_taken(
    monkeypatch: pytest.MonkeyPatch, llm: str, found: Any, costs: dict[int, float]
) -> None:
    """In picodollars a millionth of a token's, for prompts of several lengths and one token."""
    name = llm.partition(":")[2]
    variants = [PriceVariant({"processing": "batch"}, prices(0.8))] if name == "b" else None
    info = ModelInfo(name, ClauseEquals(name), prices=found, price_variants=variants)
    table = [Provider("openai", "OpenAI", r"https://api\.openai\.com", models=[info])]
    snapshot = data_snapshot.DataSnapshot(table, from_auto_update=False)
    monkeypatch.setattr(data_snapshot, "get_snapshot", lambda: snapshot)
    price = known(llm)
    assert {n: price.cost(n, 1) / MTOK for n in costs} == costs
    assert {n: price.most(n, 1) / MTOK for n in costs} == costs


@pytest.mark.parametrize(
    ("per_mtok", "pico"),
    [(0.1, 100_000), (0.0375, 37_500), (2.5, 2_500_000), (1e-6, 1), (1.5e-7, 1)],
)
def test_prices_become_whole_numbers_rounded_up(per_mtok: float, pico: int) -> None:
    assert Price(per_mtok, 0.0, 0.0, "test").cost(1, 0) == pico


def test_more_cached_than_prompt_is_not_believed() -> None:
    price = Price(1.0, 1.0, 0.5, "test")
    assert price.cost(10, 0, 99) == price.cost(10, 0, 10)


def test_the_most_takes_the_dearest_of_all_tiers_in_reach() -> None:
    price = Price(5.0, 5.0, 9.0, "test", tiers=(Rates(1.0, 1.0, 1.0, 100),))
    assert price.most(200, 10) == 200 * 9 * MTOK + 10 * 5 * MTOK
