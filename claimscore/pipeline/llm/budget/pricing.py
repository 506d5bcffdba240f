"""Prices of tokens. The only home of genai-prices.

The table comes with that package and is read from there: nothing is fetched. A price is given
only to a model at the address of the company that the table names; the same name at another
address, or at a server of one's own, has no price, which is not the same as costing nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import operator
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.budget.ledger import PICO
from claimscore.pipeline.llm.providers.base import Collecting, Provider, base_urls
from claimscore.types import Request, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as Company

#: The source of prices that the user names.
GIVEN = "--input-price and --output-price"

#: Tiers of service that are the standard one by another name, and those that never cost more.
_STANDARD = ("", "auto", "default", "standard", "standard_only", "on_demand")
_CHEAPER = ("flex", "batch")

#: What the table calls a batch job.
_BATCH = {"processing": "batch"}
_PRICED = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


class Rates(NamedTuple):
    """Picodollars a token (dollars a million tokens, times a million), by length of the prompt.

    They hold for all tokens of a request whose prompt has more than `above` tokens. `cached` is for
    prompt tokens that the server reads from its cache, `written` for those that it writes into
    it; None where they have no price of their own.
    """

    prompt: int
    completion: int
    cached: int | None = None
    written: int | None = None
    above: int = -1


@dataclasses.dataclass(frozen=True)
class Price:
    """The price of a model, and its source.

    `rates` are by length of the prompt, shortest first. They are those of the standard tier of
    service; of `every_tier` where the user or a batch says so.
    """

    source: str
    rates: tuple[Rates, ...]
    every_tier: bool = False

    @classmethod
    def given(cls, input_per_mtok: float, output_per_mtok: float, source: str = GIVEN) -> Price:
        """A price in dollars a million tokens, whatever the tier and wherever tokens come from."""
        prompt, completion = _pico(input_per_mtok), _pico(output_per_mtok)
        return cls(source, (Rates(prompt, completion, cached=prompt),), every_tier=True)

    @property
    def per_mtok(self) -> tuple[float, float]:
        """Dollars a million prompt tokens, and answer tokens, where the prompt is short."""
        return self.rates[0].prompt / 10**6, self.rates[0].completion / 10**6

    def knows(self, tier: str) -> bool:
        """Whether it says what a request costs at most that is served at this tier."""
        return self.every_tier or tier in _STANDARD or tier in _CHEAPER

    def cost(self, usage: Usage) -> tuple[int, bool] | None:
        """Picodollars of an answer, and whether that is the most it can be; None where nothing is
        known of its tier. Tokens that are not reported count as none.

        Tokens from the server's cache without a price of their own cost what others do. Where the
        server does not say how many it wrote there, all that it did not read count as written.
        """
        prompt, written, tier = usage.prompt_tokens or 0, *usage[4:]
        if not self.knows(tier):
            return None
        rates = next(one for one in reversed(self.rates) if prompt > one.above)
        n_cached = min(usage.cached_prompt_tokens or 0, prompt)
        n_new = prompt - n_cached
        n_written = n_new if written is None else min(written, n_new)
        per_cached = rates.prompt if rates.cached is None else rates.cached
        per_written = max(rates.prompt, rates.written or 0)
        at_most = (
            (n_cached > 0 and rates.cached is None)
            or (n_new > 0 and written is None and per_written > rates.prompt)
            or (tier in _CHEAPER and not self.every_tier)
        )
        pico_usd = per_cached * n_cached + per_written * n_written
        pico_usd += rates.prompt * (n_new - n_written)
        pico_usd += rates.completion * (usage.completion_tokens or 0)
        return pico_usd, at_most

    def most(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Picodollars that an answer costs at most, with up to so many tokens."""
        return max(
            max(rates.prompt, rates.cached or 0, rates.written or 0) * prompt_tokens
            + rates.completion * completion_tokens
            for rates in self.rates
            if prompt_tokens > rates.above
        )

    def of_many(
        self, n: float, prompt_tokens: float, completion_tokens: float, tier: str = ""
    ) -> float | None:
        """Dollars of so many answers that are all of one size, from their tokens in all."""
        size = (round(prompt_tokens / n), round(completion_tokens / n)) if n else (0, 0)
        cost = self.cost(Usage(*size, written_prompt_tokens=0, service_tier=tier))
        return None if cost is None else n * cost[0] / PICO


def _pico(per_mtok: float) -> int:
    """Dollars a million tokens in picodollars a token, rounded up; what floating point adds is no
    reason to."""
    return math.ceil(round(per_mtok * 10**6, 3))


def asked_tier(request: Request) -> str:
    """The tier of service that a request asks for; "" where it leaves that to the server."""
    return str(request.extra.get("service_tier") or request.extra.get("speed") or "")


# -- finding one


class Prices:
    """The prices of the models that an engine asks; each is looked up when it is first needed.

    `asked` are the providers, each with the settings that it was made by.
    """

    def __init__(self, *asked: tuple[LLMConfig, Provider]) -> None:
        self._asked = asked
        self._known: dict[tuple[str, str, str], Price | None] = {}

    def __call__(self, request: Request) -> Price | None:
        """The price of the request's model at its server; None where it is not known."""
        place = request.provider, request.namespace, request.model
        if place not in self._known:
            there = [one for one in self._asked if (one[1].family, one[1].namespace) == place[:2]]
            named = [one for one in there if one[1].model == request.model]
            choice = named or there or self._asked
            # a model that is asked in batches and at once too has the dearer price
            config, provider = min(choice, key=lambda one: isinstance(one[1], Collecting))
            self._known[place] = find_price(config, provider, request.model)
        return self._known[place]

    def of(self, provider: Provider) -> Price | None:
        """The price of a provider's model."""
        return self(Request(provider.family, provider.namespace, provider.model, ()))

    def require(self) -> None:
        """`ConfigError` where a model has no known price."""
        for _, provider in self._asked:
            if self.of(provider) is None:
                raise unknown_price(provider.model)


def unknown_price(model: str) -> ConfigError:
    """Why a cap in dollars cannot be kept."""
    return ConfigError(
        f"--max-cost: what {model} costs at this server is not known; name --input-price and "
        "--output-price (dollars a million tokens, TASK=USD for the model of a task), or bound "
        "the run by --max-requests"
    )


def find_price(config: LLMConfig, provider: Provider, model: str) -> Price | None:
    """The price of a model that a provider is asked for; None where it is not known.

    The user's own prices hold as given, for batches and all tiers of service too. What answers on
    this machine costs nothing. Otherwise the table decides, by the model's name and the server's
    address; where several servers have several prices, the cost of one answer cannot be told.
    """
    if config.input_price is not None and config.output_price is not None:
        return Price.given(config.input_price, config.output_price)
    if getattr(provider, "is_local", False):
        return Price.given(0, 0, f"{provider.family}: no model is asked")
    batch = isinstance(provider, Collecting)
    first, *others = [table_price(model, url, batch=batch) for url in base_urls(provider)] or [None]
    return first if all(other == first for other in others) else None


def table_price(name: str, url: str, *, batch: bool = False) -> Price | None:
    """The price of a model at an address by the table; None where it does not know it there.

    A batch costs what the table says of batches, else half, whatever tier its answers name.
    """
    from genai_prices import __version__
    from genai_prices.data_snapshot import get_snapshot  # 0.2 s: only where it is needed

    companies = get_snapshot().providers
    for company in companies:
        model = company.find_model(name, all_providers=companies) if _is_at(url, company) else None
        if model is None:
            continue
        rates = _rates(model, batch=batch)
        source = f"genai-prices {__version__}: {company.id}/{model.id}{', batch' * batch}"
        return Price(source, rates, every_tier=batch) if rates else None
    return None


#: The table's patterns are open at the end, some within a name: `https://api\\.moonshot\\.`.
_END = r"(?:(?<=\.)[a-z]{2,4})?(?:(?<=/)|(?=/|$))"


def _is_at(url: str, company: Company) -> bool:
    """Whether the address is the company's own, not one that begins or ends alike: nothing but the
    host may be dotted, and the match must end where a name ends."""
    try:
        parts = urlsplit(url)
        is_usual = parts.port in (None, 443)
    except ValueError:
        return False
    address = f"{parts.scheme}://{parts.hostname}{parts.path.replace('.', '-')}"
    return is_usual and re.match(f"(?:{company.api_pattern}){_END}", address) is not None


def _rates(model: ModelInfo, *, batch: bool) -> tuple[Rates, ...]:
    """The model's rates at the standard tier of service, or in a batch.

    Empty where the table does not price both kinds of tokens, or requests besides. Where it says
    nothing of batches, one costs half. Where prices change within a day, the highest.
    """
    now = datetime.datetime.now(datetime.UTC)
    day = [now + datetime.timedelta(hours=hour) for hour in range(25)]
    standard = [model.get_prices(moment) for moment in day]
    prices = [model.get_prices(moment, _BATCH) for moment in day] if batch else standard
    is_silent = batch and any(map(operator.eq, prices, standard))
    if any(price.requests_kcount for price in prices):
        return ()
    columns = [[getattr(price, name) for price in prices] for name in _PRICED]
    starts = {tier.start for values in columns for v in values for tier in getattr(v, "tiers", ())}
    rates = []
    for start in sorted({-1, *starts}):
        prompt, completion, cached, written = (_highest(values, start) for values in columns)
        if prompt is None or completion is None:
            return ()
        if is_silent:
            prompt, completion = math.ceil(prompt / 2), math.ceil(completion / 2)
            cached = None if cached is None else min(prompt, cached)
        rates.append(Rates(prompt, completion, cached, written, start))
    return tuple(rates)


def _highest(values: Sequence[Any], start: int) -> int | None:
    """Picodollars a token, for prompts just above `start`; None where there is no price."""
    at_start = [
        [*(tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start)][-1:]
        or [getattr(value, "base", value)]
        for value in values
        if value is not None
    ]
    return max((_pico(float(price)) for (price,) in at_start), default=None)
