"""What a token costs: whose price is taken, and that nobody gets another's by accident."""

from __future__ import annotations

import datetime
import socket
from decimal import Decimal
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
from claimscore.pipeline.llm.budget.pricing import PICO, Price, Rates, find_price, find_prices

MTOK = 10**6


@pytest.fixture(autouse=True)
def no_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the user's environment."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def config(model: str, **settings: Any) -> LLMConfig:
    return LLMConfig(model=model, **settings)


def usd(price: Price, prompt: int, completion: int, cached: int = 0) -> float:
    return price.cost(prompt, completion, cached) / PICO


class TestWhose:
    """The order: the user's own, builtin, the table, nobody's."""

    def test_the_users_own_prices_hold_as_given(self) -> None:
        for model in ("openai:gpt-5-mini", "openai-batch:gpt-5-mini", "openai:mine"):
            price = find_price(config(model, input_price=1.0, output_price=3.0))
            assert price is not None
            assert usd(price, MTOK, MTOK) == 4.0
            assert "--input-price" in price.source

    def test_other_models_of_the_same_provider_are_looked_up_too(self) -> None:
        url = "https://api.openai.com/v1"
        price, others = find_prices(config("openai:gpt-4o-mini"), url, ["gpt-4o"])
        assert price == find_price(config("openai:gpt-4o-mini"), url)
        assert others == {"gpt-4o": find_price(config("openai:gpt-4o"), url)}
        assert others["gpt-4o"] != price
        assert find_prices(config("openai:gpt-4o-mini"), url, ["gpt-4o", "mine"]) == (None, {})
        given = config("openai:mine", input_price=1.0, output_price=3.0)
        price, others = find_prices(given, None, ["other"])
        assert others == {"other": price}

    def test_builtin_costs_nothing(self) -> None:
        price = find_price(config("builtin"))
        assert price is not None
        assert price.most(10**9, 10**9) == 0

    def test_the_table_knows_openai(self) -> None:
        price = find_price(config("openai:gpt-4o-mini"))
        assert price is not None
        assert usd(price, MTOK, 0) == 0.15
        assert usd(price, MTOK, 0, cached=MTOK) == 0.075
        assert usd(price, 0, MTOK) == 0.6
        assert "gpt-4o-mini" in price.source

    def test_a_batch_costs_half(self) -> None:
        for model in ("gpt-4o-mini", "gpt-4-turbo", "gpt-5"):
            online = find_price(config(f"openai:{model}"))
            batch = find_price(config(f"openai-batch:{model}"))
            assert online is not None
            assert batch is not None
            assert usd(batch, MTOK, 0) == usd(online, MTOK, 0) / 2
            assert usd(batch, 0, MTOK) == usd(online, 0, MTOK) / 2
            assert batch.cached_input_per_mtok <= batch.input_per_mtok

    @pytest.mark.parametrize(
        "url",
        [
            pytest.param("http://127.0.0.1:8000/v1", id="loopback"),
            pytest.param("http://localhost:11434/v1", id="localhost"),
            pytest.param("https://llm.example.org/v1", id="another host"),
            pytest.param("https://api.openai.com.example.org/v1", id="a host that begins alike"),
            pytest.param("https://api.openai.community/v1", id="a name that begins alike"),
            pytest.param("https://example.org/api.openai.com/v1", id="a path"),
            pytest.param("https://llm/x.openai.azure.com", id="a path with a host in it"),
            pytest.param("https://api.openai.com@example.org/v1", id="a user name"),
            pytest.param("https://api.openai.com:8443/v1", id="another port"),
            pytest.param("http://api.openai.com/v1", id="plain http"),
            pytest.param("https://api.openai.com:port/v1", id="no port"),
            pytest.param("https://[api.openai.com]/v1", id="no host"),
            pytest.param("https://api.anthropic.com/v1", id="another company's host"),
        ],
    )
    def test_a_name_has_no_price_at_another_address(self, url: str) -> None:
        assert find_price(config("openai:gpt-4o-mini"), url) is None
        assert find_price(config("openai:gpt-4o-mini", base_url=url)) is None

    def test_several_servers_have_a_price_where_it_is_the_same(self) -> None:
        here, openai = "http://127.0.0.1:8000/v1", "https://api.openai.com/v1"
        two = config("openai:gpt-4o-mini", base_url=[openai, f"{openai}/"])
        assert find_price(two) == find_price(config("openai:gpt-4o-mini"))
        assert find_price(config("openai:gpt-4o-mini", base_url=[here, openai])) is None
        own = {"input_price": 1.0, "output_price": 2.0}
        assert find_price(config("openai:m", base_url=[here, openai], **own)) is not None

    @pytest.mark.parametrize(
        ("url", "model"),
        [
            pytest.param("https://api.openai.com/v1", "gpt-4o-mini", id="openai"),
            pytest.param("https://api.openai.com:443/v1/", "gpt-4o-mini", id="its port said"),
            pytest.param("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile", id="groq"),
            pytest.param("https://api.moonshot.ai/v1", "kimi-k2-0905-preview", id="an open end"),
            pytest.param("https://openrouter.ai/api/v1", "openai/gpt-4o-mini", id="openrouter"),
            pytest.param("https://mine.openai.azure.com/openai/v1", "gpt-4.1", id="azure"),
        ],
    )
    def test_other_companies_have_their_own_prices(self, url: str, model: str) -> None:
        assert find_price(config(f"openai:{model}"), url) is not None

    @pytest.mark.parametrize(
        ("url", "model"),
        [
            ("https://example.org/.googleapis.com", "gemini-2.5-pro"),
            ("https://api.moonshot.example.org/v1", "kimi-k2-0905-preview"),
        ],
        ids=["open at the front", "open at the end"],
    )
    def test_open_patterns_of_the_table_are_closed(self, url: str, model: str) -> None:
        assert find_price(config(f"openai:{model}"), url) is None

    def test_the_address_of_the_environment_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
        assert find_price(config("openai:gpt-4o-mini")) is None

    @pytest.mark.parametrize("model", ["no-such-model", "whisper-1", "text-embedding-3-small"])
    def test_what_has_no_price_for_tokens_is_unknown(self, model: str) -> None:
        assert find_price(config(f"openai:{model}")) is None

    def test_nothing_is_fetched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise AssertionError("a connection was made")

        monkeypatch.setattr(socket, "socket", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        assert find_price(config("openai:gpt-4o-mini")) is not None


NOW = datetime.datetime.now(datetime.UTC)


def model(name: str, found: Any, variants: list[PriceVariant] | None = None) -> ModelInfo:
    return ModelInfo(name, ClauseEquals(name), prices=found, price_variants=variants)


def each(value: str) -> ModelPrice:
    return ModelPrice(input_mtok=Decimal(value), output_mtok=Decimal(value))


def price_of(monkeypatch: pytest.MonkeyPatch, info: ModelInfo, llm: str = "openai") -> Price | None:
    """The price found in a table of one model."""
    table = [Provider("openai", "OpenAI", r"https://api\.openai\.com", models=[info])]
    snapshot = data_snapshot.DataSnapshot(table, from_auto_update=False)
    monkeypatch.setattr(data_snapshot, "get_snapshot", lambda: snapshot)
    return find_price(config(f"{llm}:{info.id}"))


class TestTable:
    """What the table can say, and how it is taken: never too low."""

    def test_a_long_prompt_costs_more_for_all_its_tokens(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tiered = TieredPrices(Decimal(1), [Tier(1000, Decimal(2))])
        found = price_of(monkeypatch, model("m", ModelPrice(input_mtok=tiered, output_mtok=tiered)))
        assert found is not None
        assert found.cost(1000, 10) == 1010 * MTOK
        assert found.cost(1001, 10) == 2 * 1011 * MTOK
        assert found.most(1000, 10) == 1010 * MTOK
        assert found.most(1001, 10) == 2 * 1011 * MTOK

    def test_tiers_with_different_marks_are_kept_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = model(
            "m",
            ModelPrice(
                input_mtok=TieredPrices(Decimal(1), [Tier(10, Decimal(2)), Tier(30, Decimal(4))]),
                output_mtok=TieredPrices(Decimal(1), [Tier(20, Decimal(3))]),
            ),
        )
        found = price_of(monkeypatch, info)
        assert found is not None
        costs = [found.cost(n, 1) // MTOK for n in (10, 11, 20, 21, 30, 31)]
        assert costs == [10 + 1, 22 + 1, 40 + 1, 42 + 3, 60 + 3, 124 + 3]

    def test_the_dearest_hour_of_the_day_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        soon = (NOW + datetime.timedelta(hours=5)).time()
        later = (NOW + datetime.timedelta(hours=6)).time()
        hour = TimeOfDateConstraint(soon, later)
        parts = [
            ConditionalPrice(prices=each("1")),
            ConditionalPrice(hour, prices=each("2")),
        ]
        found = price_of(monkeypatch, model("m", parts))
        assert found is not None
        assert (found.input_per_mtok, found.output_per_mtok) == (2.0, 2.0)

    @pytest.mark.parametrize(("tomorrow", "expected"), [("5", 5.0), ("0.5", 1.0)])
    def test_what_it_costs_from_tomorrow_counts_where_it_is_more(
        self, monkeypatch: pytest.MonkeyPatch, tomorrow: str, expected: float
    ) -> None:
        start = StartDateConstraint((NOW + datetime.timedelta(days=1)).date())
        parts = [
            ConditionalPrice(prices=each("1")),
            ConditionalPrice(start, prices=each(tomorrow)),
        ]
        found = price_of(monkeypatch, model("m", parts))
        assert found is not None
        assert found.input_per_mtok == expected

    def test_a_batch_has_the_price_that_the_table_names(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variant = PriceVariant({"processing": "batch"}, each("0.8"))
        info = model("m", each("1"), [variant])
        found = price_of(monkeypatch, info, "openai-batch")
        assert found is not None
        assert found.output_per_mtok == 0.8

    def test_half_price_does_not_halve_what_is_cached(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = model(
            "m",
            ModelPrice(
                input_mtok=Decimal(1), output_mtok=Decimal(4), cache_read_mtok=Decimal("0.25")
            ),
        )
        found = price_of(monkeypatch, info, "openai-batch")
        assert found is not None
        assert (found.input_per_mtok, found.cached_input_per_mtok) == (0.5, 0.25)

    def test_what_is_written_to_a_cache_unasked_is_paid_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = model(
            "gpt-9",
            ModelPrice(
                input_mtok=Decimal(1), output_mtok=Decimal(1), cache_write_mtok=Decimal("1.25")
            ),
        )
        found = price_of(monkeypatch, info)
        assert found is not None
        assert found.cost(1023, 0) == 1023 * MTOK
        assert found.cost(1024, 0) == 1280 * MTOK

    def test_a_fee_for_each_request_is_added(self, monkeypatch: pytest.MonkeyPatch) -> None:
        info = model(
            "m",
            ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1), requests_kcount=Decimal(12)),
        )
        found = price_of(monkeypatch, info)
        assert found is not None
        assert found.cost(0, 0) == found.most(0, 0) == 12 * PICO // 1000


class TestArithmetic:
    """Whole picodollars: sums are exact."""

    @pytest.mark.parametrize(
        ("per_mtok", "pico"),
        [(0.1, 100_000), (0.075, 75_000), (0.0375, 37_500), (2.5, 2_500_000), (1e-6, 1)],
    )
    def test_prices_become_whole_numbers(self, per_mtok: float, pico: int) -> None:
        assert Price(per_mtok, 0.0, 0.0, "test").cost(1, 0) == pico

    def test_a_finer_price_is_rounded_up(self) -> None:
        assert Price(1.5e-7, 0.0, 0.0, "test").cost(1, 0) == 1

    def test_more_cached_than_prompt_is_not_believed(self) -> None:
        price = Price(1.0, 1.0, 0.5, "test")
        assert price.cost(10, 0, 99) == price.cost(10, 0, 10)

    def test_the_most_takes_the_dearest_of_all_tiers_in_reach(self) -> None:
        price = Price(5.0, 5.0, 9.0, "test", tiers=(Rates(1.0, 1.0, 1.0, 100),))
        assert price.most(200, 10) == 200 * 9 * MTOK + 10 * 5 * MTOK
