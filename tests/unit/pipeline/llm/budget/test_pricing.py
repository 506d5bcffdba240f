"""What a token costs: whose price is taken, and that no model gets another's by accident."""

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
from claimscore.pipeline.llm.budget.ledger import PICO
from claimscore.pipeline.llm.budget.pricing import Price, Prices, Rates, find_price, table_price
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.types import Completion, Request, Usage

MTOK = 10**6
OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"
AZURE = "https://mine.openai.azure.com/openai/v1"
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
CACHED = Usage(MTOK, 0, MTOK // 2, None, MTOK // 4, "standard")
OWN = {"input_price": 1.0, "output_price": 3.0}


def config(model: str, **settings: Any) -> LLMConfig:
    return LLMConfig(model=model, **settings)


def known(model: str, **settings: Any) -> Price:
    """The price of a model as `--llm` names it, at its server."""
    llm = config(model, **settings)
    price = find_price(llm, load_provider(llm), llm.model_name)
    assert price is not None
    return price


def usd(price: Price, *usage: Any, **more: Any) -> float:
    cost = price.cost(Usage(*usage, **more))
    assert cost is not None
    return cost[0] / PICO


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "openai-batch:gpt-5-mini", "openai:mine"])
def test_the_users_own_prices_hold_as_given(model: str) -> None:
    """At every tier, and for tokens from the server's cache; so none of them is a bound."""
    price = known(model, **OWN)
    assert price.cost(Usage(MTOK, MTOK, MTOK, None, MTOK, "scale")) == (4 * PICO, False)
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
    assert prices.of(local) == known("openai:m", **OWN)
    prices.require()
    unknown = Prices((config("openai:mine"), Server("mine")))
    with pytest.raises(ConfigError, match=r"what mine costs .* --input-price .* --max-requests"):
        unknown.require()
    request = Request("openai", local.namespace, "gpt-4o", ())
    assert prices(request) == prices.of(local)


def test_a_model_that_is_asked_in_batches_and_at_once_has_the_dearer_price() -> None:
    """Their requests are the same ones."""
    llms = [config(f"{family}:gpt-4o-mini") for family in ("openai-batch", "openai")]
    batches, online = map(load_provider, llms)
    prices = Prices((llms[0], batches), (llms[1], online))
    assert prices.of(batches) == prices.of(online) == known("openai:gpt-4o-mini")


def test_builtin_costs_nothing() -> None:
    price = known("builtin")
    assert price.most(10**9, 10**9) == 0
    assert price.cost(Usage(9, 9, 9)) == (0, False)


@pytest.mark.parametrize(
    ("url", "model", "usage", "costs", "at_most"),
    [
        (OPENAI, "gpt-4o-mini", Usage(MTOK, 0), 0.15, False),
        (OPENAI, "gpt-4o-mini", Usage(0, MTOK), 0.6, False),
        (OPENAI, "gpt-4o-mini", Usage(MTOK, 0, MTOK), 0.075, False),
        # flex and the cache without a price of their own
        (OPENAI, "gpt-4o-mini", Usage(MTOK, 0, service_tier="flex"), 0.15, True),
        (OPENAI, "gpt-4", Usage(MTOK, 0, MTOK), 30, True),
        # Anthropic's cache, read and written, or perhaps written
        (ANTHROPIC, "claude-haiku-4-5", CACHED, 0.05 + 0.3125 + 0.25, False),
        (ANTHROPIC, "claude-haiku-4-5", Usage(MTOK, 0), 1.25, True),
        (GOOGLE, "gemini-2.5-flash", Usage(MTOK, 0, MTOK // 2), 0.15 + 0.015, False),
        (AZURE, "gpt-4.1", Usage(MTOK, 0), 2, False),
    ],
)
def test_an_answer_costs_what_the_table_says(
    url: str, model: str, usage: Usage, costs: float, at_most: bool
) -> None:
    price = table_price(model, url)
    assert price is not None
    assert model in price.source
    cost = price.cost(usage)
    assert cost is not None
    assert (cost[0] / PICO, cost[1]) == (pytest.approx(costs), at_most)
    assert usage[0] is not None
    assert usage[1] is not None
    assert price.most(usage[0], usage[1]) >= cost[0]


@pytest.mark.parametrize("tier", ["priority", "scale"])
def test_a_tier_that_may_cost_more_has_no_price(tier: str) -> None:
    price = table_price("gpt-4o-mini", OPENAI)
    assert price is not None
    assert not price.knows(tier)
    assert price.cost(Usage(9, 9, service_tier=tier)) is None


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4-turbo", "gpt-5"])
def test_a_batch_costs_half(model: str) -> None:
    """What is cached is not halved where the table says nothing of batches."""
    online, batch = known(f"openai:{model}"), known(f"openai-batch:{model}")
    for tier in ("", "default", "batch"):
        assert usd(batch, MTOK, 0, service_tier=tier) == usd(online, MTOK, 0) / 2
        assert usd(batch, 0, MTOK, service_tier=tier) == usd(online, 0, MTOK) / 2
    assert usd(batch, MTOK, 0, MTOK) <= usd(batch, MTOK, 0)
    if model == "gpt-4o-mini":
        assert usd(batch, MTOK, 0, MTOK) == usd(online, MTOK, 0, MTOK)


MINI, KIMI = "gpt-4o-mini", "kimi-k2-0905-preview"


@pytest.mark.parametrize(
    ("url", "model", "is_known"),
    [
        pytest.param(OPENAI, MINI, True, id="openai"),
        pytest.param("https://api.openai.com:443/v1/", MINI, True, id="its port said"),
        pytest.param("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile", True, id="groq"),
        pytest.param("https://api.moonshot.ai/v1", KIMI, True, id="an open end"),
        pytest.param("https://openrouter.ai/api/v1", "openai/gpt-4o-mini", True, id="openrouter"),
        pytest.param(AZURE, "gpt-4.1", True, id="azure"),
        pytest.param("http://127.0.0.1:8000/v1", MINI, False, id="loopback"),
        pytest.param("https://llm.example.org/v1", MINI, False, id="another host"),
        pytest.param("https://api.openai.com.example.org", MINI, False, id="host begins"),
        pytest.param("https://example.org/api.openai.com/v1", MINI, False, id="a path"),
        pytest.param("https://api.openai.com@example.org", MINI, False, id="a user name"),
        pytest.param("https://api.openai.com:8443/v1", MINI, False, id="another port"),
        pytest.param("http://api.openai.com/v1", MINI, False, id="plain http"),
        pytest.param("https://api.openai.com:port/v1", MINI, False, id="no port"),
        pytest.param("https://[api.openai.com]/v1", MINI, False, id="no host"),
        pytest.param("https://api.anthropic.com/v1", MINI, False, id="another company"),
        pytest.param("https://example.org/.googleapis.com", "gemini-2.5-pro", False, id="in front"),
        pytest.param("https://api.moonshot.example.org/v1", KIMI, False, id="behind"),
        pytest.param(OPENAI, "no-such-model", False, id="no such model"),
        pytest.param(OPENAI, "whisper-1", False, id="paid by the minute"),
        pytest.param("https://api.perplexity.ai", "sonar", False, id="paid by the request too"),
    ],
)
def test_a_name_has_a_price_at_the_address_of_its_company_alone(
    url: str, model: str, is_known: bool
) -> None:
    assert (table_price(model, url) is not None) is is_known


def test_several_servers_have_a_price_where_it_is_the_same() -> None:
    here = "http://127.0.0.1:8000/v1"
    several = config("openai:gpt-4o-mini", base_url=[here, OPENAI])
    assert find_price(several, load_provider(several), "gpt-4o-mini") is None
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
    ("llm", "table", "costs"),
    [
        (
            "openai:m",
            TIERS,
            {10: 10 + 1, 11: 22 + 1, 20: 40 + 1, 21: 42 + 3, 30: 60 + 3, 31: 124 + 3},
        ),
        ("openai:m", conditional(hours(5, 6), prices(2)), {1: 4}),  # the dearest hour
        ("openai:m", conditional(TOMORROW, prices(5)), {1: 10}),
        ("openai:m", conditional(TOMORROW, prices(0.5)), {1: 2}),
        ("openai-batch:b", prices(1), {1: 1.6}),  # a batch as the table says, and for half
        ("openai-batch:m", prices(1, 4), {1: 2.5}),
        ("openai:gpt-9", prices(1, cache_write_mtok=1.25), {10: 13.5}),  # unasked
    ],
    ids=["length", "hour", "more tomorrow", "less tomorrow", "batch", "half", "cache"],
)
def test_the_highest_price_that_may_hold_is_taken(
    monkeypatch: pytest.MonkeyPatch, llm: str, table: Any, costs: dict[int, float]
) -> None:
    """In picodollars a millionth of a token's, for prompts of several lengths and one token."""
    name = llm.partition(":")[2]
    variants = [PriceVariant({"processing": "batch"}, prices(0.8))] if name == "b" else None
    info = ModelInfo(name, ClauseEquals(name), prices=table, price_variants=variants)
    company = Provider("openai", "OpenAI", r"https://api\.openai\.com", models=[info])
    snapshot = data_snapshot.DataSnapshot([company], from_auto_update=False)
    monkeypatch.setattr(data_snapshot, "get_snapshot", lambda: snapshot)
    price = known(llm)
    assert {n: round(usd(price, n, 1) * MTOK, 6) for n in costs} == costs
    assert {n: price.most(n, 1) / MTOK for n in costs} == costs


@pytest.mark.parametrize(
    ("per_mtok", "pico"),
    [(0.1, 100_000), (0.0375, 37_500), (2.5, 2_500_000), (1e-6, 1), (1.5e-7, 1)],
)
def test_prices_become_whole_numbers_rounded_up(per_mtok: float, pico: int) -> None:
    assert Price.given(per_mtok, 0).most(1, 0) == pico


def test_more_cached_and_written_than_prompt_is_not_believed() -> None:
    price = Price("test", (Rates(10, 10, 5, 12),), {})
    assert price.cost(Usage(10, 0, 99, None, 99)) == price.cost(Usage(10, 0, 10, None, 0))
    assert price.cost(Usage(10, 0, 4, None, 99)) == price.cost(Usage(10, 0, 4, None, 6))


def test_the_most_takes_the_dearest_of_all_lengths_in_reach() -> None:
    price = Price("test", (Rates(5, 5, 9), Rates(1, 1, 1, above=100)), {})
    assert price.most(200, 10) == 200 * 9 + 10 * 5
